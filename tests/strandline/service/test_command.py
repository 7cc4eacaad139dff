"""``strandline serve``: what it refuses in one line, what its help says, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from executor_proxy.http import HttpSession
from strandline.__main__ import main
from tests.kit import golden

REPOSITORY = Path(__file__).parents[3]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments], prog_name="strandline")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give at least one --root"),
        (["--root", "", "--no-token"], "--root is empty"),
        (["--root", "/no/such/lake", "--no-token"], "--root /no/such/lake: no such directory"),
        (["--root", "/"], "give either --token-file FILE or --no-token"),
        (["--root", "/", "--no-token", "--token-file", "x"], "give either --token-file FILE or"),
        (["--root", "/", "--token-file", "/no/such"], "token file /no/such: No such file"),
        (["--root", "/", "--no-token", "--storage", "rocksdb"], "rocksdb needs a store directory"),
        (["--root", "/", "--no-token", "--memory", "0"], "0 is not in the range x>=1"),
        (["--root", "/", "--no-token", "--storage", "tape"], "'tape' is not one of 'memory', "),
        (["--root", "/", "--no-token", "--store-dir", "/x"], "memory keeps no files"),
        (["--root", "/", "--no-token", "--port", "70000"], "70000 is not in the range 0<=x<=65535"),
        (["--root", "/", "--no-token", "--threads", "0"], "0 is not in the range 1<=x<=1024"),
    ],
)
def test_bad_usage_is_refused_in_one_line_with_exit_code_2(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in result.output


def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--root", str(tmp_path), "--no-token", "--port", str(port))
    assert result.exit_code == 1
    assert (
        result.stderr == f"Error: can't listen on 127.0.0.1 port {port}: Address already in use\n"
    )


def test_a_store_directory_that_can_not_be_is_refused_in_one_line(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    arguments = ("--root", str(tmp_path), "--no-token", "--storage")
    for kind in ("spillable", "rocksdb"):
        result = run(*arguments, kind, "--store-dir", str(taken))
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert str(taken) in result.stderr


def test_the_help_names_every_option_and_the_defaults() -> None:
    said = " ".join(run("--help").output.split())
    for part in (
        "--root PATH",
        "[default: 127.0.0.1]",
        "[default: 26754; 0<=x<=65535]",
        "--storage [memory|spillable|rocksdb]",
        "--store-dir DIR",
        "--token-file FILE",
        "--no-token",
        "hoodie.embed.timeline.server=false",
        "/healthz answers 200",
    ):
        assert part in said
    assert "--child" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    base = golden.build("cow_basic_v9", 7, tmp_path / "lake" / "t")
    (tmp_path / "token").write_text("s3cret\n")
    command = [sys.executable, "-m", "strandline", "serve", "--root", str(tmp_path / "lake")]
    process = subprocess.Popen(
        [*command, "--port", "0", "--token-file", str(tmp_path / "token")],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    )
    with process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving "))
        url = line.split(" on ")[1].split()[0]
        assert line.endswith("to bearers of the token\n")
        with urllib.request.urlopen(f"{url}/healthz") as response:
            assert response.status == 200
        answer = HttpSession(url, "s3cret").post(
            "/v1/hoodie/view/loadallpartitions/", {"basepath": str(base)}
        )
        assert answer == b"true"
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(20) == 0
        assert "Traceback" not in rest
        assert "s3cret" not in line + rest
