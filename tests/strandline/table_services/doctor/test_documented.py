"""docs/doctor.md describes each code, with its severity, what to do, and whether it is repaired."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.table_services.doctor.finding import FAULTS, FINDINGS_SCHEMA
from tests.strandline.table_services.doctor.planted import PLANTS

PAGE = (Path(__file__).parents[4] / "docs/doctor.md").read_text("utf-8")


def test_every_code_is_documented():
    sections = re.split(r"^### `(.+)`$", PAGE, flags=re.MULTILINE)[1:]
    described = dict(zip(sections[::2], sections[1::2], strict=True))
    assert set(described) == set(FAULTS)
    repaired = {plant.code for plant in PLANTS if plant.fixable}
    for code, text in described.items():
        assert text.strip().startswith(f"{FAULTS[code].severity.value.capitalize()}. "), code
        assert ("*Repaired*: " in text) == (code in repaired), code
        assert "*Do*: " in text or "*Repaired*: " in text, code


def test_every_column_is_documented():
    names = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", PAGE, re.MULTILINE)
    types = {"string": "string", "list of string": "list<element: string>"}
    assert [name for name, _ in names] == FINDINGS_SCHEMA.names
    for name, kind in names:
        assert str(FINDINGS_SCHEMA.field(name).type) in (
            types.get(kind, kind),
            kind,
            "list<item: string>",
        )
