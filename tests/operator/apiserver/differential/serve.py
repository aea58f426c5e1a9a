"""Ours as a process, without the rules of our own kinds: python serve.py ROOT CRDS.json."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from gpugrant_operator.apiserver import server
from gpugrant_operator.apiserver.settings import Settings


async def _serve(root: Path, crds: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = Settings(root=root, crds=tuple(json.loads(crds.read_text())), admission=False)
    async with server.running(settings) as running:
        sys.stdout.write(f"kubeconfig {running.settings.layout.kubeconfig}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
