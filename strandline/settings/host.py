"""``HostSetting``: a setting that is a host name or an address, and its allowed values."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from strandline.settings.setting import ServiceSetting

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_NAME_CHARACTERS: Final = 253
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.-]+")


def without_brackets(host: str) -> str:
    """Return a host in the form for sockets: an IPv6 address may be given as in a URL."""
    is_bracketed = host.startswith("[") and host.endswith("]")
    return host[1:-1] if is_bracketed else host


def is_host(text: str) -> bool:
    """Whether ``text`` is an IPv4 or IPv6 address or a host name, in any script."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        pass
    else:
        scope = getattr(address, "scope_id", None)
        return scope is None or _SCOPE.fullmatch(scope) is not None
    try:
        # Refuses empty labels, and those of more than 63 characters.
        name = text.encode("idna").decode().removesuffix(".")
    except UnicodeError:
        return False
    return len(name) <= _NAME_CHARACTERS and all(map(_LABEL.fullmatch, name.split(".")))


class HostSetting(ServiceSetting[str]):
    """A setting whose value is a host name or an address, or empty; without brackets."""

    __slots__ = ()

    def _allowed_value(self, value: bool | int | float | str) -> str:
        """Return the host, or raise ``ValueError``."""
        host = without_brackets(str(value))
        if host and not is_host(host):
            raise ValueError(value)
        return host

    def describe_allowed(self) -> str:
        """Return the allowed values in words."""
        return "a host name, or an IPv4 or IPv6 address; without scheme and port"
