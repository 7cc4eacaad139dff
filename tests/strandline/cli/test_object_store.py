"""A name of ``tables.toml`` has all that a table on S3 needs; what isn't there is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from tests.kit.servers.s3_server import S3Endpoint
from tests.kit.tables import golden

pytestmark = pytest.mark.product


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.fixture
def place(s3: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a table named ``orders``, for whose file of tables there is a home."""
    storage = s3.storage()
    base = golden.build("cow_basic_v9", golden.steps("cow_basic_v9")[0], tmp_path / "t")
    for path in filter(Path.is_file, base.rglob("*")):
        storage.create(path.relative_to(base).as_posix(), path.read_bytes())
    file = tmp_path / "strandline" / "tables.toml"
    file.parent.mkdir()
    options = (f"{key} = {json.dumps(value)}" for key, value in s3.options.items())
    section = [f'[orders]\npath = "{storage.base_path}"', "[orders.storage_options]", *options]
    file.write_text("\n".join(section))
    file.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return storage.base_path


def test_a_table_on_s3_is_found_by_its_name_and_by_options(s3, place, tmp_path):
    wanted = Table(tmp_path / "t").files()["path"].to_pylist()
    chosen = ("--columns", "path", "--output", "jsonl")
    named = run("files", "orders", *chosen)
    assert named.exit_code == 0, named.stderr
    assert [json.loads(line)["path"] for line in named.stdout.splitlines()] == wanted
    given = [f"--storage-option={key}={value}" for key, value in s3.options.items()]
    assert run("files", place, *chosen, *given).stdout == named.stdout
    root, _, name = place.rpartition("/")
    listed = run("tables", root, *given, "--output", "jsonl")
    assert [json.loads(line)["path"] for line in listed.stdout.splitlines()] == [place]
    wrong = run("files", f"{root}/{name}t", *given)
    assert wrong.exit_code == 2
    assert f"there is no folder {root}/{name}t; the nearest is {name!r}" in wrong.stderr
    assert f"tables below it: {name}" in run("files", root, *given).stderr
    bucket = run("files", "s3://no-such-bucket/t", *given)
    assert "there is no bucket no-such-bucket" in bucket.stderr
    assert [each for each in (wrong, bucket) if len(each.stderr.splitlines()) != 1] == []
