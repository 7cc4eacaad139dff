"""``strandline archive``: dry unless told otherwise, in each form of output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from tests.strandline.write.tables import client, row, table


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A table of eight commits, of which three are retained."""
    options = {"clean__commits__retained": 1, "archive__automatic": "false"}
    with client(tmp_path / "t", **options) as c:
        for n in range(8):
            c.upsert(table(row("a", ts=n)))
    return tmp_path / "t"


KEEP = ("--keep-min", 3, "--keep-max", 5)
LOW = ("--option", "hoodie.clean.commits.retained=1")


def files(base: Path) -> set[str]:
    return {path.name for path in base.rglob("*") if path.is_file()}


def test_what_would_go_is_shown_and_nothing_goes(base):
    before = files(base)
    # Hudi's default retention keeps eleven writes and more.
    done = run("archive", base)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "0 instants would be archived\n"
    assert files(base) == before


@pytest.mark.property
def test_applied_it_moves_them_and_readers_go_on(base):
    whole = Table(base).history()
    done = run("archive", base, *KEEP, *LOW, "--apply", "--output", "jsonl")
    assert done.exit_code == 0, done.stderr
    moved = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["action"] for each in moved].count("commit") == 5
    again = Table(base).history()
    assert again.num_rows == whole.num_rows
    assert again.column("archived").to_pylist().count(True) == len(moved)
    assert Table(base).scan().to_arrow().num_rows == 1
    assert run("archive", base, *KEEP, *LOW, "--apply").stderr == "0 instants were archived\n"


@pytest.mark.property
def test_bad_usage_is_refused_by_name(base):
    done = run("archive", base, "--keep-min", 5, "--keep-max", 5)
    assert done.exit_code == 2
    assert "hoodie.keep.max.commits is 5" in done.stderr
    assert run("archive", base, *LOW).exit_code == 2
    assert run("archive", base.parent / "none").exit_code == 2
