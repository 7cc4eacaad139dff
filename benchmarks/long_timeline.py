"""CPU of a commit as the timeline grows: ``python -m benchmarks.long_timeline``.

Nothing here archives a timeline. One row is upserted, without a service and in turns, into a table
with a few instants and into one to which instants were added by hard links. Figures are CPU of the
process, with all threads. Then the same table is on an S3 server (moto, in a process of its own):
shown are the requests by which a commit lists the timeline, which are pages of 1,000 names, and the
client's CPU for each page of a list of the timeline.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.object_store.s3_server import s3_options, s3_process
from benchmarks.results.ratios import Bound, Ratio, process_cpu
from benchmarks.results.ratios import table as markdown
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from timeline.instant import State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage
from timeline.table.config import META_FOLDER

OPTIONS: Final = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.embed.timeline.server": False,
    "hoodie.archive.automatic": False,
}
VERSION: Final = "hoodie.write.table.version"
MOST: Final = {2_000: 2.0, 20_000: 8.0}
"""Number of instants beside a few → how many times the CPU without them a commit may take."""
_FIRST: Final = datetime(2020, 1, 1)
_COMMITS: Final = 15
_NUMBERS: Final = itertools.count()


def rows() -> pa.Table:
    """Return one row, each time a newer one."""
    number = next(_NUMBERS)
    return pa.table({"id": ["a"], "day": ["x"], "ts": [number], "v": [number]})


def generate(base: Path, version: int, instants: int) -> None:
    """Make a table of some commits, and so many earlier ones of which each has three files."""
    with WriteClient(LocalEngine(), base, {**OPTIONS, VERSION: version}) as client:
        for _ in range(_COMMITS):
            client.upsert(rows())
    meta = TableMetaClient.open(LocalStorage(str(base)))
    first = meta.active_timeline()[0]
    folder = base / meta.layout.folder
    files = sorted(folder.glob(f"{first.requested_time}*"))
    assert first.is_completed
    assert len(files) == len(State)
    for number in range(instants):
        time = (_FIRST + timedelta(minutes=number)).strftime("%Y%m%d%H%M%S")
        for file in files:
            name = file.name.replace(first.requested_time, f"{time}000", 1)
            os.link(file, folder / name.replace(f"_{first.completion_time}", f"_{time}500", 1))


@contextmanager
def opened(storage: Storage, version: int) -> Iterator[WriteClient]:
    """Open a client that has written twice, as one that is running."""
    options = {**OPTIONS, VERSION: version}
    with WriteClient(LocalEngine(), storage.base_path, options, storage=storage) as client:
        for _ in range(2):
            client.upsert(rows())
        yield client


class Pages:
    """Counts the requests that list each folder; shared by all storages made of one."""

    pages: Counter[str]

    def list(self, path: str) -> tuple[FileInfo, ...]:
        """List a folder."""
        with self._counted(path):
            return super().list(path)  # type: ignore[misc, no-any-return]  # a mixin

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        """List a folder and all below it: a look at timeline and markers."""
        with self._counted(path):
            return super().list_tree(path)  # type: ignore[misc, no-any-return]  # a mixin

    @contextmanager
    def _counted(self, path: str) -> Iterator[None]:
        assert isinstance(self, Storage)
        with self.calls.of_this_thread() as made:
            yield
        self.pages[path] += sum(made.values())


class LocalPages(Pages, LocalStorage):
    """Local files, with counts of lists."""


class RemotePages(Pages, FsspecStorage):
    """Objects, with counts of lists."""


def counting(storage: LocalPages | RemotePages) -> LocalPages | RemotePages:
    """Return a storage whose lists are counted from now on."""
    storage.pages = Counter()
    return storage


def pages_of(storage: LocalPages | RemotePages, folder: str, act: Callable[[], object]) -> int:
    """Return by how many requests a call lists a folder, alone or with all of the metadata."""
    storage.pages.clear()
    act()
    return sum(storage.pages[each] for each in {folder, META_FOLDER})


def local(folder: Path, version: int, instants: int, rounds: int) -> Ratio:
    """Return the CPU of a commit with and without so many instants."""
    bases = folder / f"{version}-0", folder / f"{version}-{instants}"
    for base, count in zip(bases, (0, instants), strict=True):
        if not base.exists():
            generate(base, version, count)
    storages = [counting(LocalPages(str(base))) for base in bases]
    with ExitStack() as stack:
        few, many = (stack.enter_context(opened(each, version)) for each in storages)
        lists = pages_of(storages[1], folder_of(storages[1]), lambda: many.upsert(rows()))
        pairs = []
        for _ in range(rounds):
            runs = [partial(each.upsert, rows()) for each in (many, few)]
            pairs.append([process_cpu(run) for run in runs])
    values, partners = zip(*pairs, strict=True)
    what = f"a commit of version {version} beside {instants:,} instants, which lists {lists} times"
    most = MOST.get(instants)
    return Ratio(what, values, "ms", "without", partners, most and Bound(ratio=most))


def remote(folder: Path, version: int, instants: int, rounds: int) -> list[Ratio]:
    """Return the pages of a commit on S3, and the CPU of each."""
    base = folder / f"{version}-s3"
    generate(base, version, instants)
    with s3_process() as endpoint:
        storage = counting(RemotePages("s3://bench/t", s3_options(endpoint)))
        storage._fs.call_s3("create_bucket", Bucket="bench")
        storage._fs.put(f"{base}/", "s3://bench/t/", recursive=True)
        listed = folder_of(storage)
        with opened(storage, version) as client:
            pages = pages_of(storage, listed, lambda: client.upsert(rows()))
        each = pages_of(storage, listed, lambda: storage.list(listed))
        values = [process_cpu(partial(storage.list, listed)) / each for _ in range(rounds)]
    what = f"a page of 1,000 names on S3; {pages} pages a commit beside {instants:,} instants"
    return [Ratio(what, values, "ms")]


def folder_of(storage: Storage) -> str:
    """Return the folder of a table's timeline."""
    return TableMetaClient.open(storage).layout.folder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_timeline", description=__doc__)
    parser.add_argument("--instants", type=int, nargs="+", default=sorted(MOST))
    parser.add_argument("--versions", type=int, nargs="+", default=[9, 6])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--s3", type=int, default=2_000, help="instants of the table on S3; 0: none"
    )
    parser.add_argument("--folder", type=Path, help="where tables are made, such as /dev/shm")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, found = Path(name), list[Ratio]()
        for version in given.versions:
            found += [local(folder, version, count, given.rounds) for count in given.instants]
        if given.s3:
            found += remote(folder, given.versions[0], given.s3, given.rounds)
        print(markdown(found))


if __name__ == "__main__":
    main()
