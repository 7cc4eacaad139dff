"""The demo, end to end: three days of flights; the job is killed, then the service is."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.object_store.files import read as read_store
from demo.object_store.record import WAYS
from demo.report.files import read
from demo.report.lookups import by_source, rows
from strandline import Table
from tests.kit.concurrency.interruptible import interruptible

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ["--storage", "local"]
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("outage", [0, pytest.param(1, marks=pytest.mark.product)])
def test_three_days_with_a_killed_job_and_a_killed_service(tmp_path, capsys, outage):
    lake, folder = tmp_path / "lake", tmp_path / "report"
    words = [*LOCAL, "--days", "3", "--outage", str(outage)]
    code = main([*words, "--path", str(lake), "--report", str(folder)])
    assert code == 0, capsys.readouterr().out
    report = read(folder)
    assert report.failures == []
    assert report.rows == 2695
    for run in (report.on, report.off):
        assert [batch.number for batch in run.batches] == [1, 2, 3]
        assert run.killed_on == 2
        # What the killed process wrote was undone by the batch that was done again.
        assert [len(batch.rolled_back) for batch in run.batches] == [0, 1, 0]
        assert [batch.commits for batch in run.batches] == [1, 1, 2]
        assert (run.sum("inserted"), run.sum("updated"), run.sum("deleted")) == (2699, 1785, 4)
    assert report.off.calls["list", "lookup"] > report.on.calls["list", "lookup"]
    assert len(report.on.service_calls) > 0
    assert len(report.off.service_calls) == 0
    assert [len(batch.fallbacks) for batch in report.on.batches] == [0, 0, 0]
    assert set(by_source(report.on)) == {"service"}
    assert set(by_source(report.off)) == {"local"}
    assert (report.killed is None) == (outage == 0)
    if outage:
        expect_recovery(report.killed)
    # Of a table that three commits changed, all runs have the same file groups and slices.
    assert {(g.groups, g.slices, g.difference) for g in report.groups.values()} == {(3, 6, None)}
    # Three commits are retained, so only the cleaner could have deleted the file.
    assert [number for number, _ in report.life.events] == [1, 2, 3]
    wrote, superseded, why = (text for _, text in report.life.events)
    assert wrote.endswith(" wrote it")
    assert superseded.endswith(" wrote the next slice of its file group")
    assert why
    for name in ("service-on", "service-off"):
        actions = Table(str(lake / name)).history()["action"].to_pylist()
        assert actions.count("commit") == 4
        assert actions.count("rollback") == 1
    assert len(report.proofs) == (5 if outage else 4)
    assert (folder / "report.png").stat().st_size > 50_000


@pytest.mark.product
def test_three_days_of_a_merge_on_read_table(tmp_path, capsys):
    lake, folder = tmp_path / "lake", tmp_path / "report"
    words = [*LOCAL, "--days", "3", "--outage", "0", "--table-type", "merge-on-read"]
    code = main([*words, "--path", str(lake), "--report", str(folder)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    report = read(folder)
    assert report.failures == []
    assert (report.rows, report.table_type) == (2695, "merge-on-read")
    logs = report.logs["service on"]
    # Each day updates the one before; the compaction follows the fourth commit.
    assert (logs.written, logs.compactions, logs.merged) == (3, 1, 3)
    assert f"compactions 1, of {logs.merged} logs" in " ".join(printed.split())
    for name in ("service-on", "service-off"):
        actions = Table(str(lake / name)).history()["action"].to_pylist()
        assert (actions.count("deltacommit"), actions.count("commit")) == (4, 1)


@pytest.mark.product
@pytest.mark.parametrize("table_type", ["copy-on-write", "merge-on-read"])
def test_a_day_on_an_object_store(tmp_path, capsys, table_type):
    lake, folder = tmp_path / "lake", tmp_path / "report"
    words = ["--days", "1", "--partitions", "16", "--delay-ms", "5", "--table-type", table_type]
    code = main([*words, "--path", str(lake), "--report", str(folder)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    report = read_store(folder)
    assert report.failures == []
    assert "16 partitions? Asked by each of 16 fresh Python" in " ".join(printed.split())
    lists, forgets, kept = (report.of(way)[0].requests.answered for way in WAYS)
    assert lists > forgets > kept > 0
    assert report.killed[0] != report.killed[1]
    # Its process is new, and reads the table anew.
    assert report.after_kill.requests.answered > kept
    assert all(len(batches) == 1 for batches in report.feed.values())
    assert (report.logs is None) == (table_type == "copy-on-write")


def expect_recovery(run):
    """Expect a run in which the service was replaced, was lost for a batch, and came back."""
    assert str(run.service_kill) == "1,2-2"
    once, lost, after = rows(run, every=True)
    assert (once.event, once.kills) == ("killed once", 1)
    # At least the first process, and those that the driver started in its place.
    assert lost.event == "killed for good"
    assert lost.kills > 1
    assert set(lost.fallbacks) == {"unreachable"}
    # The driver asks once for all partitions of the batch.
    assert lost.counts == {"service": 0, "cache": 0, "local": 1}
    assert not after.fallbacks
    assert after.counts["local"] == 0
    assert run.killed_on is None


@pytest.mark.product
def test_an_interrupt_leaves_nothing_running(tmp_path):
    words = [*LOCAL, "--days", "3", "--path", str(tmp_path / "lake")]
    command = [sys.executable, "-u", "-m", "demo", *words]
    with interruptible():
        demo = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    said = []
    for line in demo.stdout:
        said.append(line)
        if line.startswith("day   1"):
            demo.send_signal(signal.SIGINT)
            break
    said += demo.communicate()[0].splitlines()
    assert demo.returncode == 130, said
    table = str(tmp_path / "lake" / "service-on")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert table not in path.read_text(errors="replace"), path
