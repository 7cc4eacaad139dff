"""What a setting is: a row of a table, and options that were read by it.

Options reach us as text, as Spark, properties files, variables and flags give them;
``Settings.parse`` turns them into values once, at the door, and nothing below looks at raw options
or into the environment. The rows are in ``strandline.settings.service``,
``strandline.write.settings`` and ``strandline.settings.command_line``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

from timeline.errors import ConfigError

T = TypeVar("T")

Scope = Literal["service", "table", "client", "executor"]
Unit = Literal["", "ms", "s", "bytes", "rows", "threads", "days"]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_TYPE_NAMES: Final[Mapping[type[object], str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
}
REFUSAL_CHARACTERS: Final = 250
"""Longest text about a setting that is refused, which belongs on one line of a terminal or log."""
_CUT: Final = "..."
_SECRET_WORDS: Final = ("token", "secret", "password", "credential", "access.key")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row of the table.

    Attributes:
        name: The option's full name.
        default: Its value when the option is absent; its type is the setting's type.
        doc: One sentence for the reader of the documentation.
        scope: Who reads it.
        unit: Of a number; empty for a plain count or for text.
        allowed: The values that a text may have; compared without regard to case. Empty: any.
        minimum: The least value that a number may have.
        maximum: The greatest.
        secret: Whether its value must not be shown; ``None``: when the name sounds like it.
    """

    name: str
    default: T
    doc: str
    scope: Scope
    unit: Unit = ""
    allowed: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool | None = None

    @property
    def type_name(self) -> str:
        """The type as the documentation calls it."""
        return _TYPE_NAMES[type(self.default)]

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return _is_secret(self.name) if self.secret is None else self.secret

    def parse(self, text: str, called: str = "") -> T:
        """Return the value that ``text`` stands for.

        Args:
            text: As it was given.
            called: What whoever gave it calls the setting (a flag, a variable); else its name.

        Raises:
            ConfigError: It isn't a value of this setting; the message names the setting, the value
                and what is allowed.
        """
        try:
            value = _convert(text.strip(), type(self.default))
        except ValueError:
            raise self._refusal(text, called) from None
        if isinstance(value, str):
            value = self._one_of(value, called)
        elif not self._in_range(value):
            raise self._refusal(text, called)
        return cast("T", value)

    def _in_range(self, value: float) -> bool:
        """Whether a number lies between the bounds; NaN doesn't."""
        least = -math.inf if self.minimum is None else self.minimum
        greatest = math.inf if self.maximum is None else self.maximum
        return least <= value <= greatest

    def _one_of(self, value: str, called: str) -> str:
        if not self.allowed:
            return value
        for name in self.allowed:
            if name.lower() == value.lower():
                return name
        raise self._refusal(value, called)

    def _refusal(self, text: str, called: str) -> ConfigError:
        shown = "***" if self.is_secret else repr(text)
        return refusal(called or self.name, shown, f"; allowed: {self.describe_allowed()}")

    def describe_allowed(self) -> str:
        """Return in words what the setting may be."""
        if self.allowed:
            return ", ".join(self.allowed)
        if isinstance(self.default, bool):
            return "true, false"
        words = f"{self.type_name} in {self.unit}" if self.unit else self.type_name
        if self.minimum is not None and self.maximum is not None:
            return f"{words}, {self.minimum:.12g} to {self.maximum:.12g}"
        if self.minimum is not None:
            return f"{words}, {self.minimum:.12g} or more"
        return words


def _convert(text: str, kind: type[object]) -> bool | int | float | str:
    """Return ``text`` as a value of ``kind``, or raise ``ValueError``."""
    if kind is bool:
        lowered = text.lower()
        if lowered not in _TRUE | _FALSE:
            raise ValueError(text)
        return lowered in _TRUE
    if kind is int:
        return int(text)
    return float(text) if kind is float else text


def shortened(text: str, characters: int = REFUSAL_CHARACTERS) -> str:
    """Return a text of at most so many characters, cut in its middle if it is longer.

    The ends say what it is about and what is wrong: a flag and a reason, a file and a name in it.
    """
    if len(text) <= characters:
        return text
    kept = characters - len(_CUT)
    return f"{text[: kept - kept // 2]}{_CUT}{text[len(text) - kept // 2 :]}"


def refusal(called: str, shown: str, why: str) -> ConfigError:
    """Return the refusal of a setting, in ``REFUSAL_CHARACTERS``.

    Args:
        called: What whoever gave it calls the setting; cut if it leaves no room for the value.
        shown: The value, as it may be shown; cut if the rest leaves less room.
        why: What follows; never cut.
    """
    room = REFUSAL_CHARACTERS - len(" is ") - len(why)
    value = shortened(shown, max(room - len(called), min(len(shown), room // 2)))
    return ConfigError(f"{shortened(called, room - len(value))} is {value}{why}")


def as_text(value: object) -> str:
    """Return a value as one would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def masked(name: str, value: object) -> str:
    """Return a value as it may be shown, going by its name: the text, or stars."""
    return "***" if _is_secret(name) else str(value)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


class Settings:
    """Options that were read once: typed values by setting, and what no setting claims.

    Attributes:
        other: Options that aren't in the table, as they came; Spark jobs bring many for others.
    """

    def __init__(self, values: Mapping[str, object], other: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.other = dict(other)

    @classmethod
    def parse(cls, options: Mapping[str, object], table: Iterable[Setting[Any]]) -> Settings:
        """Read the options that ``table`` knows.

        Args:
            options: Name to text; a value that isn't text is taken as ``str(value)``.
            table: Settings to look for.

        Raises:
            ConfigError: A value isn't allowed.
        """
        known = {setting.name: setting for setting in table}
        values: dict[str, object] = {}
        other: dict[str, str] = {}
        for name, value in options.items():
            setting = known.get(name)
            if setting is None:
                other[name] = str(value)
            elif value is not None:
                values[name] = setting.parse(str(value))
        return cls(values, other)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of ``setting``: the option's, or the default."""
        return cast("T", self._values.get(setting.name, setting.default))

    def is_set(self, setting: Setting[T]) -> bool:
        """Whether the options named this setting."""
        return setting.name in self._values

    def redacted(self) -> Iterator[tuple[str, str]]:
        """Yield what was set, by name, with secrets starred out; for logs and status pages."""
        for name in sorted({**self._values, **self.other}):
            value = self._values.get(name, self.other.get(name))
            yield name, masked(name, value)

    def shown(self, table: Iterable[Setting[Any]]) -> dict[str, dict[str, str]]:
        """Return the settings of a table by name: the value, and whether an option gave it.

        Secrets are starred out, so that it may be logged and shown on status pages.
        """
        return {
            setting.name: {
                "value": "***" if setting.is_secret and is_set else as_text(self.get(setting)),
                "from": "option" if is_set else "default",
            }
            for setting in sorted(table, key=lambda setting: setting.name)
            for is_set in (self.is_set(setting),)
        }
