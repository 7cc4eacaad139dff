"""The main job, end to end: three days of flights, one batch killed, both tables proved."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.report_files import read
from strandline import Table
from tests.kit.interruptible import interruptible

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.spark


def test_three_days_with_one_killed_batch(tmp_path, capsys):
    lake, folder = tmp_path / "lake", tmp_path / "report"
    code = main(["--days", "3", "--path", str(lake), "--report", str(folder)])
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
    assert report.off.calls_of("list") > report.on.calls_of("list")
    assert len(report.on.service_calls) > 0
    assert len(report.off.service_calls) == 0
    for name in ("service-on", "service-off"):
        actions = Table(str(lake / name)).history()["action"].to_pylist()
        assert actions.count("commit") == 4
        assert actions.count("rollback") == 1
    assert len(report.proofs) == 4
    assert (folder / "report.png").stat().st_size > 50_000


def test_an_interrupt_leaves_nothing_running(tmp_path):
    command = [sys.executable, "-u", "-m", "demo", "--days", "3", "--path", str(tmp_path / "lake")]
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
