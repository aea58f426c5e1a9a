"""kopf's watches in a thread and an event loop of their own (reference/operator.md 1): they tell, we decide.

Only `on.event` handlers, which keep no state in objects and add no finalizers. Nothing is handled in kopf's thread.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import kopf
import structlog

from gpugrant_crds.v1alpha1 import GROUP, VERSION
from gpugrant_operator.controller.api import GRANTS, MACHINES, NAMESPACES
from gpugrant_operator.kubeclient import Access

Deliver = Callable[[str, str | None, Mapping[str, Any]], None]
"""Resource, event type (None: from a list), object; called in kopf's thread."""

_BACKOFFS = (0.1, 0.2, 0.5) + (1.0,) * 600
"""Seconds between tries while the API does not answer; after ten minutes kopf ends, and so does the process."""

log = structlog.get_logger(__name__)


class Watches:
    """`start` once; `on_end` is called in kopf's thread when kopf ends, whatever the reason; maybe twice.

    Once as soon as it begins to: a kopf that lost its API can hang while it ends.
    """

    def __init__(self, access: Access, deliver: Deliver, on_end: Callable[[], None]) -> None:
        self._access = access
        self._deliver = deliver
        self._on_end = on_end
        self._stopping = threading.Event()
        self._halt: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self.failure = ""

    @property
    def alive(self) -> bool:
        """The thread runs and kopf has started its watches."""
        return self._thread.is_alive() and self._ready.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Asks kopf to end and waits `patience` seconds; False: it did not end in that time."""
        self._stopping.set()
        if self._halt is not None:
            loop, halt = self._halt
            with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended
                loop.call_soon_threadsafe(halt.set)
        if self._thread.is_alive():
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._operate())
        except Exception as error:  # kopf raises whatever went wrong inside; the process ends because of it
            self.failure = f"{type(error).__name__}: {error}"
            log.warning("watches.failed", error=self.failure)
        finally:
            self._on_end()

    async def _operate(self) -> None:
        # An event of this loop: kopf waits for a thread's event in a pool, which would keep a failed kopf from ending.
        halt = asyncio.Event()
        self._halt = (asyncio.get_running_loop(), halt)
        if self._stopping.is_set():
            halt.set()
        await kopf.operator(
            registry=registry(self._access, self._deliver, self._on_end),
            settings=settings(),
            clusterwide=True,
            standalone=True,
            stop_flag=halt,
            ready_flag=self._ready,
        )


def registry(access: Access, deliver: Deliver, on_end: Callable[[], None]) -> kopf.OperatorRegistry:
    """The handlers: one for each resource, the login, and the end."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(access)

    @kopf.on.cleanup(registry=handlers)
    async def cleanup(**_: Any) -> None:
        on_end()

    for group, version, plural in ((GROUP, VERSION, MACHINES), (GROUP, VERSION, GRANTS), ("", "v1", NAMESPACES)):
        kopf.on.event(group, version, plural, registry=handlers)(_teller(plural, deliver))
    return handlers


def _teller(plural: str, deliver: Deliver) -> Any:
    async def tell(*, event: Mapping[str, Any], **_: Any) -> None:
        deliver(plural, event["type"], event["object"])

    tell.__name__ = tell.__qualname__ = f"tell_{plural}"
    return tell


def connection(access: Access) -> kopf.ConnectionInfo:
    """The same access as the operator's own client has."""
    return kopf.ConnectionInfo(
        server=access.server,
        ca_data=_encoded(access.ca),
        insecure=access.insecure or None,
        scheme="Bearer" if access.token else None,
        token=access.token,
        certificate_data=_encoded(access.certificate),
        private_key_data=_encoded(access.key),
    )


def settings() -> kopf.OperatorSettings:
    """reference/operator.md 1.6, with a shorter way back to an API that was away."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.watching.chunk_size = 500
    chosen.watching.inactivity_timeout = 70
    chosen.watching.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 5
    chosen.networking.error_backoffs = _BACKOFFS
    chosen.queueing.idle_timeout = 0.2
    chosen.queueing.exit_timeout = 0.5
    chosen.persistence.finalizer = f"{GROUP}/guard"
    chosen.process.ultimate_exiting_timeout = None
    chosen.admission.managed = None
    return chosen


def _encoded(text: str | None) -> str | None:
    return None if text is None else base64.b64encode(text.encode()).decode()
