"""``EncodedRecords``: where the Avro records of a block are in its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from strandline.read.avro.record_ends import record_ends
from strandline.records.ordering import Positions
from timeline.encoding.log_block import FIRST_RECORD, RECORD_GAP, LogBlock

_PIECE_RECORDS: Final = 16_384
_PIECE_BYTES: Final = 16 << 20
"""The most that is decoded together. More costs memory, and no longer fits into caches."""


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records of one schema.

    Attributes:
        data: The bytes in which they are, in order.
        begins: The offset of each.
        ends: The offset behind each.
    """

    data: memoryview
    begins: Positions
    ends: Positions

    @classmethod
    def of(cls, records: Sequence[bytes]) -> EncodedRecords:
        """Put records together."""
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(sizes)
        return cls(memoryview(b"".join(records)), ends - sizes, ends)

    @classmethod
    def of_block(cls, block: LogBlock) -> EncodedRecords:
        """Return the records of an Avro block; errors as for ``record_ends``."""
        ends = record_ends(block)
        begins = np.append(FIRST_RECORD, ends + RECORD_GAP)[: len(ends)]
        return cls(memoryview(block.content), begins, ends)

    def __len__(self) -> int:
        """Return their number."""
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes of each."""
        for begin, end in self._spans():
            yield bytes(self.data[begin:end])

    def pieces(self) -> Iterator[EncodedRecords]:
        """Yield consecutive records that are decoded together, of at most 16 MiB unless one."""
        first = 0
        while first < len(self):
            start = self.begins[first]
            fitting = int(np.searchsorted(self.ends, start + _PIECE_BYTES, "right"))
            last = min(max(fitting, first + 1), first + _PIECE_RECORDS)
            data = self.data[start : self.ends[last - 1]]
            yield EncodedRecords(
                data, self.begins[first:last] - start, self.ends[first:last] - start
            )
            first = last

    def _spans(self) -> Iterable[tuple[int, int]]:
        return zip(self.begins.tolist(), self.ends.tolist(), strict=True)
