"""Packages that only some methods need, and that an installation may lack."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from timeline.errors import ConfigError


def optional_package(name: str, caller: str, module: str | None = None) -> Any:
    """Import a package for a method.

    Args:
        name: The package, as pip and Python name it.
        caller: What needs it, for the message.
        module: What is imported; ``None`` for the package itself.

    Raises:
        ConfigError: It can't be imported: it isn't installed, or too old.
    """
    try:
        return import_module(module or name)
    except ImportError as exc:
        raise ConfigError(
            f"{caller} needs {name}, which can't be imported: {exc}",
            hint=f"pip install -U {name}",
        ) from exc
