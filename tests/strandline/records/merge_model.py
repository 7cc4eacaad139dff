"""Hudi's rules of merging, applied to one row after the other, and rows to try them on."""

import math

import pyarrow as pa
from hypothesis import strategies as st

from strandline.records.merge import MergeCounts, Merger, MergeRules

OLD, NEW = "20250101000000000", "20250102000000000"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("seq", pa.float64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)


def rules(**changes):
    defaults = {
        "schema": SCHEMA,
        "ordering_fields": ("ts", "seq"),
        "event_time": True,
        "instant": NEW,
    }
    return MergeRules(**(defaults | changes))


def merger_of(rows, how, file_name="new.parquet", first_seqno=0):
    return Merger(rows, how, file_name, 3, first_seqno)


def row(key, ts=None, seq=None, *, deleted=None):
    return {
        "_hoodie_record_key": key,
        "_hoodie_partition_path": "p",
        "id": key,
        "ts": ts,
        "seq": seq,
        "tags": [f"{key}{ts}", None],
        "_hoodie_is_deleted": deleted,
    }


INCOMING = pa.schema(
    [
        ("_hoodie_record_key", pa.string()),
        ("_hoodie_partition_path", pa.string()),
        *SCHEMA,
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def incoming(rows, schema=INCOMING):
    return pa.Table.from_pylist(rows, schema=schema)


def stored(rows):
    """A base file that an earlier instant wrote in one go."""
    how = rules(instant=OLD, append=True)
    return merger_of(incoming(rows), how, "old.parquet").finish()


def java_compare(mine, theirs):
    """Compare two ordering values as ``Comparable`` does, a null below any value."""
    if mine is None or theirs is None:
        return (mine is not None) - (theirs is not None)
    if isinstance(mine, float):
        key = [
            (math.isnan(v), 0.0 if math.isnan(v) else v, math.copysign(1, v) if v == 0 else 0)
            for v in (mine, theirs)
        ]
        mine, theirs = key
    return (mine > theirs) - (mine < theirs)


def naive_compare(mine, theirs, fields):
    return next((c for f in fields if (c := java_compare(mine[f], theirs[f]))), 0)


def is_unordered(one, fields):
    """Whether a row is a delete without an ordering value; the tests' columns aren't int."""
    return bool(one.get("_hoodie_is_deleted")) and all(one[f] is None for f in fields)


def naive_wins(newer, older, fields):
    unordered = is_unordered(newer, fields) or is_unordered(older, fields)
    return unordered or naive_compare(newer, older, fields) >= 0


def naive_merge(existing, new, how):
    """Return the rows (without file name and seqno) and the counts, one row after the other."""
    by_key = {} if how.append else {r["_hoodie_record_key"]: r for r in new}
    seen, out, counts = set(), [], dict.fromkeys(("updates", "deletes", "late"), 0)
    for old in existing:
        key = old["_hoodie_record_key"]
        mine = by_key.get(key)
        if mine is None:
            out.append((old["_hoodie_commit_time"], old))
            continue
        seen.add(key)
        dead = how.delete or bool(mine["_hoodie_is_deleted"])
        wins = how.delete or not how.event_time or naive_wins(mine, old, how.ordering_fields)
        if not wins:
            counts["late"] += 1
            out.append((old["_hoodie_commit_time"], old))
        elif dead:
            counts["deletes"] += 1
        else:
            counts["updates"] += 1
            out.append((how.instant, mine))
    rest = [r for r in new if r["_hoodie_record_key"] not in seen]
    fresh = [r for r in rest if not (how.delete or r["_hoodie_is_deleted"])]
    out.extend((how.instant, r) for r in fresh)
    return out, MergeCounts(len(fresh), **counts)


def plain(rows):
    """Make rows comparable: NaN is itself, -0.0 is not 0.0."""
    return [
        {name: repr(value) if isinstance(value, float) else value for name, value in r.items()}
        for r in rows
    ]


KEYS = st.sampled_from("abcdefgh")
ROWS = st.lists(
    st.builds(
        row,
        KEYS,
        st.none() | st.integers(-1, 2),
        st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
        deleted=st.none() | st.booleans(),
    ),
    max_size=10,
)
UNIQUE_ROWS = ROWS.map(lambda rows: list({r["_hoodie_record_key"]: r for r in rows}.values()))
