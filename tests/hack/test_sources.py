"""The machine's own Debian mirror is found among all of its package sources."""

from __future__ import annotations

import pytest
from gpugrant_hack import packages, sources
from gpugrant_hack.say import Trouble

DEBIAN = """\
# made by the installer
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
FOLDED = """\
Types: deb
URIs:
 http://a.example/debian
# another
 http://b.example/debian
Suites: bookworm
Components: main
"""
SOMEBODYS = "deb [arch=amd64 signed-by=/etc/apt/keyrings/a.asc] https://packages.example/apt bookworm main\n"

CASES = {
    "a deb822 entry": ((DEBIAN,), (), ("http://mirror.example/debian",)),
    "a one-line entry": ((), ("deb http://m.example/debian/ bookworm main\n",), ("http://m.example/debian",)),
    "an entry with options": (
        (),
        ("deb [ arch=amd64 trusted=no ] http://m.example/debian bookworm main # ours\n",),
        ("http://m.example/debian",),
    ),
    "somebody else's comes after Debian's own though it is listed first": (
        (DEBIAN,),
        (SOMEBODYS,),
        ("http://mirror.example/debian", "https://packages.example/apt"),
    ),
    "debian.org goes before an unknown host": (
        (),
        (SOMEBODYS, "deb http://ftp.de.debian.org/debian bookworm main\n"),
        ("http://ftp.de.debian.org/debian", "https://packages.example/apt"),
    ),
    "a suite that only looks like the machine's is left out": (
        (),
        ("deb https://pg.example/apt bookworm-pgdg main\n", "deb https://g.example/apt sdk-bookworm main\n"),
        (),
    ),
    "another component is left out": ((), ("deb https://docker.example/debian bookworm stable\n",), ()),
    "a disc is left out": ((), ("deb cdrom:[Debian]/ bookworm main\n",), ()),
    "a comment is no entry": ((), ("# deb http://m.example/debian bookworm main\n",), ()),
    "a disabled stanza is left out": ((DEBIAN.replace("Types: deb deb-src", "Enabled: no\nTypes: deb"),), (), ()),
    "sources of source packages are left out": ((DEBIAN.replace("deb deb-src", "deb-src"),), (), ()),
    "a suite by its role counts": ((), ("deb http://m.example/debian stable main\n",), ("http://m.example/debian",)),
    "folded fields and comments between them": (
        (FOLDED,),
        (),
        ("http://a.example/debian", "http://b.example/debian"),
    ),
    "a half-written line is no entry": ((), ("deb\n", "deb [arch=amd64\n", "deb http://m.example\n"), ()),
}


@pytest.mark.parametrize(("deb822", "one_line", "expected"), CASES.values(), ids=CASES)
def test_mirrors(deb822: tuple[str, ...], one_line: tuple[str, ...], expected: tuple[str, ...]) -> None:
    found = [source for text in one_line for source in sources.parse_one_line(text)]
    found += [source for text in deb822 for source in sources.parse_deb822(text)]

    assert sources.mirrors(found, "bookworm") == expected


def test_the_machine_s_files_are_read(tmp_path):
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    (tmp_path / "apt/sources.list").write_text(SOMEBODYS)
    (tmp_path / "apt/sources.list.d/debian.sources").write_text(DEBIAN)
    (tmp_path / "apt/sources.list.d/old.list.save").write_text("deb http://old.example/debian bookworm main\n")

    archive = packages.machine_archive(tmp_path)

    assert archive == packages.Archive(("http://mirror.example/debian", "https://packages.example/apt"), "bookworm")


def test_another_system_than_debian_says_so(tmp_path):
    (tmp_path / "os-release").write_text("ID=fedora\n")

    with pytest.raises(Trouble, match="no Debian"):
        packages.machine_archive(tmp_path)
