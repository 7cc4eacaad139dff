"""The job's parent survives its child's death, and leaves nothing behind."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from demo.record import ReaderRecord, ServiceKill
from demo.run import JobFailedError, Plan, _alive, run


@pytest.fixture
def plan(tmp_path):
    return Plan(
        feed=tmp_path / "feed",
        table=str(tmp_path / "table"),
        log=tmp_path / "table.log",
        days=4,
        table_version=9,
        table_type="copy-on-write",
        master="local[2]",
        service=True,
        die_on=3,
        module="tests.demo.fake_job",
        grace_s=0.1,  # it is for children that end by themselves; the fake's never does
    )


def survivors(plan: Plan) -> list[int]:
    """Return the groups of the fake's runs in which something still runs."""
    groups = Path(f"{plan.table}.pids").read_text().split()
    assert groups
    return [int(group) for group in groups if _alive(int(group))]


def test_the_job_is_started_again_where_it_was_killed(plan):
    batches, deaths = [], []
    record = run(plan, batches.append, lambda: deaths.append(len(batches)))
    assert [batch.number for batch in batches] == [1, 2, 3, 4]
    assert deaths == [2]
    assert record.batches == tuple(batches)
    assert (record.service, record.killed_on, record.platform) == (True, 3, "a test")
    assert record.readers == ReaderRecord(4, (0.5, 0.25), 7)
    assert survivors(plan) == []


def test_a_job_that_is_not_killed_runs_once(plan):
    kill, deaths = ServiceKill(1, 3, 3), []
    calm = replace(plan, die_on=None, service_kill=kill)
    record = run(calm, lambda batch: None, lambda: deaths.append(1))
    assert deaths == []
    assert (record.killed_on, record.service_kill) == (None, kill)
    assert len(Path(f"{plan.table}.pids").read_text().split()) == 1
    assert calm.command(deadly=False)[-2:] == ["--kill-service", "1,3-3"]
    assert survivors(calm) == []


def test_a_job_that_fails_says_its_last_words(plan):
    bad = replace(plan, table=f"{plan.table}-bad")
    with pytest.raises(JobFailedError, match=re.escape("ended with 3, not with -9")) as caught:
        run(bad, lambda batch: None, lambda: None)
    assert str(caught.value).endswith(f"a word on stderr of {bad.table}")


def test_an_interrupt_ends_the_job(plan):

    def interrupt(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, interrupt, lambda: None)
    assert survivors(plan) == []
