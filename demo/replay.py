"""What the table must hold: the feed applied by hand, one key at a time.

This is the other side of the proof, so it shares no code with Strandline and takes no short cut: a
dictionary from key to the newest row, into which every batch is played in its order. Days are not
partitions here, and nothing is known of files, instants or look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from demo.feed import KEY, Batch


@dataclass(frozen=True, slots=True)
class Replay:
    """The end of the feed.

    Attributes:
        rows: Every flight that is left, as the last batch that held it says; in no order.
        counts: How many flights there were after each batch.
    """

    rows: pd.DataFrame
    counts: tuple[int, ...]


def replay(batches: Iterable[Batch]) -> Replay:
    """Play the batches, in the order in which they come, and return what is left.

    Cost: all rows of the feed are held at once; 0.7 million for the whole year.
    """
    frames: list[pd.DataFrame] = []
    newest: dict[tuple[object, ...], int] = {}
    counts: list[int] = []
    position = 0
    for batch in batches:
        for key in _keys(batch.upserts):
            newest[key] = position
            position += 1
        frames.append(batch.upserts)
        for key in _keys(batch.deletes):
            newest.pop(key, None)
        counts.append(len(newest))
    rows = pd.concat(frames, ignore_index=True).iloc[sorted(newest.values())]
    return Replay(rows.reset_index(drop=True), tuple(counts))


def _keys(rows: pd.DataFrame) -> list[tuple[object, ...]]:
    """Return the keys of these rows, in their order."""
    return list(zip(*(rows[name].tolist() for name in KEY), strict=True))
