"""Sources of the settings of ``strandline serve``: flags, environment variables, a file.

A setting can be given as:

* its flag, a row of ``strandline.settings.command_line.FLAGS``;
* an environment variable: ``STRANDLINE_`` and the name without a leading ``strandline.``, in upper
  case with ``_`` for ``.``: ``STRANDLINE_SERVE_PORT``, ``STRANDLINE_HOODIE_FILESYSTEM_VIEW_TYPE``;
* its name in the file that ``--config`` gives: Java properties in UTF-8.

Flags override variables, variables override the file, the file overrides defaults. All sources are
read and checked: an unknown setting or a bad value is refused even if it is overridden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from strandline.settings.command_line import CONFIG, FLAGS, ServeOptions
from strandline.settings.setting import Setting, Settings, masked, nearest, refusal
from timeline.encoding.java_properties import parse_properties
from timeline.errors import ConfigError

T = TypeVar("T")
Source = Literal["flag", "environment", "file", "default"]

_SETTINGS: Final = {setting.name: setting for flag in FLAGS for setting in flag.settings}
_LISTS: Final = {setting.name for flag in FLAGS if flag.repeated for setting in flag.settings}


def variable(setting: Setting[Any]) -> str:
    """Return the name of a setting's environment variable."""
    return _PREFIX + setting.name.removeprefix("strandline.").replace(".", "_").upper()


_PREFIX: Final = "STRANDLINE_"
_BY_VARIABLE: Final = {variable(setting): setting for setting in _SETTINGS.values()}
_LINK: Final = re.compile(
    r"STRANDLINE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Variables that Kubernetes adds to every container for a Service named ``strandline``."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A setting as one source gives it; ``key`` is its name there, for messages."""

    setting: Setting[Any]
    key: str
    source: Source
    parts: tuple[str, ...]


class ServeSettings:
    """Settings of ``serve``: their values, and the source of each.

    Attributes:
        values: All of them.
        own: Those that only ``serve`` has.
    """

    def __init__(self, given: Mapping[str, _Given]) -> None:
        self._given = given
        self.values = Settings.parse(
            {name: ",".join(one.parts) for name, one in given.items()}, _SETTINGS.values()
        )
        self.own = self.values.read(ServeOptions)

    @classmethod
    def read(
        cls, flags: Mapping[str, str | tuple[str, ...]], environment: Mapping[str, str]
    ) -> ServeSettings:
        """Read all sources.

        Args:
            flags: ``Flag.key`` → value, or values if repeated; only flags that were given.
            environment: The process's environment variables.

        Raises:
            ConfigError: A setting is unknown, a value isn't allowed, or the file can't be read.
        """
        above = (*_of_environment(environment), *_of_flags(flags))
        named = [one for one in above if one.setting is CONFIG]
        from_file = tuple(_of_file(named[-1])) if named else ()
        given: dict[str, _Given] = {}
        for one in (*from_file, *above):
            for part in one.parts:
                one.setting.parse(part, one.key)
                if "\0" in part:
                    raise refusal(one.key, "text with a NUL", "; allowed: text without one")
            given[one.setting.name] = one
        return cls(given)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of a setting."""
        return self.values.get(setting)

    def many(self, setting: Setting[str]) -> tuple[str, ...]:
        """Return the elements of a list setting."""
        return self._of(setting).parts

    def source(self, setting: Setting[Any]) -> Source:
        """Return the source of a setting's value."""
        return self._of(setting).source

    def key(self, setting: Setting[Any]) -> str:
        """Return a setting's name in the source of its value, for messages."""
        return self._of(setting).key

    def _of(self, setting: Setting[Any]) -> _Given:
        return self._given.get(setting.name, _Given(setting, setting.name, "default", ()))

    def redacted(self) -> dict[str, dict[str, str]]:
        """Return name → ``value`` and ``from`` for every setting, with secrets masked."""
        shown = self.values.shown(_SETTINGS.values())
        return {name: {**row, "from": self.source(_SETTINGS[name])} for name, row in shown.items()}


def _of_flags(flags: Mapping[str, str | tuple[str, ...]]) -> Iterator[_Given]:
    for flag in FLAGS:
        if flag.key not in flags:
            continue
        given = flags[flag.key]
        parts = (given,) if isinstance(given, str) else given
        for setting in flag.settings:
            yield _Given(setting, flag.name, "flag", tuple(map(flag.text, parts)))


def _of_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environment
    for name, text in environment.items():
        if not name.startswith(_PREFIX):
            continue
        setting = _BY_VARIABLE.get(name)
        if setting is not None:
            yield _Given(setting, name, "environment", _parts(setting, text))
        elif not (in_kubernetes and _LINK.fullmatch(name)):
            raise _unknown(f"the variable {name}", name, text, tuple(_BY_VARIABLE))


def _of_file(config: _Given) -> Iterator[_Given]:
    path = Path(",".join(config.parts))
    try:
        options = parse_properties(path.read_bytes().decode("utf-8-sig"))
    except OSError as exc:
        raise ConfigError(f"{config.key} {path}: {exc.strerror or 'not readable'}") from exc
    except ValueError as exc:
        raise ConfigError(f"{config.key} {path}: not Java properties in UTF-8") from exc
    known = {name: setting for name, setting in _SETTINGS.items() if setting is not CONFIG}
    for name, text in options.items():
        setting = known.get(name)
        if setting is None:
            raise _unknown(f"{path}: {name}", name, text, tuple(known))
        yield _Given(setting, f"{path}: {name}", "file", _parts(setting, text))


def _parts(setting: Setting[Any], text: str) -> tuple[str, ...]:
    if setting.name not in _LISTS:
        return (text,)
    return tuple(part.strip() for part in text.split(","))


def _unknown(where: str, name: str, text: str, known: tuple[str, ...]) -> ConfigError:
    near = nearest(name, known)
    meant = "" if near is None else f" (did you mean {near}?)"
    why = f", but serve has no such setting{meant}; allowed: those in docs/reference.md"
    return refusal(where, masked(name, repr(text)), why)
