"""What a stranger does: install the wheel beside other packages, and run the README's reading."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.tables import golden

# It downloads 150 MB.
pytestmark = pytest.mark.product

ROOT = Path(__file__).parents[1]
PACKED = ("timeline", "fsview", "executor_proxy", "strandline")
TABLE = "multi_mor_v6"
LATE = 1028
PRINTED = """
import json, sys
print(json.dumps({
    "history": history.num_rows,
    "pandas": late.to_dict("records"),
    "polars": lazy.select("id", "ts").collect().to_dicts(),
    "duckdb": dict(busy.rows()),
    "then": then["id"].to_pylist(),
    "found in": sys.modules["strandline"].__file__,
}))
"""


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and the newest pandas, Polars and DuckDB."""
    folder = tmp_path_factory.mktemp("stranger")
    for name in PACKED:
        shutil.copytree(
            ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    run([sys.executable, "-m", "venv", "new"], folder)
    found = folder / "new" / "bin" / "python"
    pip = [str(found), "-m", "pip", "-q", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "-w", ".", "./source"], folder)
    (wheel,) = folder.glob("strandline-*.whl")
    run([*pip, "install", "--no-compile", str(wheel), "pandas", "polars", "duckdb"], folder)
    return found


def test_the_readmes_reading_on_a_merge_on_read_table(python: Path, tmp_path: Path) -> None:
    (block,) = re.findall(
        r"```python\n((?:(?!```).)*?to_lazy.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S
    )
    assert len(block.splitlines()) <= 12
    base = golden.build_final(TABLE, tmp_path / "table")
    # The same steps on a table with other columns.
    others = {
        "/tmp/flights": str(base),
        '"late"': '"ts"',
        "where late >": "where ts >",
        " > 0": f" > {LATE}",
        "day": "p",
    }
    script = block
    for name, other in others.items():
        assert name in script
        script = script.replace(name, other)
    script += PRINTED
    found = json.loads(run([str(python), "-c", script], tmp_path).splitlines()[-1])
    truth = golden.truth(TABLE)
    late = sorted((row["id"], row["ts"]) for row in truth["snapshot"] if row["ts"] > LATE)
    assert 0 < len(late) < len(truth["snapshot"])
    for engine in ("pandas", "polars"):
        assert sorted((row["id"], row["ts"]) for row in found[engine]) == late
    partitions = Counter(row["p"] for row in truth["snapshot"] if row["ts"] > LATE)
    assert found["duckdb"] == partitions
    earliest = next(rows for _, rows in sorted(truth["as_of"].items()) if isinstance(rows, list))
    assert len(earliest) != len(truth["snapshot"])
    assert sorted(found["then"]) == sorted(row["id"] for row in earliest)
    assert found["history"] >= len(truth["as_of"])
    assert Path(found["found in"]).is_relative_to(python.parents[1])
