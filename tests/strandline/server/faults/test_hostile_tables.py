"""Tables whose files are no files, far too large, or bombs, beside a sound one under one root."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.kit.formats.avro_container import container, doubling
from tests.kit.servers.live_service import HttpClient, known
from tests.kit.servers.serve_process import ServeProcess
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

LATEST = "/v1/hoodie/view/slices/partition/latest/"
REFRESH = "/v1/hoodie/view/refresh/"
PROPERTIES = ".hoodie/hoodie.properties"
ZEROS_BYTES = 1500 << 20
CLIENTS = 8
MAX_QUESTIONS = 60
MIB = 1 << 20


def good(base: Path) -> SmallTable:
    made = SmallTable(LocalStorage(str(base)))
    made.write(*((partition, f"g{n}") for partition in "abcd" for n in range(3)))
    return made


def fifo(base: Path) -> None:
    (base / PROPERTIES).unlink()
    os.mkfifo(base / PROPERTIES)


def zero_properties(base: Path) -> None:
    os.truncate(base / PROPERTIES, ZEROS_BYTES)


def completed(base: Path, action: str) -> Path:
    """Return the path of an instant that completes after all others."""
    return base / ".hoodie" / "timeline" / f"20990101000000000_20990101000000001.{action}"


def zero_commit(base: Path) -> None:
    completed(base, "commit").touch()
    os.truncate(completed(base, "commit"), ZEROS_BYTES)


def zero_replacement(base: Path) -> None:
    completed(base, "replacecommit").touch()
    os.truncate(completed(base, "replacecommit"), ZEROS_BYTES)


def bomb(base: Path, action: str, record: str) -> None:
    schema = {**doubling(30), "name": record}
    completed(base, action).write_bytes(container(schema, b"\0"))


def bomb_commit(base: Path) -> None:
    bomb(base, "commit", "HoodieCommitMetadata")


def bomb_replacement(base: Path) -> None:
    bomb(base, "replacecommit", "HoodieReplaceCommitMetadata")


BEFORE_IT_IS_OPENED = (fifo, zero_properties, zero_replacement, bomb_replacement)
WHILE_IT_IS_OPEN = (zero_commit, bomb_commit, zero_replacement, bomb_replacement)


def highest_bytes(pid: int) -> int:
    """Return how much memory a process had at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_a_sound_table_is_answered_while_hostile_ones_are_asked(tmp_path: Path) -> None:
    """No table's content costs the others anything."""
    lake = tmp_path / "lake"
    sound = good(lake / "sound")
    hostile: list[str] = []
    for spoil in BEFORE_IT_IS_OPENED:
        base = lake / f"before-{spoil.__name__}"
        good(base)
        spoil(base)
        hostile.append(str(base))
    with ServeProcess(lake, tmp_path / "log", "--check-interval", "0") as service:
        later = {lake / f"after-{spoil.__name__}": spoil for spoil in WHILE_IT_IS_OPEN}
        for base in (lake / "sound", *later):
            made = sound if base.name == "sound" else good(base)
            assert ask(service, known(made.storage))[0] == 200
        for base, spoil in later.items():
            spoil(base)
            hostile.append(str(base))
        pid = service.status()["pid"]
        before = highest_bytes(pid)
        told = under_attack(service, known(sound.storage), hostile)
        assert highest_bytes(pid) - before < 300 * MIB
        assert set(told) == set(hostile)
        for base in hostile[: len(BEFORE_IT_IS_OPENED)]:
            assert told[base] == {500}, base
        assert b"is no regular file, but a FIFO" in ask(service, {"basepath": hostile[0]})[1]
        assert b"strandline.read.properties" in ask(service, {"basepath": hostile[1]})[1]
        assert service.status()["threads"]["waiting"] == 0


def under_attack(
    service: ServeProcess, question: dict[str, str], hostile: list[str]
) -> dict[str, set[int]]:
    """Ask for the sound table all the while; return the answers about each of the others."""
    told: dict[str, set[int]] = {base: set() for base in hostile}
    failures: list[str] = []
    over = threading.Event()

    def attack(base: str) -> None:
        with HttpClient(service.port, token=None) as client:
            while not over.is_set() or not told[base]:
                told[base].add(client.ask("GET", LATEST, {"basepath": base, "partition": "a"})[0])
                client.ask("POST", REFRESH, {"basepath": base})

    def work(number: int) -> None:
        with HttpClient(service.port, token=None) as client:
            for n in range(MAX_QUESTIONS):
                partition = "abcd"[(number + n) % 4]
                status, body = client.ask("GET", LATEST, {**question, "partition": partition})
                if (status, body.count(b'"baseFile"')) != (200, 3):
                    failures.append(f"{status}: {body[:200]!r}")

    attacks = started(attack, hostile)
    for thread in started(work, range(CLIENTS)):
        thread.join()
    over.set()
    for thread in attacks:
        thread.join()
    assert not failures, failures[0]
    return told


def started(task: Callable[..., None], arguments: Iterable[object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=task, args=(each,)) for each in arguments]
    for thread in threads:
        thread.start()
    return threads


def ask(service: ServeProcess, question: dict[str, str]) -> tuple[int, bytes]:
    with HttpClient(service.port, token=None) as client:
        return client.ask("GET", LATEST, {"partition": "a", **question})


SAID = {
    zero_commit: rb"has 1572864000 bytes or more; strandline\.read\.instant\.max\.bytes allows",
    bomb_commit: rb"is no CommitMetadata: a record 'R2' of 7 values in 0 bytes; allowed: at most 4",
}


@pytest.mark.parametrize("spoil", SAID)
def test_the_refusal_of_a_hostile_commit_names_file_size_and_bound(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    base = tmp_path / "t"
    made = good(base)
    with ServeProcess(tmp_path, tmp_path / "log") as service:
        assert ask(service, known(made.storage))[0] == 200
        spoil(base)
        with HttpClient(service.port, token=None) as client:
            status, body = client.ask("POST", REFRESH, {"basepath": str(base)})
        assert status == 500
        assert body.startswith(str(completed(base, "commit")).encode())
        assert re.search(SAID[spoil], body)
        completed(base, "commit").unlink()
        assert ask(service, known(made.storage))[0] == 200
