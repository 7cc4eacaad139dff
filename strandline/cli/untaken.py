"""Why a command of tables doesn't take an option that others take, for its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NOW: Final = "it is about the table as it is now"
_OF_A_TIME: Final = f"{_NOW}; history --until TIME shows what was before"
_SINCE: Final = "incremental --since has the rows that later commits wrote, history --since these"
_NO_ROWS: Final = (
    "it lists neither rows nor partitions; other programs filter its --output jsonl or csv"
)
_ONE: Final = "it answers with one row"
_UNASKED: Final = "a service isn't asked for tables below a root"
_PREVIEWS: Final = ("archive", "clean", "compact")

UNTAKEN: Final[Mapping[str, Mapping[str, str]]] = {
    "--as-of": {
        "history": "it has all instants; --since and --until choose among them",
        "commit": "INSTANT chooses the commit; history --until TIME has those of a time",
        "incremental": "--until is the time at which its rows are read",
        "properties": "hoodie.properties has no earlier versions",
        "inspect": "it shows what is there now; slices --as-of, history --until are of a time",
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--since": {
        **dict.fromkeys(("count", "files", "partitions", "read", "slices", "stats"), _SINCE),
        **dict.fromkeys(("commit", "inspect"), "history --since lists what happened since"),
        **dict.fromkeys(("properties", "schema"), "they have no changes listed; see history"),
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--until": {
        **dict.fromkeys(
            ("count", "files", "partitions", "read", "schema", "slices", "stats"),
            "--as-of is the time that it is read at",
        ),
        **dict.fromkeys(("commit", "inspect"), "history --until lists what happened until then"),
        "properties": "hoodie.properties has no earlier versions",
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--filter": {
        "inspect": f"{_NO_ROWS}; --partition is for log-files",
        "properties": "NAMES choose the properties",
        "why": _ONE,
        **dict.fromkeys(
            (*_PREVIEWS, "commit", "doctor", "history", "pins", "schema", "tables"), _NO_ROWS
        ),
    },
    "--columns": {
        "count": "it prints a number",
        "properties": "NAMES choose the properties",
        "why": _ONE,
    },
    "--limit": {"properties": "NAMES choose the properties", "why": _ONE},
    "--service": {"tables": _UNASKED},
    "--token-file": {"tables": _UNASKED},
}
"""Option → command → why it doesn't take it."""


def why_untaken(command: str, option: str) -> str:
    """Return the message for an option that a command doesn't take; ``""`` if nothing is known."""
    why = UNTAKEN.get(option, {}).get(command)
    return "" if why is None else f"{command} takes no {option}: {why}"
