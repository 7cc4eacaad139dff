"""docs/command-line.md: its examples print what it says, and it names only what exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from strandline.__main__ import COMMANDS, main
from strandline.cli.tables_file import NamedTable, named_tables
from tests.kit import reference

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/command-line.md").read_text("utf-8")
ANY = "…"


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of ``console`` blocks, and the lines that each prints."""
    for block in re.findall(r"```console\n(.*?)```", GUIDE, re.S):
        for part in block.split("$ ")[1:]:
            command, *lines = part.splitlines()
            yield command, lines


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that the README's example writes, without its service."""
    path = tmp_path_factory.mktemp("guide") / "flights"
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert block
    no_service = 'options = {"hoodie.embed.timeline.server": "false",'
    code = block[1].replace("options = {", no_service).replace("/tmp/flights", str(path))
    exec(code, {})
    return str(path)


@pytest.mark.property
def test_examples_print_what_the_guide_says(flights, subtests):
    """Words are compared, and … stands for any part of one."""
    count = 0
    for command, wanted in examples():
        count += 1
        with subtests.test(command=command):
            program, *arguments = shlex.split(command.replace("/tmp/flights", flights))
            assert program == "strandline"
            done = CliRunner().invoke(main, arguments)
            assert done.exit_code == 0, done.stderr
            printed = [
                line.split() for line in done.stdout.replace(flights, "/tmp/flights").splitlines()
            ]
            assert len(printed) == len(wanted)
            for words, line in zip(printed, wanted, strict=True):
                forms = [re.escape(word).replace(ANY, ".+") for word in line.split()]
                assert len(words) == len(forms), (words, line)
                assert all(map(re.fullmatch, forms, words)), (words, line)
    assert count > 20


def test_every_verb_is_in_its_table_and_every_metadata_verb_has_an_example():
    listed = GUIDE.split("## TABLE")[0]
    assert [verb for verb in COMMANDS if f"`{verb}`" not in listed] == []
    run = {command.split()[1] for command, _ in examples()}
    without = {"completion", "fleet", "serve", "top", "why"}
    assert {*COMMANDS} - run <= without


def test_the_file_of_tables_in_the_guide_is_one(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.S)
    file = tmp_path / "tables.toml"
    file.write_text(block)
    file.chmod(0o600)
    found = named_tables(file)["trips"]
    assert isinstance(found, NamedTable)
    assert found.storage_options["client_kwargs"] == {"endpoint_url": "http://minio:9000"}


def test_options_and_verbs_that_it_names_exist():
    verbs = dict(reference.commands())
    options = {name for verb in verbs.values() for each in verb.params for name in each.opts}
    ours = GUIDE.split("## From other command lines")[0]
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert told <= {*options, "--help", "--debug"}
    rows = GUIDE.split("## From other command lines")[1].splitlines()
    here = [line.split(" | ")[-1] for line in rows if line.startswith("| ") and "---" not in line]
    named = [re.split(" ", code)[0] for cell in here for code in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 15
    assert set(named) <= set(COMMANDS)
