"""``strandline pins``: leases are shown in each form of output, and revoked by their ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from strandline.read.state.reader_lease import LEASE_FOLDER
from tests.strandline.write.tables import client, row, table


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a", ts=0)))
    return tmp_path / "t"


def test_nothing_is_printed_without_leases(base):
    done = run("pins", base)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "0 leases\n"


def test_leases_are_shown_and_revoked(base):
    found = Table(base)
    with found.pin(ttl=60) as one, found.pin() as other:
        (base / LEASE_FOLDER / "damaged").write_bytes(b"{")
        lines = run("pins", base).stdout.splitlines()
        columns = ["id", "instant", "earliest", "holder", "renewed_at", "expires_at", "problem"]
        assert lines[0].split() == columns
        assert len(lines) == 4
        shown = json.loads(run("pins", base, "--output", "json").stdout)["pins"]
        assert {each["id"] for each in shown} == {one.id, other.id, "damaged"}
        (mine,) = (each for each in shown if each["id"] == one.id)
        assert mine["instant"] == one.instant
        assert mine["expires_at"] > mine["renewed_at"] > "2020-"
        (damaged,) = (each for each in shown if each["id"] == "damaged")
        assert damaged["problem"].startswith("it isn't a lease")
        assert damaged["earliest"] is damaged["expires_at"] is None

        done = run("pins", base, "--revoke", one.id, "--revoke", "damaged", "--output", "jsonl")
        assert done.exit_code == 0
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [other.id]
        assert done.stderr == "2 leases revoked, 1 left\n"


@pytest.mark.parametrize(
    ("revoke", "match"), [("none", "has no lease none"), ("../x", "'../x' is no id of a lease")]
)
def test_what_is_no_lease_is_named(base, revoke, match):
    done = run("pins", base, "--revoke", revoke)
    assert done.exit_code == 2
    assert match in done.stderr
    assert done.stdout == ""


def test_where_no_table_is_the_path_is_named(tmp_path):
    done = run("pins", tmp_path)
    assert done.exit_code == 2
    assert str(tmp_path) in done.stderr
