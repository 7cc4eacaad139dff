"""A marker service on tables whose storage can be held up, for tests."""

from __future__ import annotations

from pathlib import Path

from timeline.errors import RootNotAllowedError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

INSTANT = "20261121090000000"


def name(number: int, kind: str = "CREATE", instant: object = INSTANT) -> str:
    return f"2024-01-01/f{number:04d}-0_0-1-1_{instant}.parquet.marker.{kind}"


class Tables:
    """Every base path below a directory is a table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storages: dict[str, Storage] = {}

    def __call__(self, base_path: str) -> tuple[TableId, Storage]:
        table_id = TableId.of(base_path)
        path = table_id.path
        if not path.startswith(str(self.root)):
            raise RootNotAllowedError(f"{base_path} is outside")
        return table_id, self.storages.setdefault(path, LocalStorage(path))


def directory(base: Path, instant: str = INSTANT) -> str:
    return f"{base}/.hoodie/.temp/{instant}"


def files(base: Path) -> dict[str, str]:
    folder = Path(directory(base))
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}
