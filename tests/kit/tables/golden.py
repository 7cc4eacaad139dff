"""Golden tables: real tables, step by step, with the answers of Hudi's own timeline server.

``tests/golden/<scenario>.zip`` holds one table's history as Hudi 1.2.0 (0.15.0 where the name ends
in ``_h0150``) wrote it, all in UTC::

    scenario.json           name, versions, write options, and of each step what was done
    steps/NN/listing.json   every file after step NN: path, size, mtime in ms;
                            empty directories end in "/"
    steps/NN/meta.tar.gz    .hoodie, and every .hoodie_partition_metadata
    steps/NN/mdt.tar.gz     .hoodie/metadata of tables with a metadata table
    final_table.tar.gz      of some tables: everything after the last step, data files included
    truth.json.gz           what Spark reads after the last step
    rest/NN.jsonl.gz        the server's answers at step NN, in the order of the requests
    rest_server_0150/       answers of the 0.15.0 server
    rest_mdt_off/           answers of a server that lists files beside a metadata table
    rest_mdt_on/            answers of a server that reads the metadata table

Data files are rebuilt as sparse files with the recorded size and modification time; in table
version 6 that time is the completion time. The first line of a recording is the Java client's
state. ``{BASE}`` stands for the base path. ``_server.zip`` holds recordings that belong to no step.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tests.kit.storage.read_only import ReadOnlyStorage
from timeline.errors import PathNotFoundError
from timeline.storage.base import FileInfo, StorageCalls, checked_path

FOLDER = Path(__file__).parents[2] / "golden"
SERVER = "_server"


@dataclass(frozen=True)
class Entry:
    """A file or empty directory of a listing; ``path`` is relative to the base path."""

    path: str
    size: int
    mtime_ms: int
    is_dir: bool


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer: ``body`` where it was JSON, else ``body_text``."""

    n: int
    phase: str
    method: str
    path: str
    params: Mapping[str, str]
    status: int
    content_type: str | None
    body: Any
    body_text: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Recording:
    """The exchanges with a server at one step, in order; ``client`` is the Java client's state."""

    client: Mapping[str, Any]
    exchanges: tuple[Exchange, ...]


def scenarios() -> tuple[str, ...]:
    """Return the names of all scenarios."""
    names = (path.stem for path in FOLDER.glob("*.zip"))
    return tuple(sorted(name for name in names if name != SERVER))


def info(scenario: str) -> dict[str, Any]:
    """Return ``scenario.json``."""
    return json.loads(_read(scenario, "scenario.json"))


def truth(scenario: str) -> dict[str, Any]:
    """Return what Spark reads after the last step: rows, count, schema, as_of."""
    return json.loads(gzip.decompress(_read(scenario, "truth.json.gz")))


def steps(scenario: str) -> tuple[int, ...]:
    """Return the numbers of a scenario's steps."""
    found = {name.split("/")[1] for name in _names(scenario) if name.startswith("steps/")}
    return tuple(sorted(int(step) for step in found))


def recorded_steps(scenario: str, server: str = "rest") -> tuple[int, ...]:
    """Return the steps that were recorded."""
    found = (name.split("/") for name in _names(scenario) if name.startswith(f"{server}/"))
    return tuple(sorted(int(parts[1].partition(".")[0]) for parts in found))


@cache
def listing(scenario: str, step: int) -> tuple[Entry, ...]:
    """Return every file below the base path after a step."""
    entries = orjson.loads(_read(scenario, f"steps/{step:02d}/listing.json"))
    return tuple(
        Entry(e["path"].rstrip("/"), e["size"], e["mtime"], e["path"].endswith("/"))
        for e in entries
    )


def contents(scenario: str, step: int) -> dict[str, bytes]:
    """Return path → contents of every metadata file."""
    return dict(_contents(scenario, step))


def build(scenario: str, step: int, directory: str | os.PathLike[str]) -> Path:
    """Rebuild a table as it was after a step, below ``directory``; return its base path."""
    base = Path(directory)
    base.mkdir(parents=True, exist_ok=True)
    known = contents(scenario, step)
    entries = listing(scenario, step)
    folders = {e.path if e.is_dir else os.path.dirname(e.path) for e in entries}
    for folder in folders:
        (base / folder).mkdir(parents=True, exist_ok=True)
    for entry in entries:
        path = base / entry.path
        if not entry.is_dir:
            with path.open("wb") as file:
                file.write(known.get(entry.path, b""))
                file.truncate(entry.size)
        os.utime(path, ns=(entry.mtime_ms * 1_000_000, entry.mtime_ms * 1_000_000))
    return base


def has_final_table(scenario: str) -> bool:
    """Return whether the data files of the last step are here."""
    return "final_table.tar.gz" in _names(scenario)


def build_final(scenario: str, directory: str | os.PathLike[str]) -> Path:
    """Unpack a table with its data files as it was after the last step; return its base path."""
    files, folders = _final(scenario)
    base = os.fspath(directory)
    for folder in folders:
        os.makedirs(os.path.join(base, folder), exist_ok=True)
    for path, (data, ns) in files.items():
        target = os.path.join(base, path)
        with open(target, "wb") as file:
            file.write(data)
        if ns is not None:
            os.utime(target, ns=(ns, ns))
    return Path(directory)


def final_files(scenario: str) -> dict[str, bytes]:
    """Return path → content of the data files and metadata as they were after the last step."""
    return {path: data for path, (data, _) in _final(scenario)[0].items()}


def recording(scenario: str, step: int, server: str = "rest", *, base: str = "{BASE}") -> Recording:
    """Return a recording, with ``{BASE}`` replaced by ``base``."""
    return _recording(_read(scenario, f"{server}/{step:02d}.jsonl.gz"), base)


def client(scenario: str, step: int, server: str = "rest") -> dict[str, Any]:
    """Return the Java client's state at a recorded step."""
    with gzip.open(io.BytesIO(_read(scenario, f"{server}/{step:02d}.jsonl.gz"))) as lines:
        return json.loads(next(lines))["client"]


def server_recording(name: str, *, base: str = "{BASE}") -> Recording:
    """Return a recording of ``_server.zip``; ``name`` without ``.jsonl.gz``."""
    return _recording(_read(SERVER, f"{name}.jsonl.gz"), base)


def server_lines(name: str) -> list[dict[str, Any]]:
    """Return the raw lines of a recording of ``_server.zip``."""
    text = gzip.decompress(_read(SERVER, f"{name}.jsonl.gz"))
    return [json.loads(line) for line in text.splitlines()]


def server_document(name: str) -> Any:
    """Return a JSON document of ``_server.zip``; ``name`` without ``.json``."""
    return json.loads(_read(SERVER, f"{name}.json"))


def server_names() -> tuple[str, ...]:
    """Return the names of the recordings of ``_server.zip``."""
    names = (name for name in _names(SERVER) if name.endswith(".jsonl.gz"))
    return tuple(sorted(name.removesuffix(".jsonl.gz") for name in names))


def recordings(
    scenario: str, step: int, server: str = "rest", *, base: str = "{BASE}"
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each recorded (request, response) as dicts."""
    for exchange in recording(scenario, step, server, base=base).exchanges:
        request = {key: exchange.raw.get(key) for key in ("n", "phase", "method", "path", "params")}
        answer = ("status", "content_type", "body", "body_text")
        yield request, {key: exchange.raw.get(key) for key in answer}


class GoldenStorage(ReadOnlyStorage):
    """A golden table at one step, in memory and read-only; times and sizes are as recorded.

    Data files have no content: opening one is an error.
    """

    def __init__(self, scenario: str, step: int, base_path: str = "/golden/table") -> None:
        self.base_path = base_path
        self.calls = StorageCalls()
        self._cause = "other"
        self._contents = contents(scenario, step)
        self._children: dict[str, dict[str, FileInfo]] = {"": {}}
        for entry in listing(scenario, step):
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        parent, _, name = entry.path.rpartition("/")
        if parent not in self._children:
            self._add(Entry(parent, 0, entry.mtime_ms, is_dir=True))
        if entry.is_dir:
            self._children.setdefault(entry.path, {})
        self._children[parent][name] = FileInfo(name, entry.size, entry.mtime_ms, entry.is_dir)

    def for_cause(self, cause: str) -> GoldenStorage:
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "_cause": cause}
        return other

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.calls.add("list", self._cause)
        found = self._children.get(checked_path(path), {})
        return tuple(found[name] for name in sorted(found))

    def stat(self, path: str) -> FileInfo | None:
        self.calls.add("stat", self._cause)
        parent, _, name = checked_path(path).rpartition("/")
        return self._children.get(parent, {}).get(name)

    def read(self, path: str, *about: object) -> bytes:
        self.calls.add("read", self._cause)
        if checked_path(path) not in self._contents:
            raise PathNotFoundError(f"no file {self.base_path}/{path}")
        return self._contents[path]

    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))


def _recording(data: bytes, base: str) -> Recording:
    text = gzip.decompress(data).replace(b"{BASE}", orjson.dumps(base)[1:-1])
    first, *lines = map(orjson.loads, text.splitlines())
    if "client" not in first:
        lines.insert(0, first)
    exchanges = tuple(
        Exchange(
            n=line.get("n", i),
            phase=line.get("phase", ""),
            method=line.get("method", "GET"),
            path=line.get("path", ""),
            params=line.get("params") or {},
            status=line.get("status", 0),
            content_type=line.get("content_type"),
            body=line.get("body"),
            body_text=line.get("body_text"),
            raw=line,
        )
        for i, line in enumerate(lines)
    )
    return Recording(first.get("client", {}), exchanges)


@cache
def _contents(scenario: str, step: int) -> dict[str, bytes]:
    found = {}
    for archive in ("meta.tar.gz", "mdt.tar.gz"):
        name = f"steps/{step:02d}/{archive}"
        if name not in _names(scenario):
            continue
        for path, data in unpacked(_read(scenario, name)):
            if data is not None:
                # Consecutive steps share most files: equal contents are kept once.
                found[path] = _KEPT.setdefault(data, data)
    return found


@cache
def _final(scenario: str) -> tuple[dict[str, tuple[bytes, int | None]], list[str]]:
    """Return path → content and recorded time of the files of a final table, and its folders."""
    times = {
        entry.path: entry.mtime_ms * 1_000_000
        for entry in listing(scenario, steps(scenario)[-1])
        if not entry.is_dir
    }
    members = dict(unpacked(_read(scenario, "final_table.tar.gz")))
    files = {path: (data, times.get(path)) for path, data in members.items() if data is not None}
    folders = {path if data is None else os.path.dirname(path) for path, data in members.items()}
    return files, sorted(folders)


def unpacked(archive: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Yield the path and content of each member of a ``.tar.gz``; ``None`` of a directory.

    ``tarfile`` takes ten times as long, as it decodes all that a header says.
    """
    data, at, long_path = gzip.decompress(archive), 0, None
    while any(head := data[at : at + 512]):
        size, kind = int(head[124:136].rstrip(b" \0"), 8), head[156:157]
        content = data[at + 512 : at + 512 + size]
        at += 512 + -(-size // 512) * 512
        if kind == b"x":
            long_path = re.search(rb"^\d+ path=(.*)$", content, re.MULTILINE)
            continue
        assert kind in b"05", f"members of kind {kind!r} aren't read"
        short_path = b"/".join(part for part in (head[345:500], head[:100]) if any(part))
        path = long_path[1] if long_path else short_path.replace(b"\0", b"")
        long_path = None
        yield os.path.normpath(path.decode()), content if kind == b"0" else None


_KEPT: dict[bytes, bytes] = {}


@cache
def _open(scenario: str) -> zipfile.ZipFile:
    # Read whole, because an open file that is never closed raises a ResourceWarning.
    return zipfile.ZipFile(io.BytesIO((FOLDER / f"{scenario}.zip").read_bytes()))


@cache
def _names(scenario: str) -> frozenset[str]:
    return frozenset(_open(scenario).namelist())


def _read(scenario: str, name: str) -> bytes:
    return _open(scenario).read(name)
