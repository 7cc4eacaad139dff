"""The visible log blocks of a slice, in merge order. Pure.

* Blocks of instants that aren't completed are left out.
* A rollback removes the earlier blocks of its target.
* Instants are ordered by their first blocks.
* The blocks of a log compaction replace those of the instants that it compacted, at the position of
  the newest of these instants; a later log compaction may replace them in turn. A log compaction
  that names itself among the compacted instants replaces only the others.

Source: Hudi 1.2.0 ``BaseHoodieLogRecordReader.scanInternal``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from timeline.encoding.log_block import (
    COMMAND,
    COMMAND_TYPE,
    COMPACTED_TIMES,
    INSTANT_TIME,
    ROLL_BACK,
    TARGET_INSTANT_TIME,
    LogBlock,
)
from timeline.errors import CorruptMetadataError, UnsupportedTableError


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and the path of its log."""

    block: LogBlock
    path: str

    @property
    def time(self) -> str:
        """Requested time of the instant that wrote it."""
        return self.block.header.get(INSTANT_TIME, "")

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.path}, block at offset {self.block.begin},"


def blocks_in_order(
    blocks: Iterable[PlacedBlock], counts: Callable[[str], bool]
) -> tuple[PlacedBlock, ...]:
    """Return the visible data and delete blocks, in the order in which they are merged.

    Args:
        blocks: All blocks of a slice, in the order of its logs.
        counts: Whether an instant's blocks count, by its requested time.

    Raises:
        CorruptMetadataError: Log compactions replace each other.
        UnsupportedTableError: There is a command other than a rollback.
    """
    # ``counts`` isn't asked for instants that are rolled back: it might read the archive.
    by_time = {time: group for time, group in _not_rolled_back(blocks).items() if counts(time)}
    replaced_by: dict[str, str] = {}
    placed: set[str] = set()
    order: list[str] = []
    # From the newest: a log compaction comes before the blocks that it replaces.
    for time, group in reversed(by_time.items()):
        compacted = group[0].block.header.get(COMPACTED_TIMES)
        if compacted is not None:
            times = [each for each in compacted.split(",") if each != time]
            replaced_by.update(dict.fromkeys(times, replaced_by.get(time, time)))
            if not by_time.keys().isdisjoint(times):
                continue
        final = replaced_by.get(time, time)
        if final not in placed:
            placed.add(final)
            order.append(final)
    for time, final in replaced_by.items():
        if time in by_time and placed.isdisjoint((time, final)):
            first = by_time[time][0]
            raise CorruptMetadataError(
                f"{first.place} is of instant {time}, which the log compactions replace by {final};"
                " they replace each other, so none has a place"
            )
    return tuple(block for time in reversed(order) for block in by_time[time])


def uncounted(
    blocks: Iterable[PlacedBlock], counts: Callable[[str], bool]
) -> tuple[PlacedBlock, ...]:
    """Return the data and delete blocks that aren't visible, although no block rolls them back.

    Args:
        blocks: As for ``blocks_in_order``, which has accepted them.
        counts: As for ``blocks_in_order``.
    """
    by_time = _not_rolled_back(blocks)
    return tuple(chain.from_iterable(by_time[time] for time in by_time if not counts(time)))


def _not_rolled_back(blocks: Iterable[PlacedBlock]) -> dict[str, list[PlacedBlock]]:
    by_time: dict[str, list[PlacedBlock]] = {}
    for placed in blocks:
        if placed.block.kind != COMMAND:
            by_time.setdefault(placed.time, []).append(placed)
            continue
        command = placed.block.header.get(COMMAND_TYPE)
        if command != ROLL_BACK:
            raise UnsupportedTableError(
                f"{placed.place} has the command {command!r}; allowed: {ROLL_BACK!r} (roll back)"
            )
        by_time.pop(placed.block.header.get(TARGET_INSTANT_TIME, ""), None)
    return by_time
