from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from fsview.store.spill.blob_space import SpillFile
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.garbage import collect_garbage
from timeline.errors import StoreError

ROOT = Path(__file__).parents[4]


def run(script: str, *arguments: object) -> str:
    """Run a script in another process; return its output."""
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def open_files(folder: Path) -> int:
    """Return the number of this process's open files in a folder, deleted ones included."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # another thread has closed it since
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith(f"{folder}/") for link in links)


def test_blobs_are_written_and_read_anywhere(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    file.write(5000, b"x" * 3000)
    file.write(0, b"first")
    assert file.read(0, 7) == b"first\0\0"
    assert file.read(7990, 100) == b"x" * 10
    assert file.read(9000, 5) == b""
    file.truncate(5001)
    assert file.read(5000, 10) == b"x"


def test_the_file_has_no_name(tmp_path: Path) -> None:
    file = SpillFile(tmp_path / "made" / "for it")
    file.write(0, b"content")
    assert os.listdir(tmp_path / "made" / "for it") == []
    assert Path(file.path).parent.parent == tmp_path / "made" / "for it"


def test_without_a_directory_it_is_where_the_system_has_such_files() -> None:
    assert not os.path.exists(SpillFile().path)


def test_a_file_that_cannot_be_removed_while_open_is_removed_at_the_end(tmp_path: Path) -> None:
    asked: list[str] = []

    def remove(own: str) -> bool:
        asked.append(own)
        return False

    file = SpillFile(tmp_path, remove)
    (own,) = tmp_path.iterdir()
    assert asked == [str(own)]
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    del file
    collect_garbage()
    assert asked == [str(own)] * 2


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors can't be counted")
def test_it_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    assert open_files(tmp_path) == 1
    del file
    collect_garbage()
    assert open_files(tmp_path) == 0


def test_a_directory_that_isnt_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        SpillFile(tmp_path / "file")


@pytest.mark.property
def test_a_file_that_may_grow_no_more() -> None:
    """The system's own refusal, which comes after part of a blob was written; then there is room.

    What was kept before is read back, nothing of the refused commit is left.
    """
    said = run(
        """
        import resource

        from fsview.store.budget import Budget
        from fsview.store.spill.area import SpillArea
        from fsview.store.spill.area import SpillableStore
        from tests.kit.servers.stores import blobs_of
        from timeline.errors import StoreFullError

        most = 100_000
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        budget = Budget(100_000)
        area = SpillArea(None, budget.account("records"), budget)
        store = SpillableStore(area)
        chunks = []

        def right():
            return all(c.read() == bytes([n]) * 7000 for n, c in enumerate(chunks))

        try:
            while True:
                chunks += store.commit(blobs_of([bytes([len(chunks)]) * 7000]))
        except StoreFullError as exc:
            print(len(chunks), exc)
        assert right() and right()
        assert store.status()["blobs"] == len(chunks)
        assert area.status()["file_bytes"] <= most
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 * most, hard))
        while len(chunks) < 60:
            chunks += store.commit(blobs_of([bytes([len(chunks)]) * 7000]))
        assert right()
        assert area.status()["failure"] is None
        """
    )
    count, _, message = said.partition(" ")
    assert 20 <= int(count) <= 30
    assert "the budget of 100000 bytes is used up" in message
    assert "File too large" in message


@pytest.mark.property
def test_a_fork_can_do_nothing_and_does_no_harm() -> None:
    said = run(
        """
        import os

        from fsview.store.budget import Budget
        from fsview.store.spill.area import SpillArea
        from fsview.store.spill.area import SpillableStore
        from tests.kit.servers.stores import blobs_of
        from timeline.errors import StoreError

        budget = Budget(20_000)
        records = budget.account("records")
        area = SpillArea(None, records, budget)
        store = SpillableStore(area)
        chunks = [store.commit(blobs_of([bytes([n]) * 3000]))[0] for n in range(30)]
        child = os.fork()
        if not child:
            for refused in (
                chunks[0].read, chunks[-1].read, store.status,
                lambda: store.commit(blobs_of([b"x"])),
            ):
                try:
                    refused()
                except StoreError as exc:
                    assert str(os.getpid()) in str(exc)
                else:
                    os._exit(1)
            chunks.clear()
            store.collect()
            records.add(100_000)
            budget.make_room()
            store.close()
            area.close()
            raise SystemExit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert [chunk.read() for chunk in chunks] == [bytes([n]) * 3000 for n in range(30)]
        assert store.commit(blobs_of([b"more"]))[0].read() == b"more"
        print("unharmed")
        """
    )
    assert said == "unharmed\n"


def test_a_fork_leaves_a_file_that_has_a_name_to_its_maker(tmp_path: Path) -> None:
    run(
        """
        import os, sys
        from pathlib import Path

        from fsview.store.spill.blob_space import SpillFile

        removals = []

        def remove(own):
            removals.append(own)
            return False

        file = SpillFile(Path(sys.argv[1]), remove)
        child = os.fork()
        del file
        if not child:
            os._exit(len(removals))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert len(removals) == 2
        """,
        tmp_path,
    )
