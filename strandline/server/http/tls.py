"""The server's TLS context, from a certificate and its key.

Clients need no certificate; ``strandline.server.http.authorization`` decides on admission.
"""

from __future__ import annotations

import ssl

from timeline.errors import ConfigError


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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
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
