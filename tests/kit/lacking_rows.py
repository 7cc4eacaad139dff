"""A plain model of rows that lack values, merged one after the other, and rows to try it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from strandline.records.merge_rule import FILL_UNAVAILABLE, IGNORE_DEFAULTS, MergeProperties

MARKER: Final = "__none__"
FILLABLE: Final = ("v", "b", "tags")
PROPERTIES: Final = {
    IGNORE_DEFAULTS: MergeProperties(mode=IGNORE_DEFAULTS),
    FILL_UNAVAILABLE: MergeProperties(mode=FILL_UNAVAILABLE, unavailable=MARKER),
}

VALUES: Final = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 4),
        "v": st.sampled_from([None, MARKER, "x", "y", "z"]),
        "b": st.sampled_from([None, MARKER.encode(), b"x", b"y"]),
        "tags": st.none() | st.lists(st.sampled_from([MARKER, "p"]), max_size=2),
        "_hoodie_is_deleted": st.sampled_from([None, False, False, False, True]),
    }
)


@dataclass(frozen=True)
class LackingModel:
    """Hudi's rule; a row is a dict, and the ordering column isn't a 32-bit integer."""

    event_time: bool
    mode: str

    def lacks(self, name: str, value: Any) -> bool:
        if self.mode == IGNORE_DEFAULTS:
            return value is None
        return value == (MARKER.encode() if name == "b" else MARKER)

    def wins(self, newer: dict[str, Any], older: dict[str, Any]) -> bool:
        return not self.event_time or newer["ts"] >= older["ts"]

    def merge(self, newer: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
        upper, lower = (newer, older) if self.wins(newer, older) else (older, newer)
        if upper["_hoodie_is_deleted"] or lower["_hoodie_is_deleted"]:
            return upper
        names = FILLABLE if self.mode == FILL_UNAVAILABLE else (*FILLABLE, "_hoodie_is_deleted")
        filled = {name: lower[name] for name in names if self.lacks(name, upper[name])}
        return {**upper, **filled}

    def fold(self, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return key → what the rows with it merge to, oldest first."""
        found: dict[str, dict[str, Any]] = {}
        for row in rows:
            older = found.get(row["id"])
            found[row["id"]] = row if older is None else self.merge(row, older)
        return found

    def changes(self, newer: dict[str, Any], stored: dict[str, Any]) -> bool:
        """Whether a stored row that isn't removed gets the newer row's instant."""
        if self.wins(newer, stored):
            return True
        names = FILLABLE if self.mode == FILL_UNAVAILABLE else (*FILLABLE, "_hoodie_is_deleted")
        return not newer["_hoodie_is_deleted"] and any(self.lacks(n, stored[n]) for n in names)
