"""``strandline clean`` and ``why``: dry unless told otherwise, in each form of output."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline.__main__ import main
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.tables import golden
from tests.strandline.write.tables import client, row, table


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A table of four commits, never cleaned."""
    with client(tmp_path / "t", clean__automatic="false") as c:
        for n in range(4):
            c.upsert(table(row("a", ts=n)))
    return tmp_path / "t"


def files(base: Path) -> set[str]:
    return {path.name for path in base.rglob("*") if path.is_file()}


def test_what_would_go_is_shown_and_nothing_goes(base):
    before = files(base)
    done = run("clean", base, "--retain", 1)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["partition", "file", "bytes", "reason"]
    assert len(lines) == 3
    assert "superseded by the slice of" in lines[1]
    assert done.stderr.startswith("2 files of ")
    assert files(base) == before


def test_json_is_one_object_and_jsonl_an_object_a_line(base):
    found = json.loads(run("clean", base, "--retain", 1, "--output", "json").stdout)
    assert list(found) == ["policy", "earliest", "files"]
    assert found["policy"] == "KEEP_LATEST_COMMITS"
    assert [list(each) for each in found["files"]] == [["partition", "file", "bytes", "reason"]] * 2
    lines = run("clean", base, "--retain", 1, "--output", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found["files"]


def test_applied_it_deletes_just_what_was_shown(base):
    shown = json.loads(run("clean", base, "--retain", 1, "--output", "json").stdout)["files"]
    done = run("clean", base, "--retain", 1, "--apply")
    assert done.exit_code == 0
    assert " deleted 2 files of " in done.stdout
    assert not {each["file"] for each in shown} & files(base)
    assert run("clean", base, "--retain", 1, "--apply").stdout == "nothing was deleted\n"
    gone = f"{shown[0]['partition']}/{shown[0]['file']}"
    told = run("why", base, gone)
    assert told.exit_code == 0
    assert told.stdout.startswith("deleted: the clean ")
    answer = json.loads(run("why", base, gone, "--output", "json").stdout)
    assert (answer["is_there"], answer["goes"]) == (False, True)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A table of three commits to 24 partitions, never cleaned."""
    with client(tmp_path / "wide", clean__automatic="false") as c:
        for n in range(3):
            c.upsert(table(*(row(f"k{p}", f"p{p:02}", ts=n) for p in range(24))))
    return tmp_path / "wide"


def test_where_no_terminal_is_progress_is_plain_lines_on_stderr(wide):
    """Each of eight threads deletes three files; in whichever order, the counts ascend."""
    done = run("clean", wide, "--retain", 1, "--apply")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines[-1] == "deleting files: 24 of 24"
    counts = [re.fullmatch(r"deleting files: (\d+) of 24", line) for line in lines]
    assert all(counts), lines
    numbers = [int(found[1]) for found in counts if found]
    assert numbers == sorted(set(numbers))
    assert 2 < len(numbers) <= 10
    assert "deleting" not in done.stdout
    # With nothing to delete there is no line.
    assert run("clean", wide, "--retain", 1, "--apply").stderr == ""


@pytest.mark.property
def test_on_a_terminal_progress_is_a_bar_on_stderr_and_nothing_else(wide):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "strandline", "clean", str(wide), "--retain", "1", "--apply"]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        with os.fdopen(theirs, "wb") as stderr:
            done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        shown = b""
        # The end of a terminal, whose last writer has closed it, is an error on Linux.
        with contextlib.suppress(OSError):
            while part := terminal.read(4096):
                shown += part
        stdout, _ = done.communicate(timeout=PROCESS_S)
    assert done.returncode == 0
    assert stdout.startswith("clean ")
    text = shown.decode()
    assert "24/24" in text
    assert text.count("\n") == 1  # the bar is drawn over itself, in one line
    assert "deleting files: 24 of 24" not in text


@pytest.mark.parametrize(
    ("policy", "retain", "count"),
    [("KEEP_LATEST_FILE_VERSIONS", 2, 2), ("KEEP_LATEST_BY_HOURS", 1, 0)],
)
def test_policies(base, policy, retain, count):
    done = run("clean", base, "--policy", policy, "--retain", retain, "--output", "jsonl")
    assert len(done.stdout.splitlines()) == count
    assert policy in done.stderr


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--retain", "0"], "retain is '0'; allowed: integer, 1 or more"),
        (["--policy", "KEEP_ALL"], "Invalid value for '--policy'"),
        (["--option", "a=b"], "--option is given without --apply"),
        (["--apply", "--option", "nothing"], "--option is 'nothing'; allowed: NAME=VALUE"),
        (["--apply", "--option", "hoodie.clean.policy=x"], "allowed: --policy and --retain"),
    ],
)
def test_bad_usage_is_refused_in_one_line(base, arguments, match):
    before = files(base)
    done = run("clean", base, *arguments)
    assert done.exit_code == 2
    assert match in done.stderr.splitlines()[-1]
    assert done.stdout == ""
    assert files(base) == before


def test_where_no_table_is_the_path_is_named(tmp_path):
    for command in (["clean", tmp_path], ["why", tmp_path, "a_0-0-0_1.parquet"]):
        done = run(*command)
        assert done.exit_code == 2
        assert str(tmp_path) in done.stderr
        assert "Traceback" not in done.stderr


def test_a_table_whose_metadata_is_damaged_fails_in_one_line(base):
    commit = min((base / ".hoodie" / "timeline").glob("*.commit"))
    commit.write_bytes(b"{")
    done = run("clean", base, "--retain", 1)
    assert done.exit_code == 1
    assert commit.name.partition("_")[0] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_merge_on_read_table_of_version_6_is_shown_and_not_cleaned(tmp_path):
    for name, code in (("mor_basic_v6", 1), ("mor_basic_v9", 0)):
        base = Path(golden.build(name, golden.steps(name)[-1], tmp_path / name))
        assert run("clean", base, "--retain", 1).exit_code == 0
        done = run("clean", base, "--retain", 1, "--apply")
        assert done.exit_code == code, done.stderr
        assert ("MERGE_ON_READ of version 6" in done.stderr) == bool(code)
