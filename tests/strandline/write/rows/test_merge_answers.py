"""Which row is left: the writer's answers to the cases that real Hudi has answered."""

from __future__ import annotations

import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.answers.merge_cases import (
    COMMIT,
    DATE,
    EVENT,
    FAILS,
    GONE,
    KINDS,
    answers,
    cases_of,
    stored_rows,
    tables,
    written_rows,
)
from tests.kit.tables import reader
from tests.strandline.write.tables import change_properties
from timeline.errors import InputError

OF_KIND = {**KINDS, "date": DATE}
LONG = pytest.mark.property
SHORT = [
    pytest.param(kind, version, mode, marks=() if kind == "int" or version == 8 else LONG)
    for kind, version, mode in tables()
]
"""One kind of ordering column in every version, and some in one, are for every run."""


def client(base, kind, version, mode) -> WriteClient:
    options = {
        "hoodie.table.name": "t",
        "hoodie.write.table.version": version,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": ",".join(OF_KIND[kind].fields),
        "hoodie.record.merge.mode": mode,
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
    }
    return WriteClient(LocalEngine(tasks=1, cores=1), str(base), options)


def left(base, kind, version, mode, cases) -> dict[str, str]:
    """Return our answers to some cases."""
    # By commit time a stored row may have no ordering value, as Hudi's bulk_insert allows it.
    with client(base, kind, version, COMMIT) as c:
        c.bulk_insert(stored_rows(cases, OF_KIND[kind]))
    if mode == EVENT:
        changes = {"record__merge__mode": EVENT}
        if version < 9:
            payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
            changes["compaction__payload__class"] = payload
        change_properties(base, **changes)
    with client(base, kind, version, mode) as c:
        c.upsert(written_rows([case for case in cases if not case.is_hard], OF_KIND[kind]))
        c.delete(written_rows([case for case in cases if case.is_hard], OF_KIND[kind]))
    rows = {each["id"]: each["origin"] for each in reader.rows(base)}
    return {case.name: rows.get(case.name, GONE) for case in cases}


@pytest.mark.parametrize(("kind", "version", "mode"), SHORT)
def test_the_writer_answers_as_hudi(tmp_path, kind, version, mode):
    expected = answers(kind, mode)
    cases = [case for case in cases_of(kind) if expected[case.name] != FAILS]
    if mode == EVENT:
        # Hudi inserts a row without an ordering value; this writer refuses it.
        cases = [case for case in cases if case.name != "absent: put null"]
    assert len(cases) > 150
    found = left(tmp_path, kind, version, mode, cases)
    assert found == {case.name: expected[case.name] for case in cases}


def test_the_writer_orders_dates_as_integers_nulls_too(tmp_path):
    expected = answers("int", EVENT)
    skipped = ("absent: put null",)
    cases = [c for c in cases_of("int") if expected[c.name] != FAILS and c.name not in skipped]
    found = left(tmp_path, "date", 9, EVENT, cases)
    assert found == {case.name: expected[case.name] for case in cases}


@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_write_on_which_hudi_fails_is_refused_or_deletes(tmp_path, kind):
    """Hudi compares nulls: a NullPointerException or a ClassCastException in a task."""
    failing = {case for case, answer in answers(kind, EVENT).items() if answer == FAILS}
    nulls = [case for case in cases_of(kind) if case.name in failing]
    assert all(case.has_null for case in nulls)
    refused = [c for c in nulls if any(str(row) == "put null" for row in c.rows)]
    for number, case in enumerate(refused):
        with pytest.raises(InputError, match="'ts' is null"):
            left(tmp_path / str(number), kind, 9, EVENT, [case])
    deleted = [c for c in nulls if str(c.rows[-1]) == "delete null"]
    found = left(tmp_path / "deleted", kind, 9, EVENT, deleted)
    assert deleted
    assert set(found.values()) == {GONE}
