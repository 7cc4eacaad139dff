"""Where the settings of ``strandline serve`` come from: a flag, a variable, a file.

A setting has up to three spellings:

* its flag, as ``strandline.settings.command_line.FLAGS`` has it;
* a variable of the environment: ``STRANDLINE_`` and the name in capitals with ``_`` for ``.``, less
  a leading ``strandline.``: ``STRANDLINE_SERVE_PORT``, ``STRANDLINE_HOODIE_FILESYSTEM_VIEW_TYPE``;
* its name, in the file that ``--config`` names: Java's properties text, in UTF-8.

A flag goes before a variable, a variable before the file, the file before the default. All are
read, and what isn't known or allowed is refused wherever it stands, also where it is overruled.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from strandline.settings.command_line import CONFIG, FLAGS
from strandline.settings.setting import Setting, Settings, masked, refusal
from timeline.encoding.java_properties import parse_properties
from timeline.errors import ConfigError

T = TypeVar("T")
Source = Literal["flag", "environment", "file", "default"]

_SETTINGS: Final = {setting.name: setting for flag in FLAGS for setting in flag.settings}
_LISTS: Final = {setting.name for flag in FLAGS if flag.repeated for setting in flag.settings}


def variable(setting: Setting[Any]) -> str:
    """Return the name that a setting has in the environment."""
    return _PREFIX + setting.name.removeprefix("strandline.").replace(".", "_").upper()


_PREFIX: Final = "STRANDLINE_"
_BY_VARIABLE: Final = {variable(setting): setting for setting in _SETTINGS.values()}
_LINK: Final = re.compile(
    r"STRANDLINE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into every container for a Service of this name."""


@dataclass(frozen=True, slots=True)
class _Said:
    """One setting as somebody gave it."""

    setting: Setting[Any]
    key: str
    source: Source
    parts: tuple[str, ...]


class ServeSettings:
    """What ``serve`` was told: values, and where each came from."""

    def __init__(self, said: Mapping[str, _Said]) -> None:
        self._said = said
        self.values = Settings.parse(
            {name: ",".join(one.parts) for name, one in said.items()}, _SETTINGS.values()
        )

    @classmethod
    def read(
        cls, flags: Mapping[str, str | tuple[str, ...]], environment: Mapping[str, str]
    ) -> ServeSettings:
        """Read all sources.

        Args:
            flags: By ``Flag.key``, those that were given.
            environment: Of the process.

        Raises:
            ConfigError: A setting isn't known or its value not allowed; or the file can't be read.
        """
        above = (*_of_environment(environment), *_of_flags(flags))
        named = [one for one in above if one.setting is CONFIG]
        from_file = tuple(_of_file(named[-1])) if named else ()
        said: dict[str, _Said] = {}
        for one in (*from_file, *above):
            for part in one.parts:
                one.setting.parse(part, one.key)
                if "\0" in part:
                    raise refusal(one.key, "text with a NUL", "; allowed: text without one")
            said[one.setting.name] = one
        return cls(said)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of a setting."""
        return self.values.get(setting)

    def many(self, setting: Setting[str]) -> tuple[str, ...]:
        """Return the parts of a setting that is a list."""
        said = self._said.get(setting.name)
        return () if said is None else said.parts

    def source(self, setting: Setting[Any]) -> Source:
        """Return where a setting's value is from."""
        said = self._said.get(setting.name)
        return "default" if said is None else said.source

    def key(self, setting: Setting[Any]) -> str:
        """Return what whoever gave a setting calls it; its name when nobody did."""
        said = self._said.get(setting.name)
        return setting.name if said is None else said.key

    def redacted(self) -> dict[str, dict[str, str]]:
        """Return every setting by name, with its value and where that is from; secrets as stars."""
        shown_ones = self.values.shown(_SETTINGS.values())
        return {
            name: {**row, "from": self.source(_SETTINGS[name])} for name, row in shown_ones.items()
        }


def _of_flags(flags: Mapping[str, str | tuple[str, ...]]) -> Iterator[_Said]:
    for flag in FLAGS:
        if flag.key not in flags:
            continue
        given = flags[flag.key]
        parts = (given,) if isinstance(given, str) else given
        for setting in flag.settings:
            yield _Said(setting, flag.name, "flag", tuple(map(flag.text, parts)))


def _of_environment(environment: Mapping[str, str]) -> Iterator[_Said]:
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environment
    for name, text in environment.items():
        if not name.startswith(_PREFIX):
            continue
        setting = _BY_VARIABLE.get(name)
        if setting is not None:
            yield _Said(setting, name, "environment", _parts(setting, text))
        elif not (in_kubernetes and _LINK.fullmatch(name)):
            raise _unknown(f"the variable {name}", name, text, tuple(_BY_VARIABLE))


def _of_file(config: _Said) -> Iterator[_Said]:
    path = Path(",".join(config.parts))
    try:
        options = parse_properties(path.read_bytes().decode("utf-8-sig"))
    except OSError as exc:
        raise ConfigError(f"{config.key} {path}: {exc.strerror or 'not readable'}") from exc
    except ValueError as exc:
        raise ConfigError(f"{config.key} {path}: it must be Java's properties in UTF-8") from exc
    known = {name: setting for name, setting in _SETTINGS.items() if setting is not CONFIG}
    for name, text in options.items():
        setting = known.get(name)
        if setting is None:
            raise _unknown(f"{path}: {name}", name, text, tuple(known))
        yield _Said(setting, f"{path}: {name}", "file", _parts(setting, text))


def _parts(setting: Setting[Any], text: str) -> tuple[str, ...]:
    if setting.name not in _LISTS:
        return (text,)
    return tuple(part.strip() for part in text.split(","))


def _unknown(where: str, name: str, text: str, known: tuple[str, ...]) -> ConfigError:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    meant = f" (did you mean {near[0]}?)" if near else ""
    why = f", and no setting{meant}; allowed: those in docs/reference.md"
    return refusal(where, masked(name, repr(text)), why)
