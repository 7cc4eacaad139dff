"""``strandline compact``: dry unless told otherwise, only planned, in each form of output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from tests.strandline.write.tables import client, row, table

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}
PACKAGE = "org.apache.hudi.table.action.compact.strategy."


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two groups, with two logs and one."""
    base = tmp_path_factory.mktemp("written") / "t"
    with client(base, **LOGS) as c:
        c.upsert(table(row("a"), row("b", "us")))
        c.upsert(table(row("a", ts=2)))
        c.upsert(table(row("a", ts=3), row("b", "us", ts=3)))
    return base


@pytest.fixture
def base(written: Path, tmp_path: Path) -> Path:
    """A copy of that table."""
    return Path(shutil.copytree(written, tmp_path / "t"))


def files(base: Path) -> set[str]:
    return {path.name for path in base.rglob("*") if path.is_file()}


def test_what_would_be_taken_is_shown_and_nothing_changes(base):
    before = files(base)
    done = run("compact", base, "--output", "jsonl")
    assert done.exit_code == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["partition"], each["logs"]) for each in shown] == [("eu", 2), ("us", 1)]
    assert {each["compaction"] for each in shown} == {None}
    sizes = [path.stat().st_size for path in base.rglob(".*.log.*")]
    assert sum(each["bytes"] for each in shown) == sum(sizes)
    assert done.stderr == f"2 file groups with {sum(sizes)} bytes of logs would be compacted\n"
    assert files(base) == before
    few = run("compact", base, "--strategy", f"{PACKAGE}DayBasedCompactionStrategy")
    assert few.exit_code == 2
    assert "partition 'eu' isn't a day" in few.stderr


def test_applied_it_compacts(base):
    done = run("compact", base, "--apply")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("compaction ")
    assert done.stdout.endswith(" merged 3 logs into 2 file groups\n")
    found = Table(base).scan(read_optimized=True).to_arrow()
    assert sorted(found["ts"].to_pylist()) == [3, 3]
    assert run("compact", base, "--apply").stdout == "nothing was compacted\n"
    assert run("compact", base).stdout == ""


def test_a_plan_is_shown_and_executed(base):
    planned = run("compact", base, "--apply", "--plan")
    assert planned.exit_code == 0, planned.stderr
    instant = planned.stdout.removeprefix("planned ").strip()
    assert run("compact", base, "--apply", "--plan").stdout == "nothing was planned\n"
    shown = json.loads(run("compact", base, "--output", "json").stdout)["file_groups"]
    assert {each["compaction"] for each in shown} == {instant}
    with client(base, **LOGS) as c:
        c.upsert(table(row("a", ts=4)))
    done = json.loads(run("compact", base, "--apply", "--output", "json").stdout)
    assert (done["finished"], done["file_groups"], done["logs"]) == ([instant], 1, 1)
    none = json.loads(run("compact", base, "--apply", "--output", "json").stdout)
    assert (none["instant"], none["file_groups"]) == (None, 0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--strategy", "x"), "hoodie.compaction.strategy is 'x'; allowed: org.apache"),
        (("--plan",), "without --apply; allowed: --plan --apply, which"),
        (("--option", "hoodie.write.lock.provider=x"), "--option is given without --apply"),
        (
            ("--apply", "--option", "hoodie.compaction.strategy=x"),
            "--option sets hoodie.compaction.strategy; allowed: --strategy",
        ),
    ],
)
def test_bad_usage_is_refused_by_name(base, arguments, match):
    done = run("compact", base, *arguments)
    assert done.exit_code == 2
    assert match in done.stderr


def test_a_copy_on_write_table_is_refused(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a")))
    done = run("compact", tmp_path / "t", "--apply")
    assert done.exit_code == 1
    assert "is COPY_ON_WRITE; allowed: MERGE_ON_READ" in done.stderr
    assert run("compact", tmp_path / "t").stdout == ""
