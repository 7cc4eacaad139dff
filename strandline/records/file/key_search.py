"""``KeySearch`` searches the record keys of a write in one base file after the other.

A file is asked in the order of cost: its footer's key range leaves a run of the sorted keys, its
Bloom filter some of these, and only if any are left is the column of keys read.

Source: Hudi 1.2.0 ``HoodieBloomIndex``, ``HoodieKeyLookupHandle``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.file.base_file import footer_key_range, read_keys_if, utf_16
from strandline.records.file.stored_bloom import KeyHashes, StoredBloom
from strandline.records.meta_fields import RECORD_KEY
from strandline.records.ordering import Positions, one_chunk
from strandline.records.row_selection import one_array
from timeline.storage.base import Storage


@dataclass(frozen=True, slots=True)
class KeysFound:
    """Keys of a search that a base file holds.

    Attributes:
        at: Position of each key in the search's keys; a key that the file holds twice comes twice.
        stored: The file's rows with these keys: the key and the other columns asked for.
    """

    at: Positions
    stored: pa.Table


class KeySearch:
    """Sorted record keys, and their hashes as far as filters have asked; used by one thread.

    Args:
        keys: Record keys without nulls; all different.
        by_range: Whether a file's key range decides first which keys it may hold.
        by_filter: Whether its Bloom filter does.
    """

    def __init__(
        self, keys: pa.Array | pa.ChunkedArray, *, by_range: bool = True, by_filter: bool = True
    ) -> None:
        texts = one_chunk(keys).cast(pa.string())
        self._order = _java_order(texts)
        self._keys = texts.take(pa.array(self._order))
        self._by_range = by_range
        self._hashes = KeyHashes(self._keys) if by_filter else None

    def found(self, storage: Storage, path: str, columns: tuple[str, ...] = ()) -> KeysFound | None:
        """Return the keys that a base file holds; ``None`` if it holds none.

        A key range or filter that is absent or damaged rules no key out.

        Args:
            storage: The table's storage.
            path: Path under the base path.
            columns: Further columns of the stored rows to return.

        Raises:
            PathNotFoundError: There is no such file.
            TableError: It isn't Parquet, or its record keys are missing, null or no strings.

        Cost: one open; reads the footer and at most the columns.
        """
        possible = np.zeros(0, np.int64)

        def may_hold_any(footer: Mapping[bytes, bytes]) -> bool:
            nonlocal possible
            possible = self._possible(footer)
            return len(possible) > 0

        rows = read_keys_if(storage, path, may_hold_any, columns)
        if rows is None:
            return None
        wanted = self._keys.take(pa.array(possible))
        held = one_array(rows.column(RECORD_KEY))
        match = pc.index_in(held, value_set=wanted.cast(held.type))
        if match.null_count == len(match):
            return None
        at: Positions = self._order[possible[match.drop_null().to_numpy()]]
        return KeysFound(at, rows.filter(pc.is_valid(match)))

    def _possible(self, footer: Mapping[bytes, bytes]) -> Positions:
        """Return the positions, among the sorted keys, of those that a footer doesn't rule out."""
        begin, end = 0, len(self._keys)
        ends = footer_key_range(footer) if self._by_range else None
        if ends is not None:
            begin = bisect_left(range(end), ends[0], key=self._comparable)
            end = bisect_right(range(end), ends[1], lo=begin, key=self._comparable)
        at: Positions = np.arange(begin, end)
        stored = StoredBloom.of_footer(footer) if self._hashes is not None and len(at) else None
        if stored is None or self._hashes is None:
            return at
        return stored.possible(self._hashes, at)

    def _comparable(self, position: int) -> bytes:
        return utf_16(self._keys[position].as_py())


def _java_order(texts: pa.Array) -> Positions:
    """Return the positions that sort texts by their UTF-16 code units."""
    order: Positions
    if pc.all(pc.string_is_ascii(texts)).as_py():
        order = pc.sort_indices(texts).to_numpy().astype(np.int64)
        return order
    encoded = [utf_16(text) for text in texts.to_pylist()]
    order = np.array(sorted(range(len(encoded)), key=encoded.__getitem__), np.int64)
    return order
