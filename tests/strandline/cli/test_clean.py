"""``strandline clean`` and ``why``: dry unless told otherwise, in each form of output."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from strandline.table_services.clean.execution import CleanResult
from strandline.table_services.clean.policy import KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.tables import golden
from tests.strandline.write.tables import client, row, table
from timeline.errors import StorageError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four commits, never cleaned."""
    base = tmp_path_factory.mktemp("written") / "t"
    with client(base, clean__automatic="false") as c:
        for n in range(4):
            c.upsert(table(row("a", ts=n)))
    return base


@pytest.fixture
def base(written: Path, tmp_path: Path) -> Path:
    """A copy of that table."""
    return Path(shutil.copytree(written, tmp_path / "t"))


def files(base: Path) -> set[str]:
    return {path.name for path in base.rglob("*") if path.is_file()}


def newest(base: Path) -> list[dict[str, object]]:
    """Return the slices that readers read now."""
    return sorted(Table(base).files().to_pylist(), key=str)


def test_what_would_go_is_shown_and_nothing_goes(base):
    before = files(base)
    done = run("clean", base, "--retain", 1)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["partition", "file", "bytes", "reason"]
    assert len(lines) == 3
    assert "superseded by the slice of" in lines[1]
    assert re.match(r"2 files, \d+ bytes, would be deleted by KEEP_LATEST_COMMITS; ", done.stderr)
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
    assert " deleted 2 files, " in done.stdout
    assert not {each["file"] for each in shown} & files(base)
    assert run("clean", base, "--retain", 1, "--apply").stdout == "nothing was deleted\n"
    nothing = json.loads(run("clean", base, "--retain", 1, "--apply", "--output", "json").stdout)
    assert set(nothing) == {field.name for field in fields(CleanResult)}
    assert (nothing["instant"], nothing["files_failed"]) == (None, 0)
    gone = f"{shown[0]['partition']}/{shown[0]['file']}"
    told = run("why", base, gone)
    assert told.exit_code == 0
    assert told.stdout.startswith("deleted: the clean ")
    answer = json.loads(run("why", base, gone, "--output", "json").stdout)
    assert (answer["is_there"], answer["goes"]) == (False, True)


def test_files_that_could_not_be_deleted_are_told(base):
    storage = HookedStorage(base, failing("create", ".clean.inflight"))
    with client(base, storage, clean__commits__retained=1) as c, pytest.raises(StorageError):
        c.clean()
    first = min(base.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    first.unlink()
    (first / "below").mkdir(parents=True)  # not even root deletes that as a file
    done = run("clean", base, "--retain", 1, "--apply")
    assert done.exit_code == 0
    assert " deleted 1 file, 0 bytes; 1 couldn't be deleted, the next clean tries" in done.stdout


def test_applied_again_with_less_retained_it_deletes_what_is_shown_though_nothing_was_written(base):
    assert " deleted 1 file, " in run("clean", base, "--retain", 2, "--apply").stdout
    shown = run("clean", base, "--retain", 1, "--output", "jsonl").stdout.splitlines()
    assert len(shown) == 1
    trigger = ("--option", "hoodie.clean.trigger.max.commits=1")
    assert run("clean", base, "--retain", 1, "--apply", *trigger).stdout == "nothing was deleted\n"
    assert " deleted 1 file, " in run("clean", base, "--retain", 1, "--apply").stdout
    assert json.loads(shown[0])["file"] not in files(base)


def test_why_tells_which_archived_commit_wrote_a_lost_file(tmp_path):
    base = golden.build_final("archival_mor_v9", tmp_path / "t")
    (lost,) = base.glob("2024-01-01/1da49eaf-*_20261121083335222.parquet")
    lost.unlink()
    done = run("why", base, lost)
    assert done.exit_code == 2
    assert "the archived replacecommit 20261121083335222 wrote it" in done.stderr


def test_why_takes_paths_as_a_shell_completes_them(base, monkeypatch):
    monkeypatch.chdir(base.parent)
    path = min(base.glob("*/*.parquet")).relative_to(base)
    forms = [path, f"./{path}", f"t/{path}", base / path]
    answers = {run("why", "t", form).stdout for form in forms}
    answers |= {run("why", "t/", f"t/{path}").stdout, run("why", base, base / path).stdout}
    assert len(answers) == 1
    assert answers.pop().startswith("stays: ")
    missing = run("why", "t", f"{path.parent}/none_0-0-0_20200101000000000.parquet")
    assert missing.exit_code == 2
    assert "'none_0-0-0_20200101000000000.parquet'" in missing.stderr


def on_a_terminal(columns: int, *arguments: object) -> list[str]:
    """Return the lines that a command prints on a terminal with this many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "strandline", *(str(each) for each in arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        with os.fdopen(theirs, "wb") as stdout:
            done = subprocess.Popen(
                command, stdout=stdout, stderr=subprocess.DEVNULL, env=environment
            )
        shown = b""
        with contextlib.suppress(OSError):
            while part := terminal.read(4096):
                shown += part
        assert done.wait(timeout=PROCESS_S) == 0
    return shown.decode().splitlines()


@pytest.mark.property
def test_on_a_narrow_terminal_each_value_has_a_line(base):
    """Without ``COLUMNS`` the width comes from ``TIOCGWINSZ`` of stdout."""
    piped = run("clean", base, "--retain", 1).stdout.splitlines()
    wide = on_a_terminal(300, "clean", base, "--retain", 1)
    wide = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in wide]
    assert [line.split() for line in wide] == [line.split() for line in piped]
    narrow = on_a_terminal(80, "clean", base, "--retain", 1)
    assert max(map(len, narrow)) <= 80
    named = [line.split()[0] for line in narrow if line and not line.startswith(" ")]
    assert named == ["partition", "file", "bytes", "reason"] * 2
    assert narrow.count("") == 1
    row_of = " ".join(piped[1].split())
    first = narrow[: narrow.index("")]
    words = " ".join(" ".join(line.removeprefix(n) for n in named[:1]) for line in first)
    for word in row_of.split():
        assert word in words


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A table of three commits to 24 partitions, never cleaned."""
    with client(tmp_path / "wide", clean__automatic="false") as c:
        for n in range(3):
            c.upsert(table(*(row(f"k{p}", f"p{p:02}", ts=n) for p in range(24))))
    return tmp_path / "wide"


@pytest.mark.property
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
        (["--apply", "--option", "lock=x"], "options that begin with hoodie. or strandline."),
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


@pytest.mark.parametrize("policy", [KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS])
@pytest.mark.parametrize("name", ["rollback_mor_v6", "walkdev_mor_v6"])
def test_a_table_that_is_not_written_here_is_cleaned_and_archived(tmp_path, name, policy):
    base = Path(golden.build(name, golden.steps(name)[-1], tmp_path / name))
    with (base / ".hoodie" / "hoodie.properties").open("a", encoding="utf-8") as properties:
        properties.write("\nhoodie.compaction.payload.class=com.example.OwnPayload\n")
    retained = ("--policy", policy, "--retain", 1)
    shown = json.loads(run("clean", base, *retained, "--output", "json").stdout)["files"]
    assert shown
    for state in ("requested", "inflight"):
        (base / ".hoodie" / f"20261123000000000.deltacommit.{state}").touch()
    before, read = files(base), newest(base)
    lazy = ("--option", "hoodie.clean.failed.writes.policy=LAZY")
    done = run("clean", base, *retained, "--apply", *lazy, "--output", "json")
    assert done.exit_code == 0, done.stderr
    gone = before - files(base)
    assert {name for name in gone if not name.endswith(".crc")} == {each["file"] for each in shown}
    assert newest(base) == read
    moved = run("archive", base, "--keep-min", 2, "--keep-max", 3, "--apply", "--output", "json")
    assert moved.exit_code == 0, moved.stderr
    assert newest(base) == read
    rollbacks = {name for name in files(base) if name.endswith(".rollback.requested")}
    assert rollbacks <= before  # the failed write is left to Hudi
