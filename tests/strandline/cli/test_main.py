"""The command line as a whole: what it imports, its help, its exit codes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from strandline.__main__ import COMMANDS, main
from strandline.cli.failure import UNTAKEN, why_untaken
from tests.strandline.write.tables import client, row, table

LIGHT = ("--version", "--help", "-h")


@pytest.mark.parametrize("option", LIGHT)
def test_help_and_version_import_no_command(option):
    code = (
        "import sys; from strandline.__main__ import main\n"
        f"try: main([{option!r}])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in"
        " ('pyarrow', 'numpy', 'rich', 'fsview', 'timeline', 'flask')"
        " or m.startswith('strandline.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_list_has_the_first_line_of_each_commands_help(name):
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").split("\n", maxsplit=1)[0] == COMMANDS[name]
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert COMMANDS[name][:40] in shown.stdout
    # Also below a command, such as `fleet mount`.
    for below in ((), *((each,) for each in getattr(command, "commands", ()))):
        texts = {CliRunner().invoke(main, [name, *below, o]).stdout for o in ("-h", "--help")}
        assert len(texts) == 1
        assert texts.pop().startswith("Usage: ")


def test_help_of_a_command_of_tables_imports_neither_arrow_nor_storage():
    """Arrow alone takes twice as long as the help."""
    names = sorted(COMMANDS.keys() - {"fleet", "serve"})
    code = (
        "import sys; from strandline.__main__ import main\n"
        f"for name in {names}:\n"
        "    try: main([name, '--help'])\n"
        "    except SystemExit as done: assert done.code == 0, name\n"
        "print(sorted({'pyarrow', 'numpy', 'fsspec', 'timeline.storage.open'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: ") == len(names)
    assert done.stdout.splitlines()[-1] == "[]"


OPTIONS = ("--as-of", "--since", "--until", "--filter", "--columns", "--limit", "--service")
BESIDE_TABLES = {"completion", "fleet", "serve", "top"}


def test_each_command_of_tables_takes_an_option_or_says_why_not():
    told = 0
    for name in sorted(COMMANDS.keys() - BESIDE_TABLES):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        taken = {option for each in command.params for option in each.opts}
        for option in OPTIONS:
            why = why_untaken(name, option)
            assert bool(why) == (option not in taken), (name, option)
            if why:
                done = CliRunner().invoke(main, [name, "table", option, "x"])
                assert (done.exit_code, done.stderr) == (2, f"Error: {why}\n")
                told += 1
    assert told == sum(len(UNTAKEN[option]) for option in OPTIONS)


def test_commands_are_completed(monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "strandline c")
    monkeypatch.setenv("COMP_CWORD", "1")
    done = CliRunner().invoke(
        main, [], prog_name="strandline", env={"_STRANDLINE_COMPLETE": "bash_complete"}
    )
    names = [name for name in sorted(COMMANDS) if name.startswith("c")]
    assert {"clean", "compact"} < set(names)
    assert done.stdout.splitlines() == [f"plain,{name}" for name in names]


@pytest.mark.parametrize("command", ["archive", "clean", "pins", "why"])
def test_paths_of_tables_are_completed(monkeypatch, command):
    """By the shell itself, which the type of the item asks for."""
    monkeypatch.setenv("COMP_WORDS", f"strandline {command} /la")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = CliRunner().invoke(
        main, [], prog_name="strandline", env={"_STRANDLINE_COMPLETE": "bash_complete"}
    )
    assert done.stdout.splitlines() == ["file,/la"]


def test_a_command_that_does_not_exist_is_refused_in_one_line():
    done = CliRunner().invoke(main, ["cleen"])
    assert done.exit_code == 2
    assert done.stderr == "Error: No such command 'cleen'; the nearest is 'clean'\n"
    far = CliRunner().invoke(main, ["zzzzzz"])
    assert far.stderr == "Error: No such command 'zzzzzz', see strandline --help\n"
    option = CliRunner().invoke(main, ["pins", "--ouput", "csv", "/t"])
    assert option.exit_code == 2
    assert "'--output'" in option.stderr


def test_a_group_without_a_command_shows_its_help():
    done = CliRunner().invoke(main, ["fleet"])
    assert "\nCommands:\n" in done.stdout + done.stderr


def test_usage_errors_have_no_control_characters():
    done = CliRunner().invoke(main, ["pins", "/t", "a\x1b]0;b\x07"], color=True)
    assert done.exit_code == 2
    assert "a\\x1b]0;b\\x07" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.property
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    with client(tmp_path / "t", clean__automatic="false") as c:
        for n in range(3):
            c.upsert(table(row("a", ts=n)))
    arguments = ["clean", str(tmp_path / "t"), "--retain", "1"]
    command = [sys.executable, "-m", "strandline", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: can't write: No space left on device\n")
    with open("/dev/full", "w") as full:
        helped = [*command[:4], "--help"]
        done = subprocess.run(helped, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: can't write: No space left on device\n")
    closed = f"{shlex.join(command)} >&-"
    done = subprocess.run(["sh", "-c", closed], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: can't write: stdout is closed\n")
    timeline = tmp_path / "t" / ".hoodie" / "timeline"
    before = {each.name for each in timeline.iterdir()}
    for ended in (
        [*command, "--apply", "--output", "json"],
        [*command[:3], "count", str(tmp_path / "t")],
        [*command[:3], "top", "http://127.0.0.1:1", "--once"],
    ):
        closed = f"{shlex.join(ended)} >&-"
        done = subprocess.run(["sh", "-c", closed], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "Error: can't write: stdout is closed\n")
    assert {each.name for each in timeline.iterdir()} == before
    read, write = os.pipe()
    os.close(read)  # a reader that has left
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
