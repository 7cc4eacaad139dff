"""``KeySearch``: searches the record keys of a write in one base file after the other.

Checks are made in the order of cost: the key range in the footer leaves a run of the sorted keys,
the Bloom filter some of these, and only if any are left is the column of keys read.

The hash chains of the keys don't depend on a filter's size, so ``KeyHashes`` computes them once for
all files, and only as far as needed: each hash of a full filter excludes half of the remaining
absent keys. ``strandline.records.file.bloom`` describes the filters' format and writes it.

Source: Hudi 1.2.0 ``HoodieBloomIndex``, ``HoodieKeyLookupHandle``,
``InternalBloomFilter.membershipTest``.
"""

from __future__ import annotations

import base64
import binascii
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.file.base_file import footer_key_range, read_keys_if, utf_16
from strandline.records.file.bloom import DYNAMIC, U32, bit_of, hash_chains
from strandline.records.meta_fields import RECORD_KEY
from strandline.records.row_selection import Positions, one_array, one_chunk
from timeline.storage.base import Storage

BLOOM_KEY: Final = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY: Final = b"hoodie_bloom_filter_type_code"
_HEADER: Final = struct.Struct(">iibi")
_DYNAMIC_HEADER: Final = struct.Struct(">iii")
_VERSION: Final = -1
_MURMUR: Final = 1


@dataclass(frozen=True, slots=True)
class KeysFound:
    """Keys of a search that a base file holds.

    Attributes:
        at: Position of each key in the search's keys; repeated for a key that the file holds twice.
        stored: The file's rows with these keys, one for each of ``at``: ``_hoodie_record_key``
            (string or large_string, not null), then the requested columns in the types as stored.
    """

    at: Positions
    stored: pa.Table

    @classmethod
    def joined(cls, parts: Sequence[KeysFound]) -> KeysFound:
        """Return the keys of several files as of one; at least one file."""
        if len(parts) == 1:
            return parts[0]
        tables = [_with_text_keys(part.stored) for part in parts]
        stored = pa.concat_tables(tables, promote_options="permissive")
        return cls(np.concatenate([part.at for part in parts]), stored)


def _with_text_keys(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index(RECORD_KEY)
    return rows.set_column(at, RECORD_KEY, rows.column(at).cast(pa.string()))


class KeySearch:
    """Sorted record keys, and the hashes that filters have needed so far; used by one thread.

    Args:
        keys: Record keys without nulls; all different.
        by_range: Whether to check a file's key range.
        by_filter: Whether to check its Bloom filter.
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

        An absent or damaged key range or filter excludes no key.

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
        return self.among(rows, possible)

    def among(self, rows: pa.Table, possible: Positions | None = None) -> KeysFound | None:
        """Return the keys that some stored rows have; ``None`` if they have none.

        Args:
            rows: The rows, with ``_hoodie_record_key``.
            possible: The positions, among the sorted keys, of those that may be there; ``None``:
                all.
        """
        at: Positions = np.arange(len(self._keys)) if possible is None else possible
        wanted = self._keys.take(pa.array(at))
        held = one_array(rows.column(RECORD_KEY))
        match = pc.index_in(held, value_set=wanted.cast(held.type))
        if match.null_count == len(match):
            return None
        found: Positions = self._order[at[match.drop_null().to_numpy()]]
        return KeysFound(found, rows.filter(pc.is_valid(match)))

    def _possible(self, footer: Mapping[bytes, bytes]) -> Positions:
        """Return the positions, among the sorted keys, of those that a footer doesn't exclude."""
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


class KeyHashes:
    """The hash chains of record keys, extended when a filter needs more; used by one thread.

    Args:
        keys: Record keys.

    Raises:
        ValueError: A key is null or empty.
    """

    def __init__(self, keys: pa.StringArray) -> None:
        self._count = len(keys)
        self._chains = list(hash_chains(keys))
        self._hashes: list[U32] = []

    def hashed(self, number: int) -> U32:
        """Return each key's hash ``number``, counted from 0.

        Cost: at first 15 ns a key and hash.
        """
        while len(self._hashes) <= number:
            row = np.empty(self._count, np.uint32)
            for positions, chain in self._chains:
                row[positions] = next(chain)
            self._hashes.append(row)
        return self._hashes[number]


@dataclass(frozen=True, slots=True)
class StoredBloom:
    """A filter read from a footer.

    Attributes:
        bits: Number of bits of a row.
        hashes: Number of hashes of a key.
        rows: The rows' bits, lowest first in each byte; a simple filter has one row.
    """

    bits: int
    hashes: int
    rows: tuple[npt.NDArray[np.uint8], ...]

    @classmethod
    def of_footer(cls, footer: Mapping[bytes, bytes]) -> StoredBloom | None:
        """Return the filter of a footer; ``None`` if it has none or a damaged one."""
        text = footer.get(BLOOM_KEY)
        if text is None:
            return None
        try:
            return cls.read(text, footer.get(BLOOM_TYPE_KEY, b"").decode())
        except ValueError:
            return None

    @classmethod
    def read(cls, text: bytes, type_code: str) -> StoredBloom:
        """Return the filter that a footer's text holds.

        Args:
            text: The image in base64.
            type_code: ``DYNAMIC_V0``; anything else is a simple filter, as in Hudi.

        Raises:
            ValueError: The image is damaged.
        """
        try:
            image = memoryview(base64.b64decode(text, validate=True))
            bits, hashes = _header(image)
            at, rows = 0, 1
            if type_code == DYNAMIC:
                at = _HEADER.size + _DYNAMIC_HEADER.size
                _, _, rows = _DYNAMIC_HEADER.unpack_from(image, _HEADER.size)
            size = (bits + 7) // 8
            step = _HEADER.size + size
            if rows < 1 or len(image) != at + rows * step:
                raise ValueError(f"{len(image)} bytes for {rows} rows of {bits} bits")
            starts = range(at, len(image), step)
            if any(_header(image[start:]) != (bits, hashes) for start in starts):
                raise ValueError("rows of different sizes")
        except (binascii.Error, struct.error) as exc:
            raise ValueError(str(exc)) from exc
        found = (np.frombuffer(image, np.uint8, size, start + _HEADER.size) for start in starts)
        return cls(bits, hashes, tuple(found))

    def possible(self, keys: KeyHashes, at: Positions) -> Positions:
        """Return those of the positions ``at`` whose key may be in the filter, ascending."""
        found = [self._in_row(row, keys, at) for row in self.rows]
        possible: Positions = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        return possible

    def _in_row(self, row: npt.NDArray[np.uint8], keys: KeyHashes, at: Positions) -> Positions:
        for number in range(self.hashes):
            if not len(at):
                break
            bit = bit_of(keys.hashed(number)[at], np.uint32(self.bits))
            at = at[(row[bit >> 3] >> (bit & 7).astype(np.uint8)) & 1 != 0]
        return at


def _header(image: memoryview) -> tuple[int, int]:
    """Return the numbers of bits and hashes at the begin of an image."""
    version, hashes, kind, bits = _HEADER.unpack_from(image)
    if version != _VERSION or kind != _MURMUR or hashes < 1 or bits < 1:
        raise ValueError(f"version {version}, hash {kind}, {hashes} hashes, {bits} bits")
    return bits, hashes
