"""The server's TLS context, from a certificate and its key; a certificate for itself.

Clients need no certificate; ``strandline.server.http.authorization`` decides on admission.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from importlib import import_module
from typing import Any, Final

from executor_proxy.exchange import FINGERPRINT
from timeline.clock import Clock
from timeline.errors import ConfigError

_NAME: Final = "strandline timeline service"
_DAY: Final = timedelta(days=1)
_LASTS: Final = timedelta(days=3650)
"""Clients check the fingerprint, not the dates: a driver may run for long, and clocks differ."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate that a service made for itself, which nobody else has signed.

    Attributes:
        pem: The certificate and its private key.
        trust: What clients take for ``ca_file`` to trust it and no other.
    """

    pem: str = field(repr=False)
    trust: str


def own_certificate(clock: Clock) -> OwnCertificate:
    """Make a key on the curve P-256, and a certificate of it.

    Raises:
        ConfigError: The package that makes them isn't installed.

    Cost: a millisecond, after the import.
    """
    try:
        x509: Any = import_module("cryptography.x509")
        hazmat = "cryptography.hazmat.primitives"
        curves: Any = import_module(f"{hazmat}.asymmetric.ec")
        forms: Any = import_module(f"{hazmat}.serialization")
        hashes: Any = import_module(f"{hazmat}.hashes")
    except ImportError as exc:
        raise ConfigError(
            f"strandline.service.tls=auto needs cryptography, which can't be imported: {exc}",
            hint="pip install 'strandline[tls]'",
        ) from exc
    key = curves.generate_private_key(curves.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _LASTS)
        .sign(key, hashes.SHA256())
    )
    der: bytes = certificate.public_bytes(forms.Encoding.DER)
    pem: bytes = certificate.public_bytes(forms.Encoding.PEM) + key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    return OwnCertificate(pem.decode(), f"{FINGERPRINT}{sha256(der).hexdigest()}")


def own_context(pem: str) -> ssl.SSLContext:
    """Return the context of a server with a certificate that it made for itself."""
    # OpenSSL reads only files; this one has mode 0600 from the start and is deleted at once.
    descriptor, path = tempfile.mkstemp(prefix="strandline-tls-")
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(pem)
        context = _context()
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def server_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the context of a server with a certificate; ``None`` without one.

    Args:
        certificate: PEM file with the certificate, then the chain to its authority.
        key: PEM file of its private key, without a password.

    Raises:
        ConfigError: One is given without the other, can't be read, or they don't belong together.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("a TLS certificate and its key are given together or not at all")
    context = _context()
    for path in (certificate, key):
        _check_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigError(f"TLS certificate {certificate} with key {key}: {_reason(exc)}") from exc
    return context


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as exc:
        raise ConfigError(f"TLS file {path}: {exc.strerror or 'not readable'}") from exc


def _no_password() -> str:
    """Refuse to give a password; without this callback OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password; take it off")


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError) and exc.reason == "KEY_VALUES_MISMATCH":
        return "they don't belong together"
    if isinstance(exc, ssl.SSLError):
        return "not PEM, or not a certificate and a key"
    return str(exc)
