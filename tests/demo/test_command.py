"""The demo's command line: what is refused, and what is chosen."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from demo import packages_of
from demo.__main__ import _arguments, _folder
from demo.record import ServiceKill

LOCAL = ["--storage", "local"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*LOCAL, "--days", "many"], "argument --days: 'many' is not a whole number"),
        ([*LOCAL, "--days", "2"], "argument --days: 2 is not 3 to 365"),
        ([*LOCAL, "--outage", "some"], "argument --outage: 'some' is not a whole number"),
        ([*LOCAL, "--outage", "-1"], "argument --outage: -1 is not 0 to 13"),
        (
            [*LOCAL, "--days", "6", "--outage", "3"],
            "argument --outage: 3 is not 0 to 2; the outage begins in batch 4 of --days 6",
        ),
        (["--outage", "1"], "argument --outage: it needs --storage local"),
        (["--partitions", "15"], "argument --partitions: 15 is not 16 to 364"),
        (["--days", "66"], "argument --days: 66 is not 1 to 65; the feed has 365 days, of which"),
        (["--delay-ms", "-1"], "argument --delay-ms: -1 is not 0 to 1000"),
    ],
)
def test_wrong_numbers_are_refused_with_what_is_allowed(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        _arguments(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("demo.__main__", ("duckdb", "hudi", "matplotlib", "pandas", "rich")),
        ("demo.fleet.__main__", ("duckdb", "hudi", "pandas")),
    ],
)
def test_a_package_that_is_missing_is_named_at_the_start(module, packages):
    """In a process of its own, as modules are imported anew without it."""
    environment = "fleet-demo" if "fleet" in module else "demo"
    for package in packages:
        code = f"import sys; sys.modules[{package!r}] = None; import {module}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        told = f"the demo needs {package}, which tox -e {environment} installs: "
        assert (done.returncode, done.stderr[: len(told)]) == (1, told), done.stderr


def test_a_module_of_the_demo_that_is_missing_is_no_package():
    with pytest.raises(ModuleNotFoundError, match="no_such"), packages_of("demo"):
        import_module("demo.no_such")


def test_an_object_store_is_the_default():
    args = _arguments([])
    assert (args.storage, args.days, args.partitions, args.delay_ms) == ("s3", 3, 300, 30)


@pytest.mark.parametrize(("days", "outage", "plan"), [(3, 1, "1,2-2"), (28, 3, "7,15-17")])
def test_the_outage_has_a_default_for_any_number_of_days(days, outage, plan):
    assert _arguments([*LOCAL, "--days", str(days)]).outage == outage
    assert str(ServiceKill.within(days, outage)) == plan


def test_every_outage_that_is_allowed_leaves_a_batch_after_it():
    for days in range(3, 366):
        default = _arguments([*LOCAL, "--days", str(days)]).outage
        longest = ServiceKill.longest(days)
        assert 1 <= default <= longest
        plan = ServiceKill.within(days, longest)
        assert ServiceKill.parse(str(plan)) == plan
        assert plan.last == days - 1


def test_a_relative_path_is_of_the_folder_in_which_the_demo_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with _folder(Path("kept")) as folder:
        assert folder == tmp_path / "kept"
