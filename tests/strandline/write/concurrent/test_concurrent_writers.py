"""Two live processes write one table at once, and no committed row is lost.

With a lock they work side by side. Without one, a table may have one writer at a time: the other
waits or is refused, and both repeat what was refused.
"""

from __future__ import annotations

import json
from itertools import product

import pytest

from strandline.commit.others_heartbeats import instants_with_heartbeat
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.processes import Forked
from tests.kit.tables import reader
from tests.strandline.write.concurrent import concurrent_writer
from tests.strandline.write.concurrent.rounds import TIMES
from tests.strandline.write.tables import client, row, table
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

ROUNDS = 8 * TIMES
LOCKED = {
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "write__lock__provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "write__lock__wait_time_ms_between_retry": 20,
    "time__generator__max_expected_clock_skew_ms": 2,
}


def started(base, name, options):
    return Forked(concurrent_writer.main, str(base), name, str(ROUNDS), json.dumps(options))


def cases():
    """Yield version, whether to clean, and lock; on every change each pair of these."""
    for number, (version, clean, lock) in enumerate(product((6, 9), (False, True), (LOCKED, {}))):
        marks = () if number.bit_count() % 2 else pytest.mark.product
        names = [f"{version}", *["clean"] * clean, "lock" if lock else "no lock"]
        yield pytest.param(version, clean, lock, marks=marks, id="-".join(names))


@pytest.mark.parametrize(("version", "clean", "lock"), [*cases()])
def test_disjoint_inserts_and_a_shared_update(tmp_path, version, clean, lock):
    base = tmp_path / "t"
    options = {**lock, "write__table__version": version}
    if clean:
        options |= {"clean__automatic": "true", "clean__commits__retained": 2}
    with client(base, **options) as c:
        c.upsert(table(row("shared", ts=1)))
    writers = [started(base, name, options) for name in ("one", "two")]
    try:
        for each in writers:
            assert each.stdout.readline() == "ready\n"
        for each in writers:
            each.stdin.write("go\n")
            each.stdin.flush()
        answers = [json.loads(each.communicate(timeout=PROCESS_S)[0]) for each in writers]
    finally:
        for each in writers:
            each.kill()
            each.communicate()
    own = [f"{name}-{number:03d}" for name in ("one", "two") for number in range(ROUNDS)]
    rows = {each["id"]: each for each in reader.rows(base)}
    assert sorted(rows) == sorted([*own, "shared"])
    instants = [instant for answer in answers for instant in answer["instants"]]
    assert len(set(instants)) == 2 * ROUNDS
    assert set(instants) <= reader.committed(base)
    # The shared row is the one of the commit that completed last.
    last = max(instants)
    writer = next(n for n, answer in enumerate(answers) if last in answer["instants"])
    assert rows["shared"]["name"] == f"{('one', 'two')[writer]}-{ROUNDS - 1}"
    errors = [code for answer in answers for code in answer["errors"]]
    assert set(errors) <= {"write_conflict", "concurrent_write"}
    assert reader.leftovers(base) == []
    assert instants_with_heartbeat(LocalStorage(str(base))) == ()
