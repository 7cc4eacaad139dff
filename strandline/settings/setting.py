"""``Setting``: name, type, default, range and doc of one; ``Settings``: the values of options.

Options arrive as text from Spark, properties files, environment variables and flags.
``Settings.parse`` converts them once, at the edge; code below sees typed values only.

A part that has settings declares them in its module, and a frozen dataclass whose fields have their
values: ``Setting.field`` gives a field its setting, and so its default, and ``Settings.read`` fills
the dataclass. There are three registries, one for each reader, made of its modules by ``declared``:
``SERVICE_SETTINGS``, ``SERVE_SETTINGS`` and ``WRITER_SETTINGS``.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar, cast, overload

from timeline.errors import ConfigError

T = TypeVar("T")
V = TypeVar("V")

SettingScope = Literal["service", "table", "client", "executor"]
Unit = Literal["", "ms", "s", "bytes", "threads"]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_TYPE_NAMES: Final[Mapping[type[object], str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
}
REFUSAL_CHARACTERS: Final = 250
"""Maximum length of an error message about a setting, to fit one line of a terminal or log."""
_SUBJECT_CHARACTERS: Final = 100
"""Room for name and value in every such message, even if the allowed values fill the line."""
_CUT: Final = "..."
_SETTING: Final = "setting"
_CONVERT: Final = "convert"
_SECRET_WORDS: Final = ("token", "secret", "password", "credential", "access.key")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row of a table of settings.

    Attributes:
        name: Full name of the option.
        default: Value when the option is absent; its type is the setting's type.
        doc: One sentence for docs/reference.md.
        scope: The component that reads it.
        unit: Unit of a number; empty for a plain count or text. A name that ends with ``.secs`` or
            ``_ms`` says it itself.
        allowed: Allowed values as text, compared case-insensitively. Empty: any value.
        minimum: Lower bound of a number, inclusive.
        maximum: Upper bound of a number, inclusive.
        secret: Whether the value must not be shown; ``None`` decides by the name.
        instead: What happens instead of what other values ask for, in messages that refuse them.
    """

    name: str
    default: T
    doc: str
    scope: SettingScope
    unit: Unit = ""
    allowed: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool | None = None
    instead: str = ""

    def __post_init__(self) -> None:
        if not self.unit:
            named = {".secs": "s", "_ms": "ms"}
            unit = next((unit for end, unit in named.items() if self.name.endswith(end)), "")
            object.__setattr__(self, "unit", unit)  # a frozen value's own field, while it is made

    @overload
    def field(self) -> T: ...

    @overload
    def field(self, convert: Callable[[T], V]) -> V: ...

    def field(self, convert: Callable[[T], Any] = lambda value: value) -> Any:
        """Declare the field of a dataclass that has this setting's value, for ``Settings.read``.

        Args:
            convert: Makes the field's value of the setting's, and its default of the default.
        """
        return dataclasses.field(
            default=convert(self.default), metadata={_SETTING: self, _CONVERT: convert}
        )

    @property
    def type_name(self) -> str:
        """Name of the type, for documentation and messages."""
        return _TYPE_NAMES[type(self.default)]

    @property
    def is_secret(self) -> bool:
        """Whether the value must not be shown."""
        return _is_secret(self.name) if self.secret is None else self.secret

    def parse(self, text: str, called: str = "") -> T:
        """Parse a value.

        Args:
            text: The option's text.
            called: Name to use in messages, such as a flag or an environment variable; defaults to
                the setting's name.

        Raises:
            ConfigError: The value isn't allowed; the message names the setting, the value and what
                is allowed.
        """
        try:
            value = self._allowed_value(_convert(text.strip(), type(self.default)))
        except ValueError:
            shown = "***" if self.is_secret else repr(text)
            allowed = f"; allowed: {self.describe_allowed()}"
            allowed += f" ({self.instead})" if self.instead else ""
            raise refusal(called or self.name, shown, allowed) from None
        return cast("T", value)

    def _allowed_value(self, value: bool | int | float | str) -> bool | int | float | str:
        """Return the value, text as ``allowed`` spells it, or raise ``ValueError``."""
        if self.allowed:
            spellings = {spelling.lower(): spelling for spelling in self.allowed}
            spelling = spellings.get(as_text(value).lower())
            if spelling is None:
                raise ValueError(value)
            return spelling if isinstance(value, str) else value
        if not isinstance(value, str):
            least = -math.inf if self.minimum is None else self.minimum
            greatest = math.inf if self.maximum is None else self.maximum
            if not least <= value <= greatest:  # NaN fails this, too
                raise ValueError(value)
        return value

    def describe_allowed(self) -> str:
        """Return the allowed values in words."""
        if self.allowed:
            return ", ".join(spelling or "''" for spelling in self.allowed)
        if isinstance(self.default, bool):
            return "true, false"
        words = f"{self.type_name} in {self.unit}" if self.unit else self.type_name
        if self.minimum is not None and self.maximum is not None:
            return f"{words}, {self.minimum:.12g} to {self.maximum:.12g}"
        if self.minimum is not None:
            return f"{words}, {self.minimum:.12g} or more"
        return words


@dataclass(frozen=True, slots=True)
class ServiceSetting(Setting[T]):
    """A setting that a service, for all its tables, reads."""

    scope: SettingScope = "service"


@dataclass(frozen=True, slots=True)
class TableSetting(Setting[T]):
    """A setting that whoever writes to the table reads."""

    scope: SettingScope = "table"


@dataclass(frozen=True, slots=True)
class ClientSetting(Setting[T]):
    """A setting that the writing client in the driver reads."""

    scope: SettingScope = "client"


@dataclass(frozen=True, slots=True)
class ExecutorSetting(Setting[T]):
    """A setting that each of the executors reads."""

    scope: SettingScope = "executor"


def _convert(text: str, kind: type[object]) -> bool | int | float | str:
    """Return ``text`` converted to ``kind``, or raise ``ValueError``."""
    if kind is bool:
        lowered = text.lower()
        if lowered not in _TRUE | _FALSE:
            raise ValueError(text)
        return lowered in _TRUE
    if kind is int:
        return int(text)
    return float(text) if kind is float else text


def declared(*places: ModuleType | Mapping[str, object]) -> tuple[Setting[Any], ...]:
    """Return the settings of modules, in order, each once.

    Args:
        places: The modules; one that asks for its own settings gives its ``globals()``.
    """
    namespaces = (vars(each) if isinstance(each, ModuleType) else each for each in places)
    found = (value for space in namespaces for value in space.values())
    # Modules also have settings that they import.
    return tuple({id(each): each for each in found if isinstance(each, Setting)}.values())


def settings_of(kind: type[object]) -> tuple[Setting[Any], ...]:
    """Return the settings of a dataclass's fields."""
    fields = dataclasses.fields(cast("Any", kind))
    return tuple(each.metadata[_SETTING] for each in fields if _SETTING in each.metadata)


def seconds(milliseconds: float) -> float:
    """Return a time in seconds, for the field of a setting in milliseconds."""
    return milliseconds / 1000


def shortened(text: str, characters: int = REFUSAL_CHARACTERS) -> str:
    """Return the text, with its middle cut out if it exceeds ``characters``.

    Both ends are kept because they carry the subject and the reason of a message.
    """
    if len(text) <= characters:
        return text
    kept = characters - len(_CUT)
    return f"{text[: kept - kept // 2]}{_CUT}{text[len(text) - kept // 2 :]}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one, for a hint; ``None``: none is."""
    names = list(known)
    alike = [each for each in names if each.lower() == name.lower()]
    return next(iter(alike or difflib.get_close_matches(name, names, 1, 0.6)), None)


def refusal(called: str, shown: str, why: str) -> ConfigError:
    """Return the error for a setting's value.

    It has at most ``REFUSAL_CHARACTERS``; if ``why`` leaves less than ``_SUBJECT_CHARACTERS`` for
    the name and the value, these get that many, and the message is longer.

    Args:
        called: Name of the setting as the user gave it; shortened to leave room for the value.
        shown: The value, secrets masked; shortened to fit.
        why: End of the message; never shortened.
    """
    room = max(REFUSAL_CHARACTERS - len(" is ") - len(why), _SUBJECT_CHARACTERS)
    value = shortened(shown, max(room - len(called), min(len(shown), room // 2)))
    return ConfigError(f"{shortened(called, room - len(value))} is {value}{why}")


class Refusals:
    """Refused options of one caller, raised as one error; used by one thread."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a refusal that the block raises; the rest of the block is skipped."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def add(self, *errors: ConfigError) -> None:
        """Keep refusals."""
        self._errors += errors

    def raise_any(self) -> None:
        """Raise the kept refusals.

        Raises:
            ConfigError: A single refusal unchanged; several as one error, one a line, followed by
                the hint if all have the same.
        """
        unique = {str(error): error for error in self._errors}
        if len(unique) == 1:
            raise next(iter(unique.values()))
        if unique:
            hints = {error.hint for error in unique.values()}
            shared = hints.pop() if len(hints) == 1 else None
            lines = [error.message if shared else text for text, error in unique.items()]
            head = f"{len(lines)} refusals:"
            raise ConfigError("\n- ".join([head, *lines]), hint=shared)


def as_text(value: object) -> str:
    """Return a value as a user would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def masked(name: str, value: object) -> str:
    """Return the value as text, or ``***`` if the name suggests a secret."""
    return "***" if _is_secret(name) else str(value)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


class Settings:
    """Typed values of parsed options.

    Attributes:
        other: Options that no setting of the table matches, as text. Spark jobs pass many that are
            meant for other libraries.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        other: Mapping[str, str],
        given_as: Mapping[str, str] | None = None,
    ) -> None:
        self._values = dict(values)
        self._given_as = dict(given_as or {})
        self.other = dict(other)

    @classmethod
    def parse(
        cls,
        options: Mapping[str, object],
        table: Iterable[Setting[Any]],
        given_as: Mapping[str, str] | None = None,
        refusals: Refusals | None = None,
    ) -> Settings:
        """Parse the options that match a setting of ``table``.

        Args:
            options: Name → value; values other than text are converted by ``str``.
            table: Known settings.
            given_as: Name of an option → the alias under which the user gave it, for messages.
            refusals: Collects the values that aren't allowed, which count as not given; without it
                they are raised.

        Raises:
            ConfigError: Values aren't allowed.
        """
        refused = Refusals() if refusals is None else refusals
        known = {setting.name: setting for setting in table}
        values: dict[str, object] = {}
        other: dict[str, str] = {}
        for name, value in options.items():
            setting = known.get(name)
            if setting is None:
                other[name] = str(value)
            elif value is not None:
                called = (given_as or {}).get(name, name)
                with refused.kept():
                    values[name] = setting.parse(str(value), called)
        if refusals is None:
            refused.raise_any()
        return cls(values, other, given_as)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of ``setting``, or its default."""
        return cast("T", self._values.get(setting.name, setting.default))

    def read(self, kind: type[V], **others: object) -> V:
        """Return a dataclass whose fields have the values of their settings.

        Args:
            kind: The dataclass.
            others: Values of other fields, or instead of the settings'.
        """
        given = {
            each.name: each.metadata[_CONVERT](self.get(each.metadata[_SETTING]))
            for each in dataclasses.fields(cast("Any", kind))
            if _SETTING in each.metadata and each.name not in others
        }
        return kind(**given, **others)

    def overridden(self, others: Settings) -> Settings:
        """Return these values, with others' in place of those that both have."""
        return Settings({**self._values, **others._values}, self.other, self._given_as)

    def called(self, setting: Setting[T]) -> str:
        """Return the name under which the options contained a setting, for messages."""
        return self._given_as.get(setting.name, setting.name)

    def is_set(self, setting: Setting[T]) -> bool:
        """Whether the options contained this setting."""
        return setting.name in self._values

    def shown(self, table: Iterable[Setting[Any]]) -> dict[str, dict[str, str]]:
        """Return name → ``value`` and ``from`` (``option`` or ``default``) for a table of settings.

        Secrets are masked, so the result may be logged and shown on status pages.
        """
        return {
            setting.name: {
                "value": "***" if setting.is_secret and is_set else as_text(self.get(setting)),
                "from": "option" if is_set else "default",
            }
            for setting in sorted(table, key=lambda setting: setting.name)
            for is_set in (self.is_set(setting),)
        }
