"""Shells complete verbs, options, partitions and instants; what goes wrong completes nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from strandline import Table
from strandline.__main__ import main
from strandline.cli import completion
from strandline.cli.completion import SHELLS, complete_partition
from tests.kit.concurrency.patience import PROCESS_S
from tests.strandline.write.tables import client, row, table


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("written") / "t"
    with client(base) as c:
        c.upsert(table(row("a", "eu", ts=0), row("b", "us", ts=0)))
        c.upsert(table(row("a", "eu", ts=1)))
    return base


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are waited for however busy the machine is."""
    monkeypatch.setattr(completion, "BUDGET_S", PROCESS_S)


def completed(monkeypatch: pytest.MonkeyPatch, *words: object) -> list[str]:
    """Return the names that complete the last word."""
    monkeypatch.setenv("COMP_WORDS", " ".join(["strandline", *map(str, words)]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    environment = {"_STRANDLINE_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(main, [], prog_name="strandline", env=environment)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed(shell):
    done = CliRunner().invoke(main, ["completion", shell], prog_name="strandline")
    assert done.exit_code == 0
    assert f"_STRANDLINE_COMPLETE={shell}_complete" in done.stdout


def test_a_shell_that_is_not_known_is_refused():
    done = CliRunner().invoke(main, ["completion", "csh"])
    assert done.exit_code == 2
    assert "'csh' is not one of 'bash', 'fish', 'zsh'" in done.stderr


def test_verbs_and_options_are_completed(monkeypatch):
    assert completed(monkeypatch, "par") == ["partitions"]
    assert completed(monkeypatch, "files", "/t", "--as") == ["--as-of"]
    assert completed(monkeypatch, "files", "/t", "--output", "j") == ["json", "jsonl"]


def test_partitions_and_instants_are_those_of_the_table(base, monkeypatch):
    assert completed(monkeypatch, "files", base, "--partition", "e") == ["eu"]
    assert completed(monkeypatch, "files", base, "--partition", "") == ["eu", "us"]
    first, second = Table(base).history()["requested_time"].to_pylist()
    assert completed(monkeypatch, "commit", base, "20") == [second, first]
    assert completed(monkeypatch, "commit", base, second[:-1]) in ([second], [second, first])


def test_what_goes_wrong_completes_nothing(tmp_path, monkeypatch):
    assert completed(monkeypatch, "files", tmp_path, "--partition", "e") == []
    assert completed(monkeypatch, "files", "s4://x", "--partition", "e") == []
    context = click.Context(click.Command("files"))
    context.params = {"table": None}
    assert complete_partition(context, click.Option(["--partition"]), "") == []


def test_a_table_that_does_not_answer_completes_nothing(base, monkeypatch):
    context = click.Context(click.Command("files"))
    context.params = {"table": str(base)}
    answered, asked = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        asked.set()
        answered.wait(PROCESS_S)

    monkeypatch.setattr("fsview.local_view.open_view", slow)
    monkeypatch.setattr(completion, "BUDGET_S", 0.05)
    try:
        assert complete_partition(context, click.Option(["--partition"]), "") == []
        assert asked.wait(PROCESS_S)
    finally:
        answered.set()
