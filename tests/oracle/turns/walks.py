"""The walks in turns, by release of Hudi, and what must happen on them."""

from __future__ import annotations

from typing import Final

from tests.oracle.hudi import HUDI, HUDI_0
from tests.oracle.turns.table_form import (
    COMMIT,
    COMPLEX,
    DEFAULT,
    EVENT,
    NON_PARTITIONED,
    OURS,
    SIMPLE,
    THEIRS,
    TableForm,
    Walk,
)

LONG: Final = 64
"""Steps of the walks that do nearly everything."""
WALKS: Final = {
    HUDI: (
        Walk("version 6", 16, 32, TableForm(6, SIMPLE, EVENT, hive_style=True)),
        Walk("version 6 by default", 26, 30, TableForm(6, COMPLEX, DEFAULT)),
        Walk("version 6, lazy", 36, 30, TableForm(6, SIMPLE, COMMIT, OURS, lazy=True)),
        Walk("version 8", 18, LONG, TableForm(8, COMPLEX, EVENT, OURS, hive_style=True)),
        Walk("version 8, lock", 28, 30, TableForm(8, SIMPLE, COMMIT, lazy=True, locked=True)),
        Walk("version 9", 19, LONG, TableForm(9, SIMPLE, EVENT)),
        Walk("version 9, no partitions", 29, 30, TableForm(9, NON_PARTITIONED, COMMIT)),
        Walk(
            "version 9, lock",
            39,
            30,
            TableForm(9, COMPLEX, EVENT, OURS, hive_style=True, lazy=True, locked=True),
        ),
        Walk("version 9, metadata table", 49, 24, TableForm(9, SIMPLE, EVENT, metadata=True)),
        *(
            Walk(
                f"version {version}, {index}, made by {maker}",
                100 * version + number,
                24,
                TableForm(version, generator, mode, maker, hive_style=hive_style, index=index),
            )
            for number, (index, version, generator, mode, maker, hive_style) in enumerate(
                (
                    ("BUCKET", 6, COMPLEX, EVENT, THEIRS, False),
                    ("BUCKET", 8, SIMPLE, COMMIT, OURS, True),
                    ("BUCKET", 9, COMPLEX, COMMIT, OURS, False),
                    ("BUCKET", 9, SIMPLE, EVENT, THEIRS, True),
                    ("GLOBAL_SIMPLE", 6, SIMPLE, EVENT, OURS, False),
                    ("GLOBAL_SIMPLE", 8, COMPLEX, COMMIT, THEIRS, True),
                    ("GLOBAL_SIMPLE", 9, SIMPLE, EVENT, THEIRS, False),
                    ("GLOBAL_BLOOM", 9, COMPLEX, EVENT, OURS, False),
                )
            )
        ),
        *(
            Walk(
                f"version {version}, logs, {index or generator}, made by {maker}",
                1000 * version + number,
                steps,
                TableForm(
                    version,
                    generator,
                    mode,
                    maker,
                    hive_style=hive_style,
                    index=index,
                    has_logs=True,
                ),
            )
            for number, (version, generator, mode, maker, hive_style, index, steps) in enumerate(
                (
                    (8, SIMPLE, EVENT, OURS, True, "", LONG),
                    (8, COMPLEX, COMMIT, THEIRS, False, "", 28),
                    (9, SIMPLE, EVENT, THEIRS, True, "", LONG),
                    (9, COMPLEX, EVENT, OURS, False, "", 28),
                    (9, NON_PARTITIONED, COMMIT, OURS, False, "", 28),
                    (9, SIMPLE, EVENT, OURS, False, "BUCKET", 28),
                    (8, COMPLEX, EVENT, THEIRS, False, "GLOBAL_SIMPLE", 28),
                    (9, SIMPLE, EVENT, OURS, True, "GLOBAL_BLOOM", 28),
                    (6, SIMPLE, EVENT, OURS, True, "", LONG),
                    (6, COMPLEX, EVENT, THEIRS, False, "", 28),
                )
            )
        ),
    ),
    HUDI_0: (
        Walk("0.15.0", 15, 24, TableForm(6, SIMPLE, EVENT, OURS, hive_style=True)),
        Walk("0.15.0, no partitions", 25, 24, TableForm(6, NON_PARTITIONED, EVENT, lazy=True)),
        Walk("0.15.0 by default", 35, 24, TableForm(6, COMPLEX, DEFAULT)),
        Walk("0.15.0, logs", 45, 36, TableForm(6, SIMPLE, EVENT, OURS, has_logs=True)),
        Walk("0.15.0, logs, made by it", 55, 24, TableForm(6, COMPLEX, EVENT, has_logs=True)),
    ),
}
"""Release → its walks; together they have some 900 steps."""
PARTS: Final = {HUDI_0, *(walk.name for walk in WALKS[HUDI])}
"""The tests of walks: each of the newest release, all of the older one together."""

KINDS: Final = (
    *("upsert", "insert", "bulk_insert", "insert stored keys", "insert keys twice"),
    *("insert flagged rows", "upsert late rows", "upsert keys twice", "upsert deletes"),
    *("upsert nothing", "delete", "delete unknown keys", "upsert a new partition"),
    *("upsert in all partitions", "insert_overwrite", "insert_overwrite_table"),
    "delete_partition",
)
EVERYTHING: Final = frozenset(
    (
        *(f"{who} {kind}" for who in (OURS, THEIRS) for kind in KINDS),
        *("ours cleans", "hudi cleans", "ours rolls back", "hudi rolls back"),
        *("hudi archives", "hudi archived some", "ours archives", "ours archived some"),
        *("hudi makes a savepoint", "hudi deletes a savepoint", "hudi restores"),
        *("ours is refused a rollback", "ours is refused beside hudi's"),
        *("ours dies", "ours dies inflight", "hudi fails"),
        *("ours compacts", "ours compacts what is planned", "hudi compacts what is planned"),
        *("ours plans a compaction", "hudi plans a compaction", "ours dies compacting"),
        *("ours repairs hudi's", "hudi repairs ours", "ours repairs ours", "hudi repairs hudi's"),
    )
)
"""What must happen on one walk or another."""
