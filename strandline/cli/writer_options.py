"""``--apply`` and ``--option``: a command changes a table by a writer, with options of this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import click

from timeline.errors import ConfigError

_PREFIXES: Final = "hoodie.", "strandline."


def apply_options(does: str, others: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds ``--apply`` and ``--option`` to a command.

    Args:
        does: What ``--apply`` does, a sentence.
        others: Which options a user may need.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        option = click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help=f"With --apply: an option of the writer, such as those of {others}",
        )
        applied = click.option("--apply", is_flag=True, help=does)
        return applied(option(command))

    return add


def writer_options(
    options: tuple[str, ...], *, apply: bool, own: Collection[str], flags: str
) -> dict[str, str]:
    """Return the writer's options by name.

    Args:
        options: Each as NAME=VALUE.
        apply: Whether ``--apply`` is given.
        own: Names of the options that flags of the command set.
        flags: These flags, for the error.

    Raises:
        ConfigError: One has another form or such a name; or there are some without ``--apply``.
    """
    if options and not apply:
        raise ConfigError("--option is given without --apply, which alone takes a lock")
    parsed: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ConfigError(f"--option is {option!r}; allowed: NAME=VALUE")
        if not name.startswith(_PREFIXES):
            raise ConfigError(
                f"--option sets {name!r}; allowed: options that begin with {' or '.join(_PREFIXES)}"
            )
        if name in own:
            raise ConfigError(f"--option sets {name}; allowed: {flags}")
        parsed[name] = value
    return parsed


def refuse_with_apply(columns: Sequence[str] | None, limit: int | None, *, apply: bool) -> None:
    """Refuse options of a preview's rows if its result is one row.

    Raises:
        ConfigError: One is given with ``--apply``.
    """
    given = [
        name for name, value in (("--columns", columns), ("--limit", limit)) if value is not None
    ]
    if apply and given:
        raise ConfigError(f"{given[0]} is given with --apply, which prints one row; allowed: alone")
