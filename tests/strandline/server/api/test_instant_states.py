"""Flink's instant states: answered from memory, listed again in time, below a meta folder only."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from strandline.server.api import instant_states
from strandline.server.api.instant_states import (
    InstantState,
    InstantStates,
    split_directory,
    state_of,
)
from strandline.server.http.request import INSTANT_STATES
from strandline.server.process.composition_root import Parts
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import AppClient, parts_of
from timeline.errors import InputError
from timeline.storage.base import FileInfo, Storage
from timeline.storage.local import LocalStorage

ALL = f"{INSTANT_STATES}/all"
REFRESH = f"{INSTANT_STATES}/refresh/"
MESSAGES = ".hoodie/.aux/ckp_meta"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    parts = parts_of(str(tmp_path))
    yield parts
    parts.close()


@pytest.fixture
def client(parts: Parts) -> AppClient:
    return AppClient(parts)


def listings(storage: Storage) -> int:
    return sum(n for (kind, _), n in storage.calls.snapshot().items() if kind == "list")


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def states_in(body: bytes) -> list[tuple[str, str]]:
    return sorted((dto["instant"], dto["state"]) for dto in orjson.loads(body))


def test_a_message_is_a_name_of_two_parts(subtests: pytest.Subtests) -> None:
    for name, state in [
        ("20261121090000000.INFLIGHT", InstantState("20261121090000000", "INFLIGHT")),
        ("a.b.", InstantState("a", "b")),
        (".20261121090000000.INFLIGHT.crc", None),
        ("20261121090000000", None),
        ("a.", None),
        ("", None),
    ]:
        with subtests.test(name=name):
            assert state_of(name) == state


def test_a_directory_elsewhere_is_refused(subtests: pytest.Subtests, client: AppClient) -> None:
    for directory in [
        "",
        "/t",
        ".hoodie/.aux",
        "/.hoodie",
        "/t/.hoodie2/x",
        "/t/.hoodie/../../etc",
        "/t/.hoodie/./x",
        "/t/.hoodie//x",
        "/t/.hoodie/a\0b",
    ]:
        with subtests.test(directory=directory):
            with pytest.raises(InputError, match=r"allowed: <base path>/\.hoodie"):
                split_directory(directory)
            asked = {"instantstatedirpath": directory}
            assert client.ask("GET", ALL, asked)[0] == client.ask("POST", REFRESH, asked)[0] == 400


def test_the_last_meta_folder_is_the_tables() -> None:
    assert split_directory("/t/.hoodie/metadata/.hoodie/.aux/") == (
        "/t/.hoodie/metadata",
        ".hoodie/.aux",
    )
    assert split_directory(f"s3a://b/t/{MESSAGES}") == ("s3a://b/t", MESSAGES)
    assert split_directory("/t/.hoodie" * 400)[1] == ".hoodie"


def test_a_table_outside_the_roots_is_not_listed(client: AppClient, tmp_path: Path) -> None:
    put(tmp_path.parent / "elsewhere" / MESSAGES, "1.INFLIGHT")
    (tmp_path / "t" / ".hoodie").mkdir(parents=True)
    (tmp_path / "t" / ".hoodie" / "link").symlink_to(tmp_path.parent / "elsewhere" / MESSAGES)
    for directory in (f"{tmp_path.parent}/elsewhere/{MESSAGES}", f"{tmp_path}/t/.hoodie/link"):
        asked = {"instantstatedirpath": directory}
        assert client.ask("GET", ALL, asked)[0] == 403
        assert client.ask("POST", REFRESH, asked)[0] == 403


def test_long_answers_are_compressed_and_pretty_ones_indented(
    client: AppClient, tmp_path: Path
) -> None:
    put(tmp_path / "t" / MESSAGES, *(f"{number:017d}.COMPLETED" for number in range(100)))
    asked = {"instantstatedirpath": f"{tmp_path}/t/{MESSAGES}", "pretty": ""}
    plain = client.request("GET", ALL, asked)
    assert plain.body.startswith(b'[ {\n  "instant" : "00000000000000000",\n')
    zipped = client.request("GET", ALL, asked, {"Accept-Encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.sent) == plain.body


class SlowOnce(LocalStorage):
    """Its first listing returns what it found at its beginning, once it is let go."""

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self.began, self.go = threading.Event(), threading.Event()

    def list(self, path: str) -> tuple[FileInfo, ...]:
        found = super().list(path)
        if not self.began.is_set():
            self.began.set()
            assert self.go.wait(PATIENCE_S)
        return found


@pytest.mark.parametrize("evicted", [False, True])
def test_a_listing_that_began_before_a_refresh_does_not_replace_it(
    evicted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SlowOnce(str(tmp_path))
    states = InstantStates(lambda base_path: (base_path, storage))
    put(tmp_path / MESSAGES, "1.INFLIGHT")
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(states.all, f"{tmp_path}/{MESSAGES}")
        try:
            assert storage.began.wait(PATIENCE_S)
            put(tmp_path / MESSAGES, "1.COMPLETED")
            states.refresh(f"{tmp_path}/{MESSAGES}")
            if evicted:
                monkeypatch.setattr(instant_states, "MOST", 1)
                states.refresh(f"{tmp_path}/.hoodie/other")
        finally:
            storage.go.set()
        polling.result()
    found = states.all(f"{tmp_path}/{MESSAGES}")
    assert {message.state for message in found} == {"INFLIGHT", "COMPLETED"}


def test_the_directories_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instant_states, "MOST", 2)
    storage = LocalStorage(str(tmp_path))
    storages: dict[str, Storage] = {str(tmp_path): storage}
    states = InstantStates(lambda base_path: (base_path, storages[base_path]))

    def lists_of(*names: str) -> int:
        before = listings(storage)
        for name in names:
            assert states.all(f"{tmp_path}/.hoodie/{name}") == ()
        return listings(storage) - before

    assert lists_of("a", "b", "a", "b") == 2
    assert lists_of("c", "b") == 1
    assert lists_of("a") == 1
