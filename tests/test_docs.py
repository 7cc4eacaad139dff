"""The documents say what the code does: every command, setting and route."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import executor_proxy
import strandline
from strandline import Table
from strandline.__main__ import main
from strandline.settings.command_line import FLAGS, SERVE_SETTINGS
from strandline.settings.setting import Setting, SettingScope, declared
from strandline.settings.sources import variable
from tests.kit import (
    docstring_markdown,
    python_pages,
    python_reference,
    reference,
    site,
)
from timeline import errors

ROOT = Path(__file__).parents[1]
PACKAGES = ("timeline", "fsview", "executor_proxy", "strandline")
_OF_SPARK = (".__main__", ".spark", ".spark_rows", ".spark_source", "strandline.stream")


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_reference_is_what_the_code_says() -> None:
    again = "run: python -m tests.kit.reference --write"
    assert text("docs/reference.md") == reference.reference(), again
    assert text("docs/python.md") == python_reference.python_reference(), again


def test_the_pages_of_python_names_are_what_the_docstrings_say() -> None:
    pages = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs/python").glob("*.md")}
    again = "run: python -m tests.kit.reference --write"
    assert pages == {name: python_pages.page(name) for name in python_pages.PAGES}, again


def test_every_public_name_is_in_the_reference() -> None:
    """And so is every public method, with what its docstring says of its parameters."""
    pages = "".join(text(f"docs/python/{name}.md") for name in python_pages.PAGES)
    modules = [strandline, executor_proxy]
    names = {name for module in modules for name in module.__all__ if not name.startswith("_")}
    assert {"Table", "connect"} <= names
    classes = [each for name in names if isinstance(each := public(name), type)]
    methods = {
        f"{kind.__name__}.{name}"
        for kind in classes
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
    }
    assert {"Table.scan", "WriteClient.upsert"} <= methods
    headings = set(re.findall(r"^##+ (.*)$", pages, re.M))
    assert {*names, *methods} <= headings
    section = pages.split("\n### Table.scan\n")[1].split("\n### ")[0]
    parameters = [*inspect.signature(Table.scan).parameters][1:]
    assert [name for name in parameters if f"- `{name}`: " not in section] == []
    assert "**Raises**\n\n- `InputError`: There is no such column" in section


def public(name: str) -> Any:
    return getattr(strandline if name in strandline.__all__ else executor_proxy, name)


def test_a_docstring_becomes_markdown() -> None:
    doc = """Return rows.

A text with ``names``, and docs/doctor.md.

Args:
    first: A text
        of two lines.
    **others: Any.

Returns:
    A table:

    * ``a``: int64;
      in bytes.

Raises:
    ValueError: It is bad:

        * in one way.

Cost: a list
    of the folder.

An end."""
    assert (
        docstring_markdown.markdown(doc, "..")
        == """Return rows.

A text with `names`, and [docs/doctor.md](../docs/doctor.md).

**Parameters**

- `first`: A text of two lines.
- `**others`: Any.

**Returns**: A table:

* `a`: int64;
  in bytes.

**Raises**

- `ValueError`: It is bad:

  * in one way.

**Cost**: a list
of the folder.

An end."""
    )


def codes_of_the_service() -> Iterator[str | int]:
    """Yield codes of answers that the service's source makes without a class, or statuses."""
    for path in (ROOT / "strandline" / "server").rglob("*.py"):
        source = path.read_text("utf-8")
        if not re.search(r"\b(?:Refusal|RefusedError|bad)\(", source):
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            given = [each for part in node.args for each in ast.walk(part)]
            values = [each.value for each in given if isinstance(each, ast.Constant)]
            if node.func.id in ("Refusal", "bad"):
                texts = [value for value in values if isinstance(value, str)]
                yield from (each for each in texts if re.fullmatch(r"[a-z]+(_[a-z]+)+", each))
            elif node.func.id == "RefusedError":
                yield from (each for each in values if isinstance(each, int))


@pytest.mark.property
def test_every_code_of_an_answer_is_in_the_reference() -> None:
    found = {*codes_of_the_service()}
    assert {"cursor_gone", 401} <= found
    assert found <= {each for told in python_reference.REFUSALS for each in told}


def test_every_code_of_a_class_is_in_the_reference() -> None:
    """Of all classes that the packages define, imported or not."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    names = "|".join(kind.__name__ for kind in kinds if issubclass(kind, errors.StrandlineError))
    defined = re.compile(rf"^class (\w+Error)\((?:{names}|WrongTablesError)\b", re.M)
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {name for path in sources for name in defined.findall(path.read_text("utf-8"))}
    assert {"TableNotFoundError", "WrongTablesError"} <= found
    told = text("docs/python.md").partition("\n## Errors\n")[2]
    assert [name for name in sorted(found) if f"`{name}` | `" not in told] == []


def declared_settings() -> Iterator[Setting[Any]]:
    """Yield the settings that any module of ``strandline`` declares, but for Spark's adapter."""
    for module in pkgutil.walk_packages(strandline.__path__, "strandline."):
        if not module.name.endswith(_OF_SPARK):
            yield from declared(vars(importlib.import_module(module.name)))


def test_every_declared_setting_is_in_the_reference() -> None:
    names = {setting.name for setting in reference.settings()}
    found = {setting.name for setting in declared_settings()}
    assert "hoodie.index.type" in found
    assert found <= names


@pytest.mark.property
def test_every_span_is_in_the_reference() -> None:
    """A name's first word; names of requests begin with their method."""
    made = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(
            r"""\b(?:span|child|_recorded)\(f?"([a-z ]+)["{]""", path.read_text("utf-8")
        )
    }
    assert {"sync", "load", "execute clean", "write ", "step "} <= made
    rows = " ".join(first for first, *_ in reference.SPANS)
    assert [name for name in sorted(made) if f"`{name}" not in rows] == []


def test_settings_have_one_row_each() -> None:
    names = [setting.name for setting in reference.settings()]
    assert len(set(names)) == len(names)
    assert not set(reference.ALIASES) & set(names)


def test_every_setting_has_a_scope_and_whole_sentences() -> None:
    wrong = [
        setting.name
        for setting in reference.settings()
        if setting.scope not in SettingScope.__args__ or not setting.doc.strip().endswith(".")
    ]
    assert wrong == []


def test_every_route_that_is_served_is_in_the_reference() -> None:
    told = {
        match.rstrip("/")
        for match in re.findall(r"^\| `((?:GET|POST) /[^`]*)`", text("docs/reference.md"), re.M)
    }
    assert {route.rstrip("/") for route in reference.served()} == told


def test_every_command_has_a_heading() -> None:
    names = [name for name, _ in reference.commands()]
    assert names
    assert all(f"### strandline {name}\n" in text("docs/reference.md") for name in names)


@pytest.mark.parametrize("name", [name for name, _ in reference.commands()])
def test_every_command_has_help(name: str) -> None:
    told = CliRunner().invoke(main, [*name.split(), "--help"], prog_name="strandline")
    assert told.exit_code == 0
    assert told.stdout.startswith(f"Usage: strandline {name}")


def test_every_tox_environment_is_explained() -> None:
    environments = re.findall(r"^\[testenv:(\w+)\]", text("tox.ini"), re.M)
    contributing = text("CONTRIBUTING.md")
    assert [name for name in [*environments, "py"] if f"`{name}`" not in contributing] == []


def rooms() -> set[str]:
    """Return the folders of the four packages that hold modules."""
    return {
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }


def paths_named(document: str) -> set[str]:
    """Return the paths in back quotes that begin with a folder of the repository."""
    quoted = re.findall(r"`([\w.-]+/[\w./-]*)`", document)
    return {path for path in quoted if (ROOT / path.split("/")[0]).is_dir()}


def test_codemap_has_a_row_for_every_room() -> None:
    """A row names its room as a folder, or modules of it by their paths."""
    codemap = text("ARCHITECTURE.md").split("\n## Codemap\n")[1].split("\n## ")[0]
    rows = "\n".join(line for line in codemap.splitlines() if line.startswith("|"))
    named = {
        path.rpartition("/")[0]
        for path in paths_named(rows)
        if path.startswith(tuple(f"{package}/" for package in PACKAGES))
    }
    assert named == rooms()


def test_architecture_names_only_what_is_there() -> None:
    named = paths_named(text("ARCHITECTURE.md"))
    assert len(named) >= len(rooms())
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"))
)


FLEET_PAGES = sorted(
    f"docs/{folder}/{path.name}"
    for folder in ("how-to", "explanation")
    for path in (ROOT / "docs" / folder).glob("*fleet*.md")
)


def test_links_lead_to_files(subtests: pytest.Subtests) -> None:
    for document in DOCUMENTS:
        with subtests.test(document=document):
            for target in re.findall(r"\]\(([^)#]+)\)", text(str(document))):
                is_file = (ROOT / document.parent / target).exists()
                assert target.startswith("http") or is_file, target


@pytest.mark.parametrize("guide", ["docs/operating.md", "docs/fleet.md", *FLEET_PAGES])
def test_the_settings_in_the_operators_guides_exist(guide: str) -> None:
    told = text(guide)
    options = {
        name for _, verb in reference.commands() for each in verb.params for name in each.opts
    }
    variables = {variable(setting) for flag in FLAGS for setting in flag.settings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", told)) <= options
    assert set(re.findall(r"STRANDLINE_[A-Z_]+", told)) <= {
        *variables,
        "STRANDLINE_PORT",
        "STRANDLINE_",
    }
    assert set(re.findall(r"\bstrandline\.(?:serve|fleet)(?:\.[a-z]+)+", told)) <= {
        s.name for s in SERVE_SETTINGS
    }


def test_the_index_lists_every_document_for_readers_and_for_the_site() -> None:
    """As links for those who read it in a checkout, and in the site's trees of contents."""
    index = text("docs/index.md")
    trees = re.findall(r"^```\{toctree\}\n(?::.*\n)*\n((?:.+\n)+)```$", index, re.MULTILINE)
    named = [name for tree in trees for name in tree.split()]
    assert sorted(named) == sorted(re.findall(r"^- \[.*?\]\((\S+?)\)", index, re.MULTILINE))
    folder = ROOT / "docs"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    assert {name for name in named if not name.startswith("..")} == found - {"index.md"}


@pytest.mark.property
def test_the_site_is_built_anew_each_time(tmp_path: Path) -> None:
    """Sphinx doesn't warn again of pages that haven't changed."""
    left = tmp_path / "site" / "left.html"
    left.parent.mkdir()
    left.touch()
    assert site._sphinx("no-builder", left.parent) > 0
    assert not left.exists()


def test_what_a_page_of_the_site_loads_from_other_hosts_is_found() -> None:
    page = """<a href="https://a.example/"><img src='//b.example/i.png'><link rel=stylesheet
      href="https://c.example/s.css"><script src="_static/s.js"></script>
      <style>@import "https://d.example/t.css";</style>"""
    assert site.loads_elsewhere(page, ".html") == [
        "//b.example/i.png",
        "https://c.example/s.css",
        "https://d.example/t.css",
    ]
    styles = "a { background: url(https://e.example/f.woff) } b { background: url(data:x) }"
    assert site.loads_elsewhere(styles, ".css") == ["https://e.example/f.woff"]


def test_a_search_that_needs_a_server_is_found(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    options = tmp_path / "_static" / "documentation_options.js"
    options.write_text("SHOW_SEARCH_SUMMARY: false,")
    (tmp_path / "search.html").write_text('<script src="searchindex.js"></script>')
    assert site.searches_offline(tmp_path)
    options.write_text("SHOW_SEARCH_SUMMARY: true,")
    assert not site.searches_offline(tmp_path)


def moved(guide: str, *headings: str) -> list[str]:
    """Return the anchors that a guide had before its sections became pages, and lacks."""
    page = text(guide)
    there = {
        re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", page, re.M)
    } | set(re.findall(r'<a id="([\w-]+)">', page))
    return [each for each in headings if each not in there]


def test_anchors_of_sections_that_became_pages_are_still_there() -> None:
    """Links from elsewhere end at a sentence that leads on."""
    of_writing = """one-commit who-writes-the-driver-or-the-executors its-requests long-timelines
        commits-archived-beyond-a-savepoint what-a-commit-recorded a-commit-in-doubt
        a-data-file-in-doubt overwriting deleting-partitions concurrent-overwrites
        merge-on-read-tables compaction streams each-batch-once beside-a-stream
        rolling-back-and-cleaning by-hand-and-under-cron cleaning-beside-the-next-write archiving
        locks file-systems-without-exclusive-creates conflicts found-early markers heartbeats repair
        what-remains which-row-wins partial-updates-and-delete-markers indexes
        rows-that-change-during-a-write tables-with-a-metadata-table schemas-that-change options
        hudis-quick-start"""
    of_fleet = """seats groups mounts moves routers records who-answers sizes load plans watch-it
        what-happens-when runbooks what-is-refused mechanisms"""
    assert moved("docs/writing.md", *of_writing.split()) == []
    assert moved("docs/fleet.md", *of_fleet.split()) == []


def test_the_writing_guide_says_which_errors_are_retryable() -> None:
    """Its table names classes of the tree, with their own attribute."""
    section = text("docs/writing.md").split("\n## Errors, and whether")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`\w+Error`[^|]*) \| \**(yes|no)\** \|", section, re.M)
    told = {name: answer for names, answer in rows for name in re.findall(r"\w+Error", names)}
    assert len(told) >= 14
    assert told == {name: "yes" if getattr(errors, name).retryable else "no" for name in told}
