"""A table on a small disk, and its markers: ``python -m ... DIRECTORY``; in a process of its own,
which alone sees that disk."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import AppClient
from tests.kit.storage.full_disk import fill
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

INSTANT = "20261121090000000"
MARKERS = "/v1/hoodie/marker"


class Markers:
    """Asks a service for the markers of one instant."""

    def __init__(self, base: Path) -> None:
        self.folder = base / ".hoodie" / ".temp" / INSTANT
        self._parts = Parts(PartsOptions((str(base),)))
        self._client = AppClient(self._parts)

    def ask(self, method: str, path: str, **more: str) -> tuple[int, bytes]:
        return self._client.ask(method, path, {"markerdirpath": str(self.folder), **more})

    def create(self, name: str) -> tuple[int, bytes]:
        return self.ask("POST", f"{MARKERS}/create", markername=name)

    def names(self) -> set[str]:
        return set(orjson.loads(self.ask("GET", f"{MARKERS}/all")[1]))

    def close(self) -> None:
        self._parts.close()


def name(file_id: str) -> str:
    return marker_name(INSTANT, file_id, partition="")


def main(directory: Path) -> None:
    base = directory / "t"
    config = TableConfig.create(name="t", record_key_fields=("id",))
    write_table_config(LocalStorage(str(base)), config, create=True)
    markers = Markers(base)
    made = set()
    for turn in range(3):  # the disk is full before the first marker, and then in the midst
        if turn:
            assert markers.create(name(f"before-{turn}")) == (200, b"true")
            made.add(name(f"before-{turn}"))
        filler = fill(directory)
        for _ in range(2):
            for number in range(5):
                status, said = markers.create(name(f"{turn}-{number}"))
                assert status == 503, (status, said)
                assert b"No space left on device" in said, said
            assert markers.names() == made
        filler.unlink()
        for number in range(5):
            assert markers.create(name(f"{turn}-{number}")) == (200, b"true")
            made.add(name(f"{turn}-{number}"))
        assert markers.names() == made
    markers.close()
    assert (markers.folder / "MARKERS.type").read_bytes() == b"TIMELINE_SERVER_BASED"
    assert all(path.name.startswith("MARKERS") for path in markers.folder.iterdir())
    again = Markers(base)
    assert again.names() == made
    again.close()
    print("goes on")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
