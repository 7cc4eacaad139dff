"""Matches stored rows with newer rows by their record keys, exactly.

Usually there are few newer keys and many stored ones, most of which match none. So the newer keys
go into a hash table in which numpy looks up thousands of stored keys at once; only keys with equal
hashes are compared themselves.

The table has layers. In a layer each slot is empty, has one key, or is *contested*: its keys are in
the next layer, where other bits of their hashes choose the slot. Arrow matches the keys that are
contested in all layers: keys with equal hashes, or duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.text import BLOCK, Hashes, hashes_of
from strandline.records.row_selection import (
    Mask,
    Positions,
    as_mask,
    one_array,
    one_chunk,
    take_column,
)

_SLOTS: Final = 4
"""Least number of slots per key of a layer; about a sixth of the keys are contested."""
_LAYERS: Final = 3
"""Leaves about one key in 200 to Arrow, which costs less than further layers."""
_FACTOR: Final = 0x9E37_79B1
_BITS: Final = 32
_Tags: TypeAlias = npt.NDArray[np.uint16]
_EMPTY: Final = 0
_CONTESTED: Final = 1
_LEAST_TAG: Final = np.uint16(2)


def _no_positions() -> Positions:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """Pairs of a stored row and a newer row with the same key, by stored row.

    Attributes:
        rows: Positions of the stored rows, ascending.
        touched: Positions of the newer rows.
    """

    rows: Positions = field(default_factory=_no_positions)
    touched: Positions = field(default_factory=_no_positions)

    def between(self, first: int, count: int) -> tuple[Positions, Positions]:
        """Return the pairs of some consecutive stored rows, whose positions count from 0."""
        low, high = np.searchsorted(self.rows, [first, first + count])
        return self.rows[low:high] - first, self.touched[low:high]

    def moved(self, rows: int, touched: int) -> KeyMatch:
        """Return the pairs with two numbers added to their positions."""
        return KeyMatch(self.rows + rows, self.touched + touched)

    def where(self, mask: Mask) -> KeyMatch:
        """Return some of the pairs."""
        return KeyMatch(self.rows[mask], self.touched[mask])

    @classmethod
    def joined(cls, parts: Sequence[KeyMatch]) -> KeyMatch:
        """Return the pairs of several matches that have no stored row in common."""
        rows = np.concatenate([_no_positions(), *(part.rows for part in parts)])
        touched = np.concatenate([_no_positions(), *(part.touched for part in parts)])
        at = np.argsort(rows, kind="stable")  # fast, as each part is sorted
        return cls(rows[at], touched[at])


@dataclass(frozen=True, slots=True)
class _Layer:
    """Some keys by a part of their hashes.

    Attributes:
        factor: Mixes hashes, so that each layer uses other bits.
        tags: A part of the hash of the key in each slot, or one of two marks that no tag has. Their
            number is a power of two. They are small, so that more fit into a cache.
        keys: The position of the key in each slot; undefined if it is empty or contested.
    """

    factor: np.uint32
    tags: _Tags
    keys: npt.NDArray[np.int32]

    @classmethod
    def of(cls, number: int, hashes: Hashes, at: Positions) -> tuple[_Layer, Positions]:
        """Return the layer of keys at some positions, and the positions of contested keys."""
        size = 1 << max(1, (_SLOTS * len(at) - 1).bit_length())
        factor = np.uint32(pow(_FACTOR, number, 1 << _BITS))
        made = cls(factor, np.full(size, _EMPTY, np.uint16), np.full(size, -1, np.int32))
        slots, tags = made.places(hashes[at])
        made.keys[slots] = at
        made.tags[slots] = tags
        made.tags[slots[made.keys[slots] != at]] = _CONTESTED
        return made, at[made.tags[slots] == _CONTESTED]

    def places(self, hashes: Hashes) -> tuple[Hashes, _Tags]:
        """Return the slots and tags of hashes."""
        slots = (hashes * self.factor) >> np.uint32(_BITS + 1 - len(self.tags).bit_length())
        return slots, np.maximum(hashes.astype(np.uint16), _LEAST_TAG)

    def find(self, hashes: Hashes, among: Positions | None) -> tuple[KeyMatch, Positions]:
        """Return the pairs with equal tags, and the stored rows whose slots are contested.

        Args:
            hashes: The hashes of all stored rows.
            among: Positions of the stored rows to look up; ``None`` for all.
        """
        rows, touched, behind = [_no_positions()], [_no_positions()], [_no_positions()]
        for begin in range(0, len(hashes) if among is None else len(among), BLOCK):
            block = slice(begin, begin + BLOCK)
            some = hashes[block] if among is None else hashes[among[block]]
            slots, tags = self.places(some)
            held = self.tags[slots]
            found, contested = np.flatnonzero(held == tags), np.flatnonzero(held == _CONTESTED)
            touched.append(self.keys[slots[found]].astype(np.int64))
            rows.append(found + begin if among is None else among[block][found])
            behind.append(contested + begin if among is None else among[block][contested])
        pairs = KeyMatch(np.concatenate(rows), np.concatenate(touched))
        return pairs, np.concatenate(behind)


@dataclass(frozen=True)
class KeyTable:
    """Newer keys, to look up stored ones among them.

    Attributes:
        keys: The keys.
        layers: Layers in the order in which they are searched.
        rest: Positions of the keys that are contested in the last layer.
    """

    keys: pa.Array
    layers: tuple[_Layer, ...]
    rest: Positions

    @classmethod
    def of(cls, keys: pa.ChunkedArray | pa.Array) -> KeyTable:
        """Return a table of less than 2^29 keys (strings), none of them null.

        Cost: some 20 ns and 40 to 80 bytes a key.
        """
        known = one_array(keys)
        hashes = hashes_of(known)
        layers: list[_Layer] = []
        waiting = np.arange(len(known))
        while len(waiting) and len(layers) < _LAYERS:
            layer, contested = _Layer.of(len(layers), hashes, waiting)
            if len(contested) == len(waiting):
                break
            layers.append(layer)
            waiting = contested
        return cls(known, tuple(layers), waiting)

    @cached_property
    def has_duplicates(self) -> bool:
        """Whether two keys are equal; these are contested in all layers."""
        return len(self._rest_keys.unique()) < len(self.rest)

    @cached_property
    def _rest_keys(self) -> pa.Array:
        return one_array(take_column(self.keys, self.rest))

    def match(self, stored: pa.ChunkedArray) -> KeyMatch:
        """Return the pairs of stored keys and these keys, which have no duplicates.

        Args:
            stored: Record keys of stored rows, none of them null, with offsets of any width.

        Cost: some 10 ns a key, and 30 ns for each that matches.
        """
        parts, first = [], 0
        for chunk in stored.chunks:
            parts.append(self._match(chunk).moved(first, 0))
            first += len(chunk)
        return KeyMatch.joined(parts)

    def _match(self, stored: pa.Array) -> KeyMatch:
        hashes = hashes_of(stored)
        parts: list[KeyMatch] = []
        waiting: Positions | None = None  # all
        for layer in self.layers:
            pairs, waiting = layer.find(hashes, waiting)
            parts.append(pairs)
        pairs = KeyMatch.joined(parts)
        old, new = stored.take(pa.array(pairs.rows)), take_column(self.keys, pairs.touched)
        equal = as_mask(one_chunk(pc.equal(pa.chunked_array([old]).cast(new.type), new)))
        pairs = pairs.where(equal)
        return KeyMatch.joined([pairs, self._in_rest(stored, waiting)]) if len(self.rest) else pairs

    def _in_rest(self, stored: pa.Array, among: Positions | None) -> KeyMatch:
        """Return the pairs of some stored keys with keys of the rest."""
        at = np.arange(len(stored)) if among is None else among
        asked = stored.take(pa.array(at)).cast(self._rest_keys.type)
        found = pc.index_in(asked, value_set=self._rest_keys)
        touched = self.rest[found.drop_null().to_numpy()]
        return KeyMatch(at[as_mask(pc.is_valid(found))], touched)
