"""``strandline doctor``: what is found and repaired, on paths of tables, by exit codes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline.__main__ import main
from strandline.table_services.doctor.finding import FINDINGS_SCHEMA
from tests.kit.tables import golden
from tests.kit.tables.reader import contents
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property
DAYS = 2 * 24 * 60 * 60
CONFIG = ".hoodie/hoodie.properties"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def told(*arguments: object) -> list[dict]:
    done = run(*arguments, "--output", "jsonl")
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A sound table with one forgotten heartbeat."""
    return with_heartbeat(golden.build_final("cow_basic_v9", tmp_path / "t"))


def with_heartbeat(base: Path) -> Path:
    path = base / ".hoodie/.heartbeat/20261121080809696"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    then = (base / CONFIG).stat().st_mtime
    os.utime(path, (then, then))
    return path.parents[2]


def test_findings_are_rows(base):
    before = contents(base)
    (row,) = told(base)
    assert list(row) == FINDINGS_SCHEMA.names
    assert (row["code"], row["severity"], row["fixable"]) == ("heartbeat-left", "warning", True)
    done = run(base)
    assert "heartbeat-left" in done.stdout
    assert done.stderr == "1 warning; --fix shows the 1 that can be repaired\n"
    assert contents(base) == before


def test_columns_are_checked_before_anything_is_repaired(base):
    before = contents(base)
    done = run(base, "--fix", "--apply", "--columns", "severity")
    assert done.exit_code == 2
    assert "there is no column 'severity'; allowed: code" in done.stderr
    assert contents(base) == before


def test_a_sound_table_is_told_so(base):
    shutil.rmtree(base / ".hoodie/.heartbeat")
    done = run(base, "--deep", "--fail-on", "info")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "nothing is wrong\n")


@pytest.mark.parametrize(("level", "code"), [("info", 3), ("warning", 3), ("error", 0)])
def test_it_fails_from_a_severity_on(base, level, code):
    assert run(base, "--fail-on", level).exit_code == code
    assert run(base, "--fix", "--fail-on", level).exit_code == code


def test_fix_shows_and_apply_repairs(base):
    before = contents(base)
    done = run(base, "--fix")
    assert "heartbeat-left" in done.stdout
    assert done.stderr == "1 finding of 1 would be repaired\n"
    assert contents(base) == before
    done = run(base, "--fix", "--apply", "--fail-on", "warning", "--output", "json")
    assert done.exit_code == 0
    (repair,) = json.loads(done.stdout)["repairs"]
    assert (repair["code"], repair["done"]) == ("heartbeat-left", True)
    assert done.stderr == "1 of 1 file repaired\n"
    assert set(before) - set(contents(base)) == {repair["name"]}
    assert told(base) == []


def test_what_a_repair_leaves_is_told(base):
    newest = max(base.glob("2*/*.parquet"), key=lambda path: path.stem.rpartition("_")[2])
    newest.write_bytes(b"")
    done = run(base, "--fix")
    assert done.stderr == "1 finding of 2 would be repaired; left: wrong-size (1)\n"


def test_a_repair_that_fails_is_a_failure_and_examines_once(base, monkeypatch):
    examined = []
    looked = LocalStorage.list

    def listed(storage, path):
        examined.append(path)
        return looked(storage, path)

    def refused(storage, path):
        raise StorageUnavailableError("refused")

    monkeypatch.setattr(LocalStorage, "list", listed)
    monkeypatch.setattr(LocalStorage, "delete", refused)
    done = run(base, "--fix", "--apply", "--output", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["repairs"][0]["what"] == "refused"
    folder = next(base.glob("2*")).name
    assert examined.count(folder) == 1


def test_a_table_that_can_not_be_opened_is_examined_and_repaired(base):
    path = base / CONFIG
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"checksum=", b"checksum=9"))
    assert CliRunner().invoke(main, ["history", str(base)]).exit_code == 1
    assert {row["code"] for row in told(base)} == {"heartbeat-left", "properties-checksum-wrong"}
    assert run(base, "--fix", "--apply", "--fail-on", "info").exit_code == 0
    assert CliRunner().invoke(main, ["history", str(base)]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--apply"], "--apply is given without --fix"),
        (["--fix", "--option", "hoodie.x=1"], "--option is given without --apply"),
        (["--fix", "--apply", "--option", "x"], "NAME=VALUE"),
        (["--fail-on", "all"], "'all' is not one of"),
        (["--columns", "cod"], "the nearest is 'code'"),
    ],
)
def test_wrong_usage_is_an_error(base, arguments, error):
    done = run(base, *arguments)
    assert done.exit_code == 2
    assert error in done.stderr


def test_no_table_is_wrong_usage(base):
    done = run(base.parent)
    assert done.exit_code == 2
    assert "tables below it: t" in done.stderr
