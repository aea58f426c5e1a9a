"""The server's own CA, certificate, token and kubeconfig: made once, kept 0600, renewed before they end.

kubectl sends a bearer token over TLS only, and loopback without a token is open to every local user.
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpugrant_operator.apiserver.store.disk import PRIVATE_DIR, Disk

HOST = "127.0.0.1"
CONTEXT = "gpugrant"
USER = "gpugrant-admin"
CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)
"""Certificates begin this much earlier, for a clock that is set back a little."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server proves itself with, and the token that it asks for. `ca` is PEM."""

    ca: bytes
    certificate: Path
    key: Path
    token: str
    expires: datetime
    """When the server's certificate ends."""

    def due(self, now: datetime) -> bool:
        return self.expires - now < RENEW_BEFORE


def ensure(folder: Path, disk: Disk, now: datetime) -> Identity:
    """The identity in the folder; whatever is missing, unreadable or near its end is made anew. Raises OSError."""
    disk.make_dir(folder)
    folder.chmod(PRIVATE_DIR)
    ca_certificate, ca_key = folder / "ca.crt", folder / "ca.key"
    certificate, key = folder / "server.crt", folder / "server.key"
    ca = _pair(ca_certificate, ca_key)
    if ca is None or _ends_soon(ca[0], now):
        ca = _make_ca(now)
        _write_pair(disk, ca_certificate, ca_key, ca)
    server = _pair(certificate, key)
    if server is None or _ends_soon(server[0], now) or not _signed(server[0], ca[0]):
        server = _make_server(ca, now)
        _write_pair(disk, certificate, key, server)
    return Identity(
        ca=ca[0].public_bytes(serialization.Encoding.PEM),
        certificate=certificate,
        key=key,
        token=_token(folder / "token", disk),
        expires=server[0].not_valid_after_utc,
    )


def context(identity: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(identity.certificate, identity.key)
    return made


Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _pair(certificate: Path, key: Path) -> Pair | None:
    """The certificate and its key; None where one is missing, damaged, or of another."""
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or read.public_key() != private.public_key():
        return None
    return read, private


def _ends_soon(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc - now < RENEW_BEFORE or certificate.not_valid_before_utc > now


def _signed(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except Exception:
        # cryptography raises ValueError, TypeError or InvalidSignature: each means "not by this CA".
        return False
    return True


def _make_ca(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gpugrant-ca-{secrets.token_hex(4)}")])
    usage = _usage(signing=False, certificates=True)
    builder = (
        _builder(name, name, key, now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def _make_server(ca: Pair, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpugrant-apiserver")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca[1].public_key())
    builder = (
        _builder(name, ca[0].subject, key, now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signing=True, certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer_id, critical=False)
    )
    return builder.sign(ca[1], hashes.SHA256()), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signing: bool, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signing,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(disk: Disk, certificate: Path, key: Path, pair: Pair) -> None:
    private = pair[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    disk.replace(key, private)
    disk.replace(certificate, pair[0].public_bytes(serialization.Encoding.PEM))


def _token(path: Path, disk: Disk) -> str:
    try:
        held = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        held = ""
    if len(held) >= 32:
        return held
    made = secrets.token_urlsafe(32)
    disk.replace(path, made.encode() + b"\n")
    return made


# --- kubeconfig -----------------------------------------------------------------------------------------------


def kubeconfig(identity: Identity, port: int) -> bytes:
    cluster = {
        "server": f"https://{HOST}:{port}",
        "certificate-authority-data": base64.b64encode(identity.ca).decode("ascii"),
    }
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": USER, "user": {"token": identity.token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": USER, "namespace": "default"}}],
        "current-context": CONTEXT,
        "preferences": {},
    }
    return yaml.safe_dump(value, sort_keys=False).encode()


def write_kubeconfig(path: Path, identity: Identity, port: int, disk: Disk) -> None:
    """Atomic and 0600."""
    disk.make_dir(path.parent)
    disk.replace(path, kubeconfig(identity, port))


def known_port(path: Path) -> int:
    """The port in our own kubeconfig, so that a restart keeps open shells working; 0: none."""
    try:
        value = yaml.safe_load(path.read_bytes())
        clusters = {entry["name"]: entry["cluster"] for entry in value["clusters"]}
        host, _, port = clusters[CONTEXT]["server"].removeprefix("https://").rpartition(":")
        return int(port) if host == HOST else 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return 0
