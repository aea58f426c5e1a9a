"""Reads apt's source lists for the machine's own Debian mirror (sources.list(5)). Pure: texts in, mirrors out.

The first source listed may be somebody else's, so entries are ranked by what only Debian's own has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

STABLE_NAMES = frozenset({"oldoldstable", "oldstable", "stable", "testing", "unstable"})


@dataclass(frozen=True, slots=True)
class Source:
    """One enabled entry for binary packages: one address with all its suites."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""


def parse_deb822(text: str) -> Iterator[Source]:
    """The entries of a `*.sources` file; stanzas that are disabled or hold no binaries are left out."""
    for stanza in _stanzas(text):
        if stanza.get("enabled", "yes").strip().lower() in {"no", "false", "off", "0"}:
            continue
        if "deb" not in stanza.get("types", "").split():
            continue
        for uri in stanza.get("uris", "").split():
            yield Source(
                uri,
                tuple(stanza.get("suites", "").split()),
                tuple(stanza.get("components", "").split()),
                stanza.get("signed-by", "").strip(),
            )


def _stanzas(text: str) -> Iterator[Mapping[str, str]]:
    stanza: dict[str, str] = {}
    field = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0] in " \t":
            stanza[field] = f"{stanza.get(field, '')} {line.strip()}"
        elif ":" in line:
            field, _, value = line.partition(":")
            field = field.strip().lower()
            stanza[field] = value.strip()


def parse_one_line(text: str) -> Iterator[Source]:
    """The `deb` entries of a `sources.list` file."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words or words[0] != "deb":
            continue
        options, rest = _options(words[1:])
        if len(rest) >= 2:
            yield Source(rest[0], (rest[1],), tuple(rest[2:]), options.get("signed-by", ""))


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    if not words or not words[0].startswith("["):
        return {}, words
    for end, word in enumerate(words):
        if word.endswith("]"):
            inside = " ".join(words[: end + 1]).strip("[] ").split()
            pairs = (item.partition("=") for item in inside)
            return {key.lower(): value for key, _, value in pairs}, words[end + 1 :]
    return {}, []


def mirrors(sources: Iterable[Source], codename: str) -> tuple[str, ...]:
    """The addresses that may be Debian's archive, likeliest first; others' archives come last or not at all."""
    scored: dict[str, int] = {}
    for source in sources:
        score = _score(source, codename)
        if score > 0:
            uri = source.uri.rstrip("/")
            scored[uri] = max(score, scored.get(uri, 0))
    return tuple(sorted(scored, key=lambda uri: -scored[uri]))


def _score(source: Source, codename: str) -> int:
    """0: surely not Debian's main archive."""
    if "main" not in source.components or source.uri.startswith("cdrom:"):
        return 0
    if not STABLE_NAMES.union({codename}).intersection(source.suites):
        return 0  # bookworm-security, bookworm-pgdg, cloud-sdk-bookworm …
    host, _, path = source.uri.partition("://")[2].partition("/")
    return (
        1
        + 4 * ("debian-archive" in source.signed_by)
        + 2 * host.endswith("debian.org")
        + (path.rstrip("/").split("/")[-1] in {"debian", "debian.list"})
    )
