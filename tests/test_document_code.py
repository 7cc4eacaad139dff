"""The documents' code runs: examples, pages, and the first tutorial's notebook."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import Any

import cloudpickle
import pytest

from executor_proxy import connect
from executor_proxy.failover import Patience
from strandline import TimelineService
from strandline.fleet.roster import Roster
from strandline.fleet.state.sqlite import SqliteState
from tests.kit import (
    document_page,
    notebook,
)
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.debian import program
from tests.kit.servers.free_port import free_port
from tests.kit.servers.s3_server import S3Endpoint

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


READ = ("README.md", "docs/reading.md", "docs/tables.md", "docs/doctor.md")


def output_of(code: str) -> str:
    """Return what an example prints in a process of its own, which must not fail or warn."""
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.property
def test_examples_of_the_readme_run(tmp_path: Path) -> None:
    """The first two Python blocks, on the engine that needs no Spark."""
    found = re.findall(r"```python\n(.*?)```", text("README.md"), re.S)
    code = "\n".join(found[:2]).replace("/tmp/flights", str(tmp_path / "flights"))
    code += "\nprint(history.num_rows, late.values.tolist(), lazy.collect().height, busy.rows())"
    printed = output_of(f"{code}\nprint(then.num_rows)")
    assert printed.splitlines()[1:] == ["2 [['b', 9]] 1 [('tue', 1)]", "2"]


@pytest.mark.property
def test_examples_of_the_reading_guide_run(tmp_path: Path) -> None:
    """On the table that the README's example writes."""
    blocks = [re.findall(r"```python\n(.*?)```", text(name), re.S) for name in READ]
    code = "\n".join([blocks[0][0], *blocks[1], *blocks[2], *blocks[3]])
    code = code.replace("/tmp/flights", str(tmp_path / "flights"))
    output_of(code + "\nassert scan.to_arrow().to_pylist() == [{'id': 'b', 'late': 9}]\n")


@pytest.mark.property
def test_examples_of_the_writing_guide_run(tmp_path: Path) -> None:
    """All Python blocks, one after the other, in a process of their own."""
    blocks = re.findall(r"```python\n(.*?)```", text("docs/writing.md"), re.S)
    assert len(blocks) >= 3
    code = "\n".join(blocks).replace("/lake/flights", str(tmp_path / "flights"))
    output_of(code + "\nassert offset == '1042'\n")


FIRST = ROOT / "docs" / "tutorials" / "first-table.md"
PAGES = sorted(
    path
    for folder in ("tutorials", "how-to", "explanation", "python")
    for path in (ROOT / "docs" / folder).glob("*.md")
)
PORTS = ("26754", "26755", "26756")


def test_the_stream_of_the_tutorial_is_the_example() -> None:
    page = text("docs/tutorials/stream.md")
    shown = [each.code for each in document_page.blocks(page, on_spark=True)]
    assert len(shown) == 3
    example = text("examples/stream.py")
    assert [
        code for code in shown if code not in example and indent(code, "    ") not in example
    ] == []


def test_the_job_of_the_tutorial_has_the_seven_options() -> None:
    (lines,) = re.findall(r"```properties\n(.*?)```", text("docs/drop-in.md"), re.S)
    wanted = dict(line.split("=") for line in lines.splitlines())
    (code,) = re.findall(r"```py\n(.*?)```", text("docs/tutorials/drop-in.md"), re.S)
    (options,) = (
        ast.literal_eval(each.value)
        for each in ast.parse(code).body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict)
    )
    host = "hoodie.filesystem.view.remote.host"
    assert len(wanted) == 7
    assert wanted.items() <= {**options, host: wanted[host]}.items()


@pytest.fixture(scope="module")
def first_table(
    tmp_path_factory: pytest.TempPathFactory, s3: S3Endpoint
) -> tuple[Path, dict[str, Any]]:
    """A folder in place of `/tmp` with the first tutorial's table, and its Python names."""
    program("curl", "curl", "ca-certificates")
    s3.storage_at("s3://lake")._fs.call_s3("create_bucket", Bucket="lake")
    folder = tmp_path_factory.mktemp("pages")
    written = FIRST.read_text("utf-8").partition("\n## Read\n")[0]
    names = document_page.run(document_page.blocks(written, {"/tmp/": f"{folder}/"}))
    # A service of their own for the clients of later pages would take most of the time.
    names["options"]["hoodie.embed.timeline.server"] = "false"
    shutil.copytree(folder / "lake", folder / "kept")
    return folder, names


@pytest.mark.property
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(
    page: Path,
    first_table: tuple[Path, dict[str, Any]],
    s3: S3Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but the first tutorial's begins with the table that it has written."""
    folder, names = first_table
    # A service that is slow on a busy machine is waited for.
    assert connect.__kwdefaults__ is not None
    monkeypatch.setitem(connect.__kwdefaults__, "patience", Patience(first_s=PATIENCE_S))
    places = {"/tmp/": f"{folder}/", "http://localhost:9000": s3.endpoint}
    places |= {port: str(free_port()) for port in PORTS}
    shutil.rmtree(folder / "lake", ignore_errors=True)
    if page == FIRST:
        names = {}
    else:
        shutil.copytree(folder / "kept", folder / "lake")
    found = document_page.blocks(page.read_text("utf-8"), places)
    document_page.run(found, names, str(page.relative_to(ROOT)))


def test_a_port_of_a_page_may_be_one_of_this_run() -> None:
    (block,) = document_page.blocks("```sh\n1 2\n```\n", {"1": "2", "2": "3"})
    assert block.code == "2 3\n"


def test_what_a_page_leaves_running_has_ended_with_it(tmp_path: Path) -> None:
    code = """```sh
(trap 'touch /tmp/ended; exit' TERM; touch /tmp/begun; while :; do sleep 60 || :; done) &
until test -e /tmp/begun; do :; done
```
"""
    document_page.run(document_page.blocks(code, {"/tmp/": f"{tmp_path}/"}))
    assert (tmp_path / "ended").exists()


def test_the_notebook_is_the_first_tutorial() -> None:
    made = notebook.notebook(FIRST.read_text("utf-8"))
    assert notebook.NOTEBOOK.read_text("utf-8") == made, "run: python -m tests.kit.notebook --write"


@pytest.mark.product  # they are the tutorial's blocks, which run on every change
def test_the_notebooks_cells_run(tmp_path: Path) -> None:
    cells = json.loads(notebook.NOTEBOOK.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "notebook"}
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 8
    for cell in code:
        assert cell["outputs"] == []
        source = cell["source"].replace("/tmp/", f"{tmp_path}/")
        exec(compile(source, cell["id"], "exec"), names)


class LocalRdd:
    """Stands for Spark's, with each task's function pickled as Spark does."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def map(self, function: Callable[[Any], Any]) -> LocalRdd:
        return LocalRdd([*map(cloudpickle.loads(cloudpickle.dumps(function)), self.items)])

    def collect(self) -> list[Any]:
        return self.items


@pytest.mark.property
def test_examples_of_the_guides_to_executors_and_operating_run(
    first_table: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a service in this process, which is the only server of a fleet."""
    table = str(first_table[0] / "kept" / "flights")
    (tmp_path / "mycompany").mkdir()
    (tmp_path / "mycompany" / "http.py").write_text("from requests import Session as make_session")
    monkeypatch.syspath_prepend(tmp_path)
    service = TimelineService([table], in_process=True)
    with service, closing(SqliteState(tmp_path / "fleet")) as state:
        roster = Roster(state, service.url, clock=ManualClock(0), roots=[table])
        roster.join()
        roster.step()
        places = {
            "zk://zk1:2181/lake": f"sqlite://{tmp_path / 'fleet'}",
            "s3://lake/flights": table,
            "/lake/trips": table,
        }
        in_readme = {"http://127.0.0.1:26754": service.url, '"..."': repr(service.token)}
        in_readme["/lake/flights"] = table
        places |= dict.fromkeys(("http://10.0.0.5:26754", "http://lake-service:26754"), service.url)
        names = {"token": service.token, "url": service.url, "base_path": table}
        names["rdd"] = LocalRdd(["mon", "tue"])
        found = [
            block
            for guide in ("docs/executors.md", "docs/operating.md")
            for block in document_page.blocks(text(guide), places)
            if block.language == "python"
        ]
        of_the_readme = document_page.blocks(text("README.md"), places | in_readme)[2]
        assert (len(found), "connect" in of_the_readme.code) == (5, True)
        document_page.run([of_the_readme])
        names = document_page.run(found, names)
        assert names["found"].urls == (service.url,)
    assert [len(files) for files in names["by_partition"]] == [0, 0]
    assert "file_id" in names["table"].column_names
