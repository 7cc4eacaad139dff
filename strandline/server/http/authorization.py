"""``Admission`` and ``AdmittedClient``: the bearer token, and the networks whose clients need none.

The embedded service makes a token and passes it to executors inside the serialised view;
``strandline serve`` reads one from a file. Java clients can't send a token, so an operator has to
admit them: all (``--no-token``) or those of a network (``--no-token-from``), to look-ups, to
markers, to both, or a monitoring system to metrics.

The network is that of the connection's peer, checked once a connection. Headers that name other
peers (``X-Forwarded-For``) are ignored: anybody can write them.
"""

from __future__ import annotations

import asyncio
import enum
import hmac
import ipaddress
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsview.wire.marker_form import MARKERS
from timeline.errors import ConfigError

GREETING: Final = "/"
HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
UI: Final = "/ui/"
"""Prefix of the page's files, which need no token; they name nothing of the service."""
OPEN_PATHS: Final = frozenset({GREETING, HEALTH, f"{HEALTH}/", READY, f"{READY}/"})
"""Paths of probes, which need no token. They name missing roots, and nothing of any table."""
PROBING: Final = frozenset({"GET", "HEAD"})
"""Methods of probes."""

_SCHEME: Final = b"bearer "
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_MAPPED_BITS: Final = 96

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Right(enum.Flag):
    """Rights of a client."""

    READS = enum.auto()
    """Everything except markers: look-ups, loading, ``refresh/``, the status."""
    MARKERS = enum.auto()
    """All of ``/v1/hoodie/marker/``."""
    METRICS = enum.auto()
    """``METRICS_PATH``."""


NOTHING: Final = Right(0)
EVERYTHING: Final = Right.READS | Right.MARKERS | Right.METRICS
_RIGHTS: Final = {
    "reads": Right.READS | Right.METRICS,
    "markers": Right.MARKERS,
    "metrics": Right.METRICS,
    "all": EVERYTHING,
}


def right_for(path: str) -> Right:
    """Return the right that a request for ``path`` needs."""
    if path in OPEN_PATHS or path.startswith(UI) or path == UI.rstrip("/"):
        return NOTHING
    if path.rstrip("/") == METRICS_PATH:
        return Right.METRICS
    return Right.MARKERS if path.startswith(f"{MARKERS}/") else Right.READS


_TOKENS: Final = 2
_TOKEN_FILE_CHARACTERS: Final = 1 << 14
"""Longest file of tokens: longer headers are refused in any case."""


def new_token() -> str:
    """Return a fresh token: 256 random bits in URL-safe text."""
    return secrets.token_urlsafe(32)


def read_token_file(path: str) -> tuple[str, ...]:
    """Return the one or two tokens in a file, a line each, without the white space around them.

    The first is the one to send; a service admits both, so that they can be replaced one by one.

    Raises:
        ConfigError: The file can't be read, is empty, has more than two lines, or more than one
            word in a line.
    """
    try:
        with Path(path).open(encoding="ascii") as file:
            text = file.read(_TOKEN_FILE_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"token file {path}: {_reason(exc)}") from exc
    tokens = tuple(line.strip() for line in text.strip().split("\n"))
    is_short = len(text) <= _TOKEN_FILE_CHARACTERS and len(tokens) <= _TOKENS
    if not is_short or not all(t and t.isprintable() and " " not in t for t in tokens):
        raise ConfigError(
            f"token file {path}: it must hold one word of printable ASCII, or two on a line each"
        )
    return tuple(dict.fromkeys(tokens))


def is_readable_by_all(path: str) -> bool:
    """Whether every user of the machine may read an existing file."""
    return bool(os.stat(path).st_mode & stat.S_IROTH)


def _reason(exc: OSError | UnicodeDecodeError) -> str:
    return (exc.strerror or "can't be read") if isinstance(exc, OSError) else "it isn't ASCII"


def parse_networks(text: str) -> tuple[tuple[Network, Right], ...]:
    """Return networks and their rights from ``NETWORK[=reads|markers|metrics|all][,...]``.

    Raises:
        ConfigError: A part doesn't have this form.
    """
    return tuple(_parse_network(part.strip()) for part in text.split(",") if part.strip())


def _parse_network(part: str) -> tuple[Network, Right]:
    spelled, equals, word = part.partition("=")
    right = _RIGHTS.get(word.strip().lower()) if equals else EVERYTHING
    if right is None:
        raise ConfigError(
            f"network {part!r}: {word!r} is no right; allowed: {', '.join(_RIGHTS)}",
            hint="such as 10.0.0.0/8=reads",
        )
    try:
        network = ipaddress.ip_network(spelled.strip())
    except ValueError as exc:
        raise ConfigError(f"network {part!r}: {exc}", hint="such as 10.0.0.0/8=reads") from exc
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        assert mapped is not None
        network = ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network, right


class Admission:
    """Decides which requests are admitted.

    Args:
        token: Bearer token; ``None``: there is none.
        other_token: A second one that is admitted, too.
        networks: For ``parse_networks``. Without a token and without networks every client has all
            rights.

    Raises:
        ConfigError: A network can't be parsed.
    """

    __slots__ = ("_networks", "_tokens")

    def __init__(
        self, token: str | None, networks: str = "", *, other_token: str | None = None
    ) -> None:
        # One value, replaced as a whole: no request sees half of a renewal.
        self._tokens = tuple(t.encode("ascii") for t in (token, other_token) if t is not None)
        self._networks = parse_networks(networks)

    def __str__(self) -> str:
        """Say which clients are admitted."""
        if self.is_open:
            return "everybody"
        admitted = ["bearers of the token"] if self._tokens else []
        for network, right in self._networks:
            what = next(word for word, known in _RIGHTS.items() if known == right)
            admitted.append(str(network) if right == EVERYTHING else f"{network} ({what})")
        return ", ".join(admitted)

    @property
    def is_open(self) -> bool:
        """Whether every client has all rights."""
        return not self._tokens and not self._networks

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that are admitted, the one to send first."""
        return tuple(token.decode("ascii") for token in self._tokens)

    def renew(self, tokens: Sequence[str]) -> bool:
        """Replace the tokens, of which there must be one or two; return whether they differ."""
        before, self._tokens = self._tokens, tuple(token.encode("ascii") for token in tokens)
        return before != self._tokens

    def free_to(self, peer: str | None) -> Right:
        """Return a peer's rights without the token; ``None`` is a peer without an address."""
        if self.is_open:
            return EVERYTHING
        if peer is None:
            return NOTHING
        address = ipaddress.ip_address(peer)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            # A dual-stack socket shows IPv4 peers as mapped addresses.
            address = address.ipv4_mapped
        free = NOTHING
        for network, right in self._networks:
            if address in network:
                free |= right
        return free

    def bears_token(self, authorization: bytes | None) -> bool:
        """Whether an ``Authorization`` header (``None``: there is none) has a token."""
        if authorization is None or authorization[:7].lower() != _SCHEME:
            return False
        borne = authorization[7:].strip()
        return any(hmac.compare_digest(borne, token) for token in self._tokens)


@dataclass(frozen=True, slots=True)
class AdmittedClient:
    """The client of one connection.

    Attributes:
        address: Its IP address; empty: it has none.
        free: What it may do without the token.
        has_all: Whether that is everything.
        encrypted: Whether the connection is TLS.
    """

    address: str = ""
    free: Right = NOTHING
    has_all: bool = False
    encrypted: bool = False

    @classmethod
    def of(cls, transport: asyncio.BaseTransport, admission: Admission) -> AdmittedClient:
        """Return the client at the other end of a transport."""
        name = transport.get_extra_info("peername")
        address = name[0] if isinstance(name, tuple) else None
        free = admission.free_to(address)
        encrypted = transport.get_extra_info("sslcontext") is not None
        return cls(address or "", free, has_all=free == EVERYTHING, encrypted=encrypted)


NOBODY: Final = AdmittedClient()
