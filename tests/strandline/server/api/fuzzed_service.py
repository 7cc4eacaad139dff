"""What a service under random requests serves: tables, and what no answer may contain."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final

from tests.kit.tables import golden

INSTANT: Final = "20261121090000000"
OLDER: Final = "20261121085959000"
PROPER: Final = ("/v1/hoodie/view/slices/partition/latest/", "/v1/hoodie/view/slices/all")
"""What is asked properly: on the hot path, and the long way."""
FILE: Final = b".parquet"
INSIDE: Final = re.compile(
    rb"Traceback|\.py\b|<class '|\b[A-Z]\w*(?:Error|Exception)\b|NoneType|codec can't"
)
"""What no answer says: it would be Python's own words."""


class Place:
    """A directory that is served, with tables and traps in it, and one beside it that isn't.

    Attributes:
        root: Served.
        outside: Not served; nothing there may be opened, listed or changed.
        table: Base path of the sound table.
    """

    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.table = golden.build("cow_basic_v9", 3, self.root / "t9")
        golden.build("mor_basic_v6", 3, self.root / "t6")
        golden.build("mdt_mor_v9", 6, self.root / "m9")
        golden.build("cow_basic_v6", 1, self.outside / "secret")
        (self.outside / "kept").mkdir()
        (self.outside / "kept" / "file").write_text("kept")
        (self.root / "empty").mkdir()
        (self.root / "file").write_text("no table")
        (self.root / "loop").symlink_to(self.root / "loop")
        (self.root / "way-out").symlink_to(self.outside)
        (self.table / "way-out").symlink_to(self.outside / "secret")
        for table in self.tables:
            beats = table / ".hoodie" / ".heartbeat"
            beats.mkdir(exist_ok=True)
            (beats / OLDER).touch()
        temp = self.table / ".hoodie" / ".temp"
        temp.mkdir(exist_ok=True)
        (temp / "20261121090000001").symlink_to(self.outside / "kept")
        self.before = self.tree_outside()

    def tree_outside(self) -> dict[str, tuple[int, int]]:
        """Return every path outside with its size and time of change."""
        found = {}
        for path in (self.outside, *self.outside.rglob("*")):
            stat = path.lstat()
            found[str(path)] = (stat.st_size, stat.st_mtime_ns)
        return found

    @property
    def tables(self) -> list[Path]:
        """Base paths that are sound; the last one's is a metadata table."""
        return [self.root / name for name in ("t9", "t6", "m9", "m9/.hoodie/metadata")]

    @property
    def base_paths(self) -> list[str]:
        """Sound, odd and forbidden ones."""
        sound = [str(path) for path in self.tables]
        return [
            *sound,
            f"{sound[0]}/",
            f"/{sound[0]}",
            f"file:{sound[0]}",
            f"file://{sound[1]}",
            f"FILE:{sound[0]}",
            f"{sound[0]}/../t6",
            f"{sound[0]}/.hoodie",
            f"{sound[0]}/2024-01-01",
            str(self.root),
            str(self.root / "empty"),
            str(self.root / "file"),
            str(self.root / "loop"),
            str(self.root / "not-there"),
            str(self.root / "way-out" / "secret"),
            str(self.outside / "secret"),
            f"{sound[0]}/../../outside/secret",
            f"{sound[0]}/way-out",
            f"file://elsewhere{sound[0]}",
            f"s3://bucket{sound[0]}",
            os.path.relpath(sound[0]),
            "/",
            ".",
            "~",
            "/etc",
            f"{self.root}/{'x' * 300}",
            f"{self.root}/{'y/' * 3000}",
        ]


class Faults(logging.Handler):
    """Keeps records of errors, or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.records.append(self.format(record))
