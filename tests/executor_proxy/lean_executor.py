"""What an executor does with the packages; run by itself, in an environment that has little.

``python -I -S lean_executor.py SITE`` reads ``Work`` as JSON from stdin, imports from ``SITE`` and
the standard library alone, and says what it found as JSON. ``work`` does the same in any process.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

OPTIONAL = ("fastavro", "orjson")
"""Installed with the packages, and used where they are there."""
OF_DRIVERS = ("click", "flask", "httptools", "isal", "pyspark", "uvloop")


class Work(TypedDict):
    """What to do.

    Attributes:
        steps: The table as it was after each step of its history, a directory each.
        base: Where it is to lie.
        partitions: Of the last step.
        live: URL of a service that serves ``base``.
        token: Of that service.
        dead: URL at which nobody is.
        written: Where to write another table.
    """

    steps: list[str]
    base: str
    partitions: list[str]
    live: str
    token: str
    dead: str
    written: str


def work(said: Work) -> dict[str, Any]:
    """Follow a table, ask a service for it, do without a service, and write rows."""
    return {
        "followed": followed(said),
        "asked": asked(said, said["live"], fallback=False),
        "listed": asked(said, said["dead"], fallback=True),
        "written": written(said["written"]),
    }


def followed(said: Work) -> list[str]:
    from fsview.local_view import LocalView
    from fsview.table_view import TableView
    from timeline.storage.open import open_storage

    lay_out(said, 0)
    storage = open_storage(said["base"])
    view = LocalView.newest(TableView(storage))
    found = []
    for number in range(len(said["steps"])):
        lay_out(said, number)
        view.sync()
        found.append(answers(view, said["partitions"]))
    return [*found, str(sorted(storage.calls.snapshot().items()))]


def lay_out(said: Work, number: int) -> None:
    shutil.rmtree(said["base"], ignore_errors=True)
    shutil.copytree(said["steps"][number], said["base"])


def asked(said: Work, url: str, *, fallback: bool) -> str:
    from executor_proxy import connect

    view = connect(url, said["base"], token=said["token"], fallback=fallback)
    try:
        return answers(view, said["partitions"])
    finally:
        view.close()


def answers(view: Any, partitions: list[str]) -> str:
    return "\n".join(
        [
            view.timeline.hash,
            str(view.pending_compaction_operations()),
            *sorted(f"{o.partition}/{o.file_id}" for o in view.file_groups_in_pending_clustering()),
            *(str(view.all_file_groups(partition)) for partition in partitions),
            *(str(view.latest_file_slices(partition)) for partition in partitions),
            *(str(view.all_replaced_file_groups(partition)) for partition in partitions),
        ]
    )


def written(base_path: str) -> int:
    """Run the tasks of a write in this process.

    The table is of version 6, whose commits are JSON: only drivers write Avro, and have fastavro.
    """
    import pyarrow as pa

    from strandline.write.client import WriteClient
    from strandline.write.engine.local import LocalEngine

    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.table.version": "6",
    }
    shutil.rmtree(base_path, ignore_errors=True)
    with WriteClient(LocalEngine(), base_path, options) as client:
        client.insert(pa.table({"id": ["a", "b"], "day": ["mon", "tue"], "ts": [1, 1]}))
        return client.upsert(pa.table({"id": ["b"], "day": ["tue"], "ts": [2]})).rows_updated


def main(site: str) -> None:
    sys.path.append(site)
    there = [name for name in (*OPTIONAL, *OF_DRIVERS) if find_spec(name) is not None]
    found = work(json.load(sys.stdin))
    loaded = sorted(name for name in sys.modules if Path(name).stem in (*OPTIONAL, *OF_DRIVERS))
    print(json.dumps({**found, "there": there, "loaded": loaded}))


if __name__ == "__main__":
    main(sys.argv[1])
