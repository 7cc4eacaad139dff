"""``tables.toml``: names of tables, with what opening them needs.

It lies in ``strandline`` below ``$XDG_CONFIG_HOME``, or ``~/.config``, and has a section a table::

    [trips]
    path = "s3://lake/trips"
    service = "http://lake-service:26754"
    token_file = "~/.config/strandline/token"

    [trips.storage_options]
    key = "…"
    secret = "…"

Only ``path`` is required. Where it has storage options, no other user may read the file.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from strandline.settings.setting import nearest
from timeline.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OPTIONS: Final = "storage_options"


@dataclass(frozen=True, slots=True)
class NamedTable:
    """What the file says about a table.

    Attributes:
        path: A path or a URL.
        storage_options: Options of fsspec.
        service: URL of a timeline service that serves the table.
        token_file: File with the service's token.
    """

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    service: str | None = None
    token_file: str | None = None


def tables_file(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file, whether it exists or not.

    Args:
        environment: The variables; ``None`` for the process's.
    """
    variables = os.environ if environment is None else environment
    config = variables.get("XDG_CONFIG_HOME") or "~/.config"
    # Unlike Path's, it leaves ~ as it is for a user without a home, as in containers.
    return Path(os.path.expanduser(config)) / "strandline" / "tables.toml"


def named_tables(path: Path) -> dict[str, NamedTable]:
    """Return the tables of the file by name; none if it doesn't exist.

    Raises:
        ConfigError: It can't be read, isn't TOML, says something else, or has storage options and
            other users may read it; the message says what to do.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            found = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} isn't TOML: {error}") from error
    tables = {name: _table(path, name, entry) for name, entry in found.items()}
    if mode & (stat.S_IRGRP | stat.S_IROTH) and any(t.storage_options for t in tables.values()):
        raise ConfigError(
            f"{path} has {_OPTIONS}, and its mode {mode:04o} lets other users read them",
            hint=f"run: chmod 600 {path}",
        )
    return tables


def _table(path: Path, name: str, entry: Any) -> NamedTable:
    where = f"[{name}] of {path}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{name} in {path} is no section; allowed: [{name}], and its path below")
    allowed = [each.name for each in fields(NamedTable)]
    for key, value in entry.items():
        if key not in allowed:
            near = nearest(key, allowed)
            hint = f"the nearest is {near}" if near else f"allowed: {', '.join(allowed)}"
            raise ConfigError(f"{where} has no key {key!r}", hint=hint)
        kind = dict if key == _OPTIONS else str
        if not isinstance(value, kind) or not (value or kind is dict):
            # Not shown: it may be a secret.
            raise ConfigError(
                f"{key} in {where} is of type {type(value).__name__}; allowed:"
                f" {'a section' if kind is dict else 'text that is not empty'}"
            )
    if "path" not in entry:
        raise ConfigError(f"{where} has no path; allowed: a path or a URL")
    if "token_file" in entry and "service" not in entry:
        raise ConfigError(f"{where} has a token_file and no service, whose token it would be")
    return NamedTable(**entry)
