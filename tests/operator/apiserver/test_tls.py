"""Certificates, token and kubeconfig: kept while good, made anew when not."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpugrant_operator.apiserver import tls
from gpugrant_operator.apiserver.store.disk import Disk

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def ensured(folder: Path, now: datetime = NOW) -> tls.Identity:
    return tls.ensure(folder, Disk(), now)


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    first = ensured(tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert ensured(tmp_path) == first
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert not first.due(NOW)


def test_a_server_certificate_near_its_end_is_renewed_under_the_same_ca(tmp_path: Path) -> None:
    first = ensured(tmp_path)
    later = first.expires - timedelta(days=29)
    assert first.due(later)
    second = ensured(tmp_path, later)
    assert second.expires > first.expires
    assert (second.ca, second.token) == (first.ca, first.token)


def test_a_ca_near_its_end_takes_the_server_certificate_with_it(tmp_path: Path) -> None:
    first = ensured(tmp_path)
    second = ensured(tmp_path, NOW + tls.CA_LIFE - timedelta(days=1))
    assert second.ca != first.ca
    assert second.token == first.token


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("server.crt", b"", id="an empty certificate"),
        pytest.param("server.key", b"junk", id="a damaged key"),
        pytest.param("server.key", None, id="a missing key"),
        pytest.param("ca.key", b"", id="an empty CA key"),
        pytest.param("token", b"", id="an empty token"),
        pytest.param("token", b"\xff\xff", id="a token that is no text"),
    ],
)
def test_what_is_damaged_is_made_anew(tmp_path: Path, name: str, data: bytes | None) -> None:
    ensured(tmp_path)
    if data is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(data)
    identity = ensured(tmp_path)
    assert len(identity.token) >= 32
    tls.context(identity)
    assert ensured(tmp_path) == identity


def test_a_key_of_another_certificate_is_not_used(tmp_path: Path) -> None:
    ensured(tmp_path / "a")
    ensured(tmp_path / "b")
    (tmp_path / "a/server.key").write_bytes((tmp_path / "b/server.key").read_bytes())
    tls.context(ensured(tmp_path / "a"))


def test_a_certificate_of_another_ca_is_not_used(tmp_path: Path) -> None:
    ensured(tmp_path / "a")
    ensured(tmp_path / "b")
    for name in ("server.key", "server.crt"):
        (tmp_path / "a" / name).write_bytes((tmp_path / "b" / name).read_bytes())
    before = (tmp_path / "a/server.crt").read_bytes()
    ensured(tmp_path / "a")
    assert (tmp_path / "a/server.crt").read_bytes() != before


async def test_strict_clients_take_the_chain(serve: Any) -> None:
    async with serve() as api:
        strict = ssl.create_default_context(cadata=api.server.identity.ca.decode())
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        async with api.client.session.get(api.client.url + "/version", ssl=strict) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("text", "port"),
    [
        pytest.param(None, 0, id="no file"),
        pytest.param(b"", 0, id="an empty file"),
        pytest.param(b"a: [", 0, id="broken YAML"),
        pytest.param(b"clusters: [{name: other, cluster: {server: 'https://127.0.0.1:1'}}]", 0, id="another cluster"),
        pytest.param(b"clusters: [{name: gpugrant, cluster: {server: 'https://10.0.0.1:1'}}]", 0, id="another host"),
        pytest.param(b"clusters: [{name: gpugrant, cluster: {server: 'https://127.0.0.1:x'}}]", 0, id="no number"),
        pytest.param(b"clusters: [{name: gpugrant, cluster: {server: 'https://127.0.0.1:77'}}]", 77, id="ours"),
    ],
)
def test_the_port_that_clients_know(tmp_path: Path, text: bytes | None, port: int) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_bytes(text)
    assert tls.known_port(path) == port
