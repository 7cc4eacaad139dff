"""An executor with only pyarrow, numpy and fsspec installed works like any other."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest

from strandline.server.process.timeline_service import TimelineService
from tests.executor_proxy import lean_executor
from tests.kit.tables import golden
from timeline.table.config import TableConfig

pytestmark = pytest.mark.property

NEEDED = ("pyarrow", "numpy", "fsspec")
"""What the README says that executors need."""
PACKAGES = ("timeline", "fsview", "executor_proxy", "strandline")
ROOT = Path(__file__).parents[2]


def test_the_readme_names_what_this_environment_has():
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"Executors need {', '.join(NEEDED)} and the packages" in text


@pytest.mark.parametrize(
    ("scenario", "first", "version"),
    [
        ("replace_mor_v6", 8, 6),  # commits are JSON
        ("mor_basic_v8", 4, 8),  # Avro
        ("archival_mor_v9", 15, 9),  # Avro, and an archive
    ],
)
def test_an_executor_with_three_distributions_finds_what_others_find(
    scenario, first, version, tmp_path
):
    steps = golden.steps(scenario)[first:]
    built = [golden.build(scenario, step, tmp_path / "steps" / f"{step:02d}") for step in steps]
    assert TableConfig.parse((built[0] / ".hoodie/hoodie.properties").read_bytes()).version == (
        version
    )
    base = tmp_path / "table"
    with (
        socket.socket() as refusing,
        TimelineService([str(base)], in_process=True) as service,
    ):
        refusing.bind(("127.0.0.1", 0))  # and doesn't listen
        said = lean_executor.Work(
            steps=[str(step) for step in built],
            base=str(base),
            partitions=partitions(built[-1]),
            live=service.url,
            token=service.token,
            dead=f"http://127.0.0.1:{refusing.getsockname()[1]}",
            written=str(tmp_path / "written"),
        )
        assert said["partitions"]
        found = run_lean(said, site_of(tmp_path / "site"))
        assert found.pop("there") == found.pop("loaded") == []
        assert found == lean_executor.work(said)
    assert found["asked"] == found["listed"]


def partitions(base: Path) -> list[str]:
    found = base.rglob(".hoodie_partition_metadata*")
    return sorted(str(path.parent.relative_to(base)) for path in found)


def site_of(site: Path) -> Path:
    """Copy these distributions, and those that they require, into a directory."""
    site.mkdir()
    for package in PACKAGES:
        home = import_module(package).__file__
        assert home is not None
        (site / package).symlink_to(Path(home).parent)
    left, seen = list(NEEDED), set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        required = (each for each in found.requires or () if "extra ==" not in each)
        left += [match[0] for each in required if (match := re.match(r"[\w.-]+", each))]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    return site


def run_lean(said: lean_executor.Work, site: Path) -> dict:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", lean_executor.__file__, str(site)],
        input=json.dumps(said),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
