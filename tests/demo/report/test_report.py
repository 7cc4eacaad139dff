"""The report of a recorded run: five days of the feed."""

import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from demo.record import BatchRecord, GroupProof, LogRecord, Proof, RunRecord, percentile
from demo.report.files import read, write
from demo.report.report import Report
from demo.report.summaries import killed_summary, readers_summary, saved_summary, summary
from demo.report.terminal import show
from tests.demo.report.resources import Resources

RECORDED = Path(__file__).with_name("recorded.json")


@pytest.fixture
def report():
    return Report.from_json(json.loads(RECORDED.read_text()))


def test_a_good_report_has_no_failures(report):
    assert report.failures == []
    assert report.off.calls_of("list") > report.on.calls_of("list")


def test_the_calls_of_the_services_process_are_part_of_its_column(report):
    rows = {(row.kind, row.cause): row for row in report.call_rows()}
    batches = report.on.batches
    own = sum(batch.service_calls.get(("list", "sync"), 0) for batch in batches)
    others = sum(batch.calls.get(("list", "sync"), 0) for batch in batches)
    assert rows["list", "sync"].of_service == own > 0
    assert rows["list", "sync"].on == own + others
    for kind in ("list", "stat", "read"):
        parts = [row for row in rows.values() if row.kind == kind and row.cause]
        total = rows[kind, ""]
        assert (total.on, total.off) == (sum(r.on for r in parts), sum(r.off for r in parts))


def test_the_phases_of_a_batch_add_up_to_its_time(report):
    for batch in (*report.on.batches, *report.off.batches):
        assert sum(batch.phase_s.values()) == pytest.approx(batch.total_s)


def timed(run, seconds):
    """Return a run whose batches took these seconds each, and their look-ups a quarter of that."""
    lookups = {"service": (seconds / 8, seconds / 8)}
    batches = (replace(each, total_s=seconds, lookups=lookups) for each in run.batches)
    return replace(run, batches=tuple(batches))


def test_the_time_that_the_service_saves_is_said(report):
    faster = replace(report, on=timed(report.on, 1.0), off=timed(report.off, 1.5))
    told = (
        "the batches took 4.0 s with the service and 6.0 s without, their look-ups 1.00 s and "
        "1.50 s: the service saves 2.0 s (33%)"
    )
    assert saved_summary(faster) == f"On a local disk {told}"
    same = replace(report, off=timed(report.off, 1.0), on=timed(report.on, 1.0))
    assert saved_summary(same).endswith("the service saves no time")


def test_the_time_that_readers_wait_is_said(report):
    off = replace(report.off.readers, waited_s=(0.75,) * 8)
    slower = replace(report, off=replace(report.off, readers=off))
    told = (
        "8 tasks that looked up 5 partitions waited 2.00 s in all with the service and 6.00 s "
        "without, which made 12 list calls"
    )
    assert readers_summary(Report.from_json(slower.as_json())) == told
    assert readers_summary(replace(report, on=replace(report.on, readers=None))) == ""


def test_a_reader_that_lists_beside_the_service_is_a_failure(report):
    listing = replace(report.on.readers, list_calls=3)
    bad = replace(report, on=replace(report.on, readers=listing))
    assert bad.failures == ["service on: a reader's tasks made 3 list calls"]


def test_a_service_that_saved_nothing_is_a_failure(report):
    same = replace(report, off=replace(report.on, service=False))
    assert len(same.failures) == 1
    assert same.failures[0].startswith("without the service look-ups listed")


def test_a_reader_that_differs_is_a_failure(report):
    proof = Proof("hudi-rs", 1, "1 rows, there should be 2", 0.1)
    bad = replace(report, proofs=report.proofs | {"service on": (proof,)})
    assert bad.failures == ["service on: hudi-rs differs: 1 rows, there should be 2"]


def test_tasks_that_gave_up_the_service_are_a_failure(report):
    first, *others = report.on.batches
    batches = (replace(first, fallbacks=(("unreachable", "connection refused"),)), *others)
    bad = replace(report, on=replace(report.on, batches=batches))
    failure = "service on: batch 1: tasks stopped using the service: connection refused"
    assert bad.failures == [failure]


def test_file_groups_that_differ_are_a_failure(report):
    groups = {"service killed": GroupProof(4, 7, "dt=2013-01-02: 1 file groups")}
    bad = replace(report, groups=groups)
    assert bad.failures == ["service killed: the file groups differ: dt=2013-01-02: 1 file groups"]
    assert killed_summary(bad, bad.killed).endswith("rows and file groups differ")


def test_a_service_that_was_not_killed_is_a_failure(report):
    batches = tuple(replace(batch, service_kills=0) for batch in report.killed.batches)
    bad = replace(report, killed=replace(report.killed, batches=batches))
    assert bad.failures == [
        "service killed: batch 1: the service was not killed",
        "service killed: batch 3: the service was not killed",
    ]


def test_a_killed_write_that_was_not_rolled_back_is_a_failure(report):
    batches = tuple(replace(batch, rolled_back=()) for batch in report.off.batches)
    bad = replace(report, off=replace(report.off, batches=batches))
    assert bad.failures == ["service off: the killed write was not rolled back"]


def test_the_terminal_shows_the_numbers(report):
    console = Console(file=io.StringIO(), width=80)
    show(report, console)
    told = console.file.getvalue()
    row = next(row for row in report.call_rows() if (row.kind, row.cause) == ("list", "timeline"))
    line = rf"list\s+timeline\s+{row.on}\s+{row.of_service}\s+{row.off}\n"
    assert re.search(line, told.replace(" \n", "\n"))
    assert "FAILED" not in told
    assert re.search(r"\n3 +killed for good +3 local .* 4 unreachable ", told)
    assert killed_summary(report, report.killed).split(":")[0] in told


def test_logs_and_compactions_are_shown_in_every_form(report, tmp_path):
    logs = dict.fromkeys(report.runs, LogRecord(written=1234, compactions=2, merged=1200))
    of_logs = replace(report, logs=logs, table_type="merge-on-read")
    assert Report.from_json(of_logs.as_json()) == of_logs
    assert "1,200 of 1,234 logs compacted" in summary(of_logs)
    console = Console(file=io.StringIO(), width=120)
    show(of_logs, console)
    page = write(of_logs, tmp_path)[0].read_text()
    for told in (console.file.getvalue(), page):
        assert told.count("2, of 1,200 logs") == 3
        assert "logs written" in told
    logs["service off"] = LogRecord(written=1233, compactions=2, merged=1200)
    (failure,) = of_logs.failures
    assert failure.startswith("the runs wrote or merged other logs")


def test_the_report_is_written_and_can_be_read_back(report, tmp_path):
    page, picture, numbers = write(report, tmp_path / "report")
    assert read(tmp_path / "report") == report
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 50_000
    assert numbers.name == "metrics.json"
    text = page.read_text()
    assert summary(report) in text
    for told in (killed_summary(report, report.killed), *report.account):
        assert html.escape(told) in text


def test_a_report_without_the_third_run_has_no_section_on_it(report, tmp_path):
    proofs = {of: found for of, found in report.proofs.items() if of != "service killed"}
    groups = {"service off": report.groups["service off"]}
    short = replace(report, killed=None, proofs=proofs, groups=groups)
    page, picture, _ = write(short, tmp_path)
    assert read(tmp_path) == short
    assert short.failures == short.account == []
    assert "killed half-way" not in page.read_text()
    assert picture.stat().st_size > 50_000


def test_the_page_needs_nothing_but_itself(report, tmp_path):
    text = write(report, tmp_path)[0].read_text()
    parser = Resources()
    parser.feed(text)
    assert parser.loads == []
    assert parser.open == []
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "<details>" in text


def test_words_from_outside_are_escaped(report, tmp_path):
    proof = Proof("hudi-rs", 1, "<script>", 0.1)
    bad = replace(report, proofs={"<i>x": (proof,)})
    text = write(bad, tmp_path)[0].read_text()
    assert "<script>" not in text
    assert "&lt;i&gt;x" in text


@pytest.mark.parametrize(("percent", "wanted"), [(1, 1), (50, 2), (75, 3), (99, 4), (100, 4)])
def test_percentiles_are_values_that_occurred(percent, wanted):
    assert percentile([1, 2, 3, 4], percent) == wanted


def test_an_empty_run_has_numbers():
    run = RunRecord(service=True, batches=())
    assert (run.calls_of("list"), run.lookups_s, percentile([], 50)) == (0, [], 0.0)
    assert BatchRecord.from_json(BatchRecord(1, "2013-01-01").as_json()).all_calls == 0
