"""``Parameter``: a parameter of a route of ``/v2``; ``Refusal``: the error of a wrong one; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from timeline.storage.table_id import is_relative

_TEXT_CHARACTERS: Final = 4_096
"""Longest value but of base paths."""
SHOWN: Final = 200
"""Most characters of a client's text in an error."""


class Refusal(Exception):  # noqa: N818 - it is what the client is answered
    """A request that is answered with an error.

    Attributes:
        status: Of the reply.
        code: Of the error.
        message: One sentence.
        parameter: The parameter that is wrong, if one is.
        value: What it is; long ones are cut.
        allowed: What is allowed in its place.
        retry_after_s: After how many seconds to ask again; 0: the reply doesn't say.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        parameter: str | None = None,
        value: str | None = None,
        allowed: str | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.parameter = parameter
        self.value = value if value is None or len(value) <= SHOWN else f"{value[:SHOWN]}..."
        self.allowed = allowed
        self.retry_after_s = retry_after_s


def bad(parameter: str, value: str, allowed: str, code: str = "bad_parameter") -> Refusal:
    """Return the refusal of a parameter's value."""
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    message = f"{parameter} is {shown!r}; allowed: {allowed}"
    return Refusal(400, code, message, parameter=parameter, value=value, allowed=allowed)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query string.

    Attributes:
        name: Its name.
        doc: What it means, for people.
        kind: ``text``, ``table``, ``instant``, ``flag``, ``count`` or ``seconds``.
        default: The value if it is missing; ``None``: none.
        bounds: Least and greatest value of a count or of seconds.
        choices: The allowed texts; empty: any.
        required: Whether it must be given.
        longest: Most characters of a text.
    """

    name: str
    doc: str
    kind: str = "text"
    default: Any = None
    bounds: tuple[float, float] = (0, 0)
    choices: tuple[str, ...] = ()
    required: bool = False
    longest: int = _TEXT_CHARACTERS

    @property
    def allowed(self) -> str:
        """What is allowed, for a message."""
        least, most = self.bounds
        return {
            "flag": "true, false, or no value for true",
            "count": f"{least:.0f} to {most:.0f}",
            "seconds": f"{least:g} to {most:g} seconds",
            "instant": "the requested time of an instant, 14 or 17 digits",
            "table": "a URL, or a path that begins with '/'",
            "text": ", ".join(self.choices)
            or f"at most {self.longest} characters, none of them NUL",
        }[self.kind]

    def read(self, text: str) -> Any:
        """Return the value that a text means.

        Raises:
            Refusal: It isn't allowed.
        """
        value: Any = text
        if self.kind == "flag":
            value = _FLAGS.get(text.lower())
        elif self.kind in ("count", "seconds"):
            value = _number(text, whole=self.kind == "count")
            if value is not None and not self.bounds[0] <= value <= self.bounds[1]:
                value = None
        elif self.kind == "instant":
            value = text if _INSTANT.fullmatch(text) else None
        elif not self._takes(text):
            value = None
        if value is None:
            raise bad(self.name, text, self.allowed)
        return value

    def _takes(self, text: str) -> bool:
        if len(text) > self.longest or "\0" in text:
            return False
        if self.kind == "table":
            return bool(text) and not is_relative(text)
        return text in (self.choices or (text,))

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        if self.kind == "flag":
            # An empty value counts as true: ``?summary``.
            found: dict[str, Any] = {"type": "string", "enum": ["true", "false", ""]}
        elif self.kind in ("count", "seconds"):
            kind = "integer" if self.kind == "count" else "number"
            found = {"type": kind, "minimum": self.bounds[0], "maximum": self.bounds[1]}
        elif self.kind == "instant":
            found = {"type": "string", "pattern": f"^{_INSTANT.pattern}$"}
        else:
            found = {"type": "string", "maxLength": self.longest}
            if self.choices:
                found = {"type": "string", "enum": [*self.choices]}
        default = self.default
        if default is not None:
            found["default"] = str(default).lower() if self.kind == "flag" else default
        return found


_FLAGS: Final = {"": True, "true": True, "false": False}
_INSTANT: Final = re.compile("[0-9]{14}([0-9]{3})?")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def _number(text: str, *, whole: bool) -> float | None:
    if not _NUMBER.fullmatch(text) or (whole and "." in text):
        return None
    return int(text) if whole else float(text)
