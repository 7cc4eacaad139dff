"""Each code block of the documents runs in a test, or its reason why it does not is here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from strandline.write.options.client_options import ALIASES
from strandline.write.options.foreign_options import HARMLESS, REFUSED, WITHOUT_EFFECT
from tests.kit import reference

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")))
CODE, GUIDE = "tests/test_document_code.py::", "tests/strandline/cli/test_command_line_guide.py::"
RUN = (
    ("docs/*/*.md", "python sh text", f"{CODE}test_the_code_of_a_page_runs"),
    ("README.md", "python", f"{CODE}test_examples_of_the_readme_run"),
    ("docs/reading.md", "python", f"{CODE}test_examples_of_the_reading_guide_run"),
    ("docs/tables.md", "python", f"{CODE}test_examples_of_the_reading_guide_run"),
    ("docs/doctor.md", "python", f"{CODE}test_examples_of_the_reading_guide_run"),
    ("docs/writing.md", "python", f"{CODE}test_examples_of_the_writing_guide_run"),
    ("docs/executors.md", "python", f"{CODE}test_examples_of_the_guides_to_executors"),
    ("docs/operating.md", "python", f"{CODE}test_examples_of_the_guides_to_executors"),
    ("docs/command-line.md", "console", f"{GUIDE}test_examples_print_what_the_guide_says"),
    ("docs/command-line.md", "toml", f"{GUIDE}test_the_file_of_tables_in_the_guide_is_one"),
    ("docs/reading.md", "py text", "tests/spark/test_pages.py::test_reading_on_spark"),
    ("docs/how-to/stream.md", "py", "tests/spark/test_pages.py::test_a_stream"),
    ("docs/tutorials/stream.md", "py", f"{CODE}test_the_stream_of_the_tutorial_is_the_example"),
    ("docs/tutorials/drop-in.md", "py", "tests/oracle/drop_in/test_tutorial.py::test_"),
    ("docs/drop-in.md", "properties", f"{CODE}test_the_job_of_the_tutorial_has_the_seven_options"),
    ("*", "properties", "tests/test_code_blocks.py::test_every_property_is_one"),
    ("*", "pyi", "tests/test_docs.py::test_the_pages_of_python_names_are_what_the_docstrings_say"),
)
"""Documents, languages of their blocks, and the test that runs or compares these."""
EXAMPLE = "run by tests/test_examples.py or tests/spark/test_examples.py"
INSTALLS = "installs packages; tests/release/test_distribution.py installs the wheel"
FLEET = "needs a fleet on several machines; tests/strandline/fleet and tests/fleet have fleets"
SHOWN = "what a program prints or logs"
SERVICE = "needs a service at that address; tests of the routes ask one"
CLUSTER = "needs a cluster; tests/spark/cluster has jobs on other hosts"
NOT_RUN: dict[str, dict[str, str]] = {
    "ARCHITECTURE.md": {"   driver process": "a drawing"},
    "CONTRIBUTING.md": {"python3 -m venv": "runs all tests"},
    "README.md": {
        "python3 -m venv": "installs 1.5 GB; tests/demo runs the demo",
        ".venv/bin/tox p": "runs all tests",
        "pip install .": INSTALLS,
    },
    "docs/command-line.md": {"strandline read trips": "needs the commands of DuckDB and jq"},
    "docs/doctor.md": {
        "strandline doctor /lake/flights": "tests of the doctor run it on tables with faults",
        "$ strandline doctor": SHOWN,
        "strandline history /lake/flights": "test_preview.py has the file of a pending write",
    },
    "docs/drop-in.md": {"strandline serve": "needs that network; the tutorial's service runs"},
    "docs/executors.md": {
        "for package in": "run by tests/spark/cluster/test_lean_executors.py, in Python",
        "spark-submit --master spark:": CLUSTER,
        "apiVersion: v1": CLUSTER,
        "spark-submit --master k8s:": CLUSTER,
    },
    "docs/fleet.md": {"strandline serve --root": FLEET, "strandline serve --router": FLEET},
    "docs/how-to/fleet-groups.md": {
        "strandline fleet drain": FLEET,
        "strandline fleet mount": FLEET,
        "strandline fleet move": FLEET,
    },
    "docs/how-to/monitor.md": {"scrape_configs:": "settings of Prometheus"},
    "docs/how-to/s3.md": {"pip install": INSTALLS},
    "docs/how-to/size-a-fleet.md": {"group    table": SHOWN},
    "docs/how-to/slow-look-up.md": {"curl -s": SERVICE},
    "docs/how-to/upgrade.md": {
        "git pull": INSTALLS,
        "python3 -m venv /opt": INSTALLS,
        "createdb": "needs a fleet on PostgreSQL",
    },
    "docs/how-to/watch-a-fleet.md": {"fleet zk:": SHOWN, "seat  server": SHOWN},
    "docs/markers.md": {"<base path>": "the content of files"},
    "docs/operating.md": {
        "strandline serve": "the same as the tutorial's, which runs",
        "mv new-cert.pem": "tests of `serve` renew a certificate by SIGHUP",
        "strandline.serve.storage.options": "a line of a file of settings",
        'curl -H "Authorization: Bearer $TOKEN" \'http://localhost': SERVICE,
        "$ curl -si": SERVICE,
        'curl -H "Authorization: Bearer $TOKEN" \'http://lake-service': SERVICE,
        '{"time"': SHOWN,
        "WARNING strandline.server.http.refusals": SHOWN,
        "WARNING strandline.server.http.connection_registry": SHOWN,
        "scrape_configs:": "settings of Prometheus",
        "OTEL_EXPORTER": "needs a collector; tests of traces have one",
    },
    "docs/releasing.md": {"   git clone": "makes a release"},
    "docs/stores.md": {"strandline fleet spread": "needs three databases; tests/fsview/store/sql"},
    "docs/tutorials/first-table.md": {"python3 -m venv": INSTALLS},
    "docs/tutorials/stream.md": {
        "pip install": INSTALLS,
        "python examples/stream.py": EXAMPLE,
        "batch 0: 3 new": SHOWN,
        "echo '{": "adds a file to the checkout",
    },
    "docs/writing.md": {"hoodie.datasource.write.partitionpath.fields": SHOWN},
    "examples/README.md": {
        "python examples/batch_job.py": EXAMPLE,
        "python examples/stream.py": EXAMPLE,
        "python examples/without_spark.py": EXAMPLE,
        "python examples/read_rows.py": EXAMPLE,
    },
}
"""Document → first line of a block, or its beginning → why no test runs it."""


class Block(NamedTuple):
    """A block: its document, its language (``""`` without one), and its lines."""

    document: str
    language: str
    lines: tuple[str, ...]


def blocks() -> Iterator[Block]:
    """Yield the fenced blocks and the indented ones, but for the index's trees."""
    for path in DOCUMENTS:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        fence = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.M | re.S)
        for _, language, code in fence.findall(text):
            if language != "{toctree}":
                yield Block(name, language, tuple(code.splitlines()))
        for code in re.findall(r"(?<=\n\n)((?:    .*\n)+)", fence.sub("", text)):
            yield Block(name, "indented", tuple(line[4:] for line in code.splitlines()))


def runs(block: Block) -> bool:
    return any(
        fnmatch(block.document, pattern) and block.language in languages.split()
        for pattern, languages, _ in RUN
    )


def test_each_block_runs_or_its_reason_is_here() -> None:
    left = {(block.document, block.lines[0]) for block in blocks() if not runs(block)}
    told = {(document, first) for document, found in NOT_RUN.items() for first in found}
    missing = {each for each in left if not any(begins(each, other) for other in told)}
    needless = {each for each in told if not any(begins(other, each) for other in left)}
    assert (missing, needless) == (set(), set())


def begins(block: tuple[str, str], reason: tuple[str, str]) -> bool:
    return block[0] == reason[0] and block[1].startswith(reason[1])


def test_the_tests_that_run_blocks_exist() -> None:
    for _, _, test in RUN:
        file, name = test.split("::")
        assert f"def {name}" in (ROOT / file).read_text("utf-8"), test


def test_every_property_is_one() -> None:
    """Of a service, a writer, or one of Hudi's that writers know or Hudi's clients read."""
    entries = (*REFUSED, *WITHOUT_EFFECT, *HARMLESS)
    known = {setting.name for setting in reference.settings()} | {*ALIASES}
    known |= {name for entry in entries for name in entry.names}
    lines = [line for each in blocks() if each.language == "properties" for line in each.lines]
    names = [line.partition("=")[0] for line in lines if not line.startswith("#")]
    assert len(names) >= 15
    assert [
        name
        for name in names
        if name not in known and not name.startswith("hoodie.filesystem.view.")
    ] == []


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    """In each block, run or not, and whatever its language."""
    commands = dict(reference.commands())
    seen = set()
    for block in blocks():
        code = "\n".join(block.lines).replace("\\\n", " ")
        for line in re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*strandline (.*)$", code, re.M):
            words = re.split(r" [|&>#]| 2>", line)[0].split()
            words = words[1:] if words[0] == "--debug" else words
            name = " ".join(words[:2]) if " ".join(words[:2]) in commands else words[0]
            name = " ".join(words[:3]) if " ".join(words[:3]) in commands else name
            assert name in commands, (block.document, line)
            options = {each for option in commands[name].params for each in option.opts}
            given = {word.split("=")[0].strip("[]") for word in words if word[:2] == "--"}
            assert given <= options, (block.document, line)
            seen.add(name)
    assert {"serve", "clean", "fleet mount add", "doctor"} <= seen
