"""What a stranger does with the wheel: the README's reading, commands, a service and its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.servers.free_port import free_port
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


A_MINUTE_S = 60
"""The longest that a stranger waits for one step; the installation is no step."""


# The wheel is found, not a checkout; and `serve` refuses variables that are no settings.
ENVIRON = {
    name: text
    for name, text in os.environ.items()
    if name != "PYTHONPATH" and not name.startswith("STRANDLINE_")
}


def run(command: list[str], folder: Path, timeout_s: float | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
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


def test_the_commands_on_a_merge_on_read_table(python: Path, tmp_path: Path) -> None:
    base = str(golden.build_final(TABLE, tmp_path / "table"))

    def strandline(*arguments: str) -> str:
        return run([str(python.with_name("strandline")), *arguments], tmp_path, A_MINUTE_S)

    truth = golden.truth(TABLE)
    history = json.loads(strandline("history", base, "--output", "json"))
    assert len(history["instants"]) >= len(truth["as_of"])
    rows = [json.loads(line) for line in strandline("read", base, "--output", "jsonl").splitlines()]
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in truth["snapshot"])
    assert json.loads(strandline("doctor", base, "--output", "json")) == {"findings": []}


def test_a_service_a_look_up_by_hand_and_the_page(python: Path, tmp_path: Path) -> None:
    base = golden.build_final(TABLE, tmp_path / "table")
    port = free_port()
    command = [str(python.with_name("strandline")), "serve", "--root", str(base), "--no-token"]
    with (tmp_path / "log").open("w") as log:
        command += ["--port", str(port)]
        serving = subprocess.Popen(command, cwd=tmp_path, env=ENVIRON, stderr=log)
    try:
        curl = ["curl", "-fsS", "--retry", "50", "--retry-connrefused", "--retry-delay", "1"]
        service = f"http://127.0.0.1:{port}"
        assert json.loads(run([*curl, f"{service}/healthz"], tmp_path, A_MINUTE_S))["ok"]
        partition = golden.truth(TABLE)["snapshot"][0]["_hoodie_partition_path"]
        asked = f"slices/partition/latest?basepath={base}&partition={partition}"
        answer = run([*curl, f"{service}/v1/hoodie/view/{asked}"], tmp_path)
        assert json.loads(answer)
        assert "<title>" in run([*curl, f"{service}/ui/"], tmp_path, A_MINUTE_S)
    finally:
        serving.terminate()
        serving.wait(A_MINUTE_S)
