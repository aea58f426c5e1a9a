"""kopf in its thread: how it is reached, how it is stopped, and that its end is told."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest

from gpugrant_operator.controller import watches
from gpugrant_operator.controller.watches import Watches
from gpugrant_operator.kubeclient import Access


def test_kopf_has_the_operators_access() -> None:
    """Certificates as the kubeconfig has them, in base64; the token as a bearer's."""
    made = watches.connection(Access("https://here", ca="CA", token="t", certificate="C", key="K"))

    assert (made.server, made.scheme, made.token, made.insecure) == ("https://here", "Bearer", "t", None)
    encoded = [made.ca_data, made.certificate_data, made.private_key_data]
    assert [base64.b64decode(str(text)) for text in encoded] == [b"CA", b"C", b"K"]


def test_an_access_without_credentials() -> None:
    """Nothing is made up."""
    made = watches.connection(Access("http://here", insecure=True))

    assert (made.ca_data, made.token, made.scheme, made.insecure) == (None, None, None, True)


@pytest.mark.req("D4")
def test_kopf_writes_nothing_of_its_own() -> None:
    """No Events, no peering, no scanning, no webhooks, and no SIGKILL after a slow end."""
    chosen = watches.settings()

    assert not chosen.posting.enabled
    assert chosen.peering.standalone
    assert chosen.scanning.disabled
    assert chosen.admission.managed is None
    assert chosen.process.ultimate_exiting_timeout is None


@pytest.mark.real
async def test_its_end_is_told_when_it_begins() -> None:
    """Not only when it is over: a kopf that lost its API can hang while it ends."""
    told = threading.Event()
    kopf = Watches(Access("http://127.0.0.1:1"), lambda *_: None, told.set)
    kopf.start()

    kopf.stop(0.0)

    assert await asyncio.to_thread(told.wait, 10)
