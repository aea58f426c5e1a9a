"""HAProxy and h2load: this machine's own, else Debian's packages unpacked into the cache of hack/, never installed."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(CHECKOUT / "hack/lib"))

from gpugrant_hack import cache, packages  # noqa: E402  # a folder that is no package

SUITE = "bookworm"
"""Its programs run on every later Debian, with the libraries beside them."""
PACKAGES = (
    "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1", "libpcre2-8-0",
    "nghttp2-client", "libev4", "libjansson4", "libjemalloc2", "libnghttp2-14", "libxml2", "libicu72",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Programs:
    haproxy: str
    h2load: str
    libraries: str
    """For LD_LIBRARY_PATH; empty: the machine's own serve."""

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": self.libraries} if self.libraries else dict(os.environ)


def find() -> Programs:
    """Both programs; raises gpugrant_hack.say.Trouble where they can't be brought."""
    own = [shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") for name in ("haproxy", "h2load")]
    if own[0] and own[1]:
        return Programs(own[0], own[1], "")
    store = cache.folder(os.environ)

    def build(into: Path) -> None:
        packages.unpack(store, packages.machine_archive(), [(name, SUITE) for name in PACKAGES], into)

    folder = cache.entry(store, "bench", build)
    libraries = next((folder / "usr/lib").glob("*-linux-gnu"))
    return Programs(str(folder / "usr/sbin/haproxy"), str(folder / "usr/bin/h2load"), str(libraries))
