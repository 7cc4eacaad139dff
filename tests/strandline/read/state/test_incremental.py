"""``Table.incremental``: ranges of recorded tables, overlapping writes, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline import Table
from tests.kit.short_runs import stride
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import SCHEMA, VERSIONS, LogTable, block_of, row
from tests.strandline.read.state.test_earlier_instants import AT, STOPPED, texts
from timeline.errors import InputError, UnsupportedTableError
from timeline.instant import CLEAN, Instant
from timeline.metadata.instant_metadata import ActionInstant, CleanerPlan, CleanMetadata
from timeline.storage.local import LocalStorage
from timeline.table.property_name import POPULATE_META_FIELDS

WRITES = ("commit", "deltacommit", "replacecommit")
OVERLAPPED = {("rollback_mor_v9", "20261121081139241")}
"""A compaction that another commit overtook, so that its end isn't a state that Spark read."""
RANGES = [at for at in AT if at not in STOPPED | OVERLAPPED]
LAST = dict(RANGES).items()
"""The last of each scenario: the one that `tox -e quick` reads."""


def places(table: Table) -> list[tuple[str, str, bool]]:
    """Return when each completed write is ordered, its requested time, whether it is archived."""
    by_completion = table.config.version >= 8
    done = [
        entry
        for entry in table.history().to_pylist()
        if entry["state"] == "COMPLETED" and entry["action"] in WRITES
    ]
    return sorted(
        (
            entry["completion_time" if by_completion else "requested_time"],
            entry["requested_time"],
            entry["archived"],
        )
        for entry in done
    )


@pytest.mark.parametrize(
    ("scenario", "instant"),
    [pytest.param(*at, marks=() if at in LAST else pytest.mark.property) for at in RANGES],
)
def test_each_range_has_the_rows_of_its_commits(scenario, instant, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    truth = texts(golden.truth(scenario)["as_of"][instant])
    writes = places(table)
    until = next(place for place, requested, _ in writes if requested == instant)
    archived = max((place for place, _, is_archived in writes if is_archived), default="")
    whole = table.incremental("earliest", until)
    shown = [name for name in whole.schema.names if name in truth[0]]
    assert texts(whole.to_arrow().select(shown).to_pylist()) == [
        {name: then[name] for name in shown} for then in truth
    ]
    assert table.incremental("000", until).count() == len(truth)
    for since, _, _ in writes[:: stride(2)]:
        if since > until:
            continue
        if since < archived:
            with pytest.raises(InputError, match=f"since {since} is before {archived}"):
                table.incremental(since, until)
            continue
        within = {requested for place, requested, _ in writes if since < place <= until}
        expected = [then for then in truth if then["_hoodie_commit_time"] in within]
        scan = table.incremental(since, until, shown)
        assert texts(scan.to_arrow().to_pylist()) == [
            {name: then[name] for name in shown} for then in expected
        ]
        assert scan.count() == len(expected)


@pytest.mark.property
@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in AT}))
def test_ranges_without_an_end_join_to_the_whole(scenario, tmp_path):
    """Whoever goes on at ``next_since`` sees each row as the commit of a range left it."""
    table = Table(golden.build_final(scenario, tmp_path))
    rows = texts(table.scan().to_arrow().to_pylist())
    writes = places(table)
    archived = max((place for place, _, is_archived in writes if is_archived), default="")
    ends = [place for place, _, _ in writes if place >= archived]
    for since in ends:
        after = {requested for place, requested, _ in writes if place > since}
        found = table.incremental(since)
        expected = [now for now in rows if now["_hoodie_commit_time"] in after]
        assert texts(found.to_arrow().to_pylist()) == expected
    assert table.incremental(ends[0]).next_since == table.scan().next_since == ends[-1]
    assert table.incremental(ends[-1]).count() == 0


class Writer:
    """Writes rows to a ``LogTable``; each has its commit's time."""

    def __init__(self, path, version: int = 9) -> None:
        self.table = LogTable(LocalStorage(str(path)), version=version)
        self.by_completion = version >= 8

    def rows(self, instant: Instant, *rows: dict) -> tuple[str, bytes]:
        """Write a log of a begun instant; return its path and bytes."""
        time = instant.requested_time
        data = block_of(time, *(each | {"_hoodie_commit_time": time} for each in rows))
        path = f"p/.f-0_{time}.log.1_0-0-0"
        self.table.storage.create(path, data)
        return path, data

    def commit(self, *rows: dict) -> str:
        """Commit a log; return when it is ordered."""
        stamp = {"_hoodie_commit_time": ""}
        log = self.table.log(
            lambda time: block_of(
                time, *(each | stamp | {"_hoodie_commit_time": time} for each in rows)
            )
        )
        return self.place(log.instant.requested_time)

    def place(self, time: str) -> str:
        found = self.table.meta.active_timeline().find(time)
        return found.completion_time if self.by_completion else time


def values(scan) -> dict[str, str]:
    rows = scan.to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@VERSIONS
def test_rows_are_those_that_the_range_left(version, tmp_path):
    writer = Writer(tmp_path, version)
    first = writer.commit(row("a", 1, "first"), row("b", 1, "first"))
    second = writer.commit(row("a", 2, "second"), row("c", 2, "second"))
    third = writer.commit(row("a", 3, "third"), row("c", 2, deleted=True))
    read = Table(tmp_path).incremental
    assert values(read("earliest")) == {"a": "third", "b": "first"}
    assert values(read(first)) == {"a": "third"}
    assert values(read(first, second)) == {"a": "second", "c": "second"}
    assert values(read(second, third)) == {"a": "third"}
    assert values(read("EARLIEST", first)) == {"a": "first", "b": "first"}
    assert read(third).count() == read(second, second).count() == 0


@pytest.mark.parametrize("version", [8, 9])
def test_writes_that_overlap_are_ordered_by_completion(version, tmp_path):
    writer = Writer(tmp_path, version)
    zero = writer.commit(row("a", 1, "zero"), row("b", 1, "zero"))
    slow = writer.table.begin()
    path, data = writer.rows(slow, row("a", 5, "slow"), row("s", 1, "slow"))
    fast = writer.commit(row("a", 4, "fast"), row("f", 1, "fast"))
    read = Table(tmp_path).incremental
    assert values(read(zero)) == {"a": "fast", "f": "fast"}
    assert read(zero).next_since == fast
    writer.table.complete(slow, path, len(data))
    done = writer.place(slow.requested_time)
    assert slow.requested_time < fast < done
    assert values(read(zero, fast)) == {"a": "fast", "f": "fast"}
    assert values(read(fast)) == {"a": "slow", "s": "slow"}
    assert values(read(zero)) == {"a": "slow", "s": "slow", "f": "fast"}
    assert values(read("earliest", fast)) == {"a": "fast", "f": "fast", "b": "zero"}


def test_a_pending_write_of_version_6_is_waited_for(tmp_path):
    writer = Writer(tmp_path, 6)
    zero = writer.commit(row("a", 1, "zero"))
    slow = writer.table.begin()
    late = writer.commit(row("b", 1, "late"))
    scan = Table(tmp_path).incremental("earliest")
    assert values(scan) == {"a": "zero", "b": "late"}
    assert scan.next_since == zero
    path = f"p/.f-0_{zero}.log.9_0-0-0"
    time = slow.requested_time
    data = block_of(time, row("s", 1, "slow") | {"_hoodie_commit_time": time})
    writer.table.storage.create(path, data)
    writer.table.complete(slow, path, len(data))
    scan = Table(tmp_path).incremental(zero)
    assert values(scan) == {"s": "slow", "b": "late"}
    assert scan.next_since == late


@VERSIONS
def test_a_pending_compaction_changes_nothing(version, tmp_path):
    writer = Writer(tmp_path, version)
    writer.table.base([row("a", 1, "base") | {"_hoodie_commit_time": "0"}])
    first = writer.commit(row("a", 2, "first"), row("b", 2, "first"))
    writer.table.plan_compaction()
    second = writer.commit(row("b", 3, "second"))
    read = Table(tmp_path).incremental
    assert values(read(first)) == {"b": "second"}
    assert values(read(first, second)) == {"b": "second"}
    assert values(read("earliest", first)) == {"a": "first", "b": "first"}


def test_rows_with_the_time_of_a_log_compaction_are_not_lost(tmp_path):
    """Hudi's gives them its own; the commit that wrote them may be one of the range."""
    writer = Writer(tmp_path)
    first = writer.commit(row("a", 1, "first"))
    writer.commit(row("b", 1, "second"))
    compaction = writer.table.begin()
    path, data = writer.rows(compaction, row("b", 1, "second"))
    writer.table.complete(compaction, path, len(data), operation="LOG_COMPACT")
    assert values(Table(tmp_path).incremental(first)) == {"b": "second"}


def test_columns_filter_and_limit(tmp_path):
    writer = Writer(tmp_path)
    first = writer.commit(row("a", 1, "x"))
    writer.commit(row("b", 2, "x"), row("c", 3, "y"), row("d", 4, "x"))
    read = Table(tmp_path).incremental
    late = read(first, columns=["id"], filter=pc.field("v") == "x")
    assert late.to_arrow().to_pydict() == {"id": ["b", "d"]}
    assert pa.table(late).schema.names == ["id"]
    assert read(first, columns=["id"], filter=[("v", "=", "x")], limit=1).count() == 1
    assert read(first, filter=pc.field("p") == "q").count() == 0
    with pytest.raises(InputError, match="no column 'ids'"):
        read(first, columns=["ids"])
    with pytest.raises(InputError, match="limit is -1"):
        read(first, limit=-1)


def test_groups_that_no_commit_of_the_range_wrote_are_not_read(tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    table = Table(base)
    (*_, since, _) = [place for place, _, _ in places(table)]
    scan = table.incremental(since)
    read = set(scan.plan()["file_id"].to_pylist())
    others = [s for s in table.scan().plan().to_pylist() if s["file_id"] not in read]
    assert others
    for each in others:
        (base / each["base_file"]).unlink()
    assert scan.count() > 0


def test_times_may_be_datetimes(tmp_path):
    writer = Writer(tmp_path)
    first, second = writer.commit(row("a", 1, "x")), writer.commit(row("b", 1, "y"))
    moments = [
        datetime.strptime(place + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
        for place in (first, second)
    ]
    read = Table(tmp_path).incremental
    assert values(read(moments[0])) == {"b": "y"}
    away = moments[0].astimezone(timezone(timedelta(hours=-7)))
    assert values(read(away, moments[1])) == {"b": "y"}
    assert values(read(moments[0] - timedelta(days=9))) == {"a": "x", "b": "y"}


def test_times_that_are_refused(subtests, tmp_path):
    Writer(tmp_path).commit(row("a", 1))
    for since, until, message in [
        (datetime(2026, 1, 31), None, "since is .* without a time zone"),
        ("earliest", datetime(2026, 1, 31), "until is .* without a time zone"),
        ("latest", None, "since is 'latest'; allowed: an instant of 17 or 14 digits"),
        ("0000", None, "since is '0000'"),
        ("earliest", "20261301000000", "until is '20261301000000', which is no time"),
        (None, None, "since is None"),
        ("earliest", "earliest", "until is 'earliest'"),
        ("20260131000001", "20260131000000", "since 20260131000001 is after until 20260131000000"),
    ]:
        with subtests.test(since=since, until=until), pytest.raises(InputError, match=message):
            Table(tmp_path).incremental(since, until)


@VERSIONS
def test_an_end_that_was_cleaned_is_refused(version, tmp_path):
    writer = Writer(tmp_path, version)
    ends = [writer.commit(row("a", n, f"{n}")) for n in range(3)]
    times = [i.requested_time for i in writer.table.meta.active_timeline()]
    meta, after = writer.table.meta, int(max(*ends, *times)) + 1
    first = ActionInstant(times[1], "deltacommit", "COMPLETED")
    clean = meta.create_requested(CLEAN, str(after), CleanerPlan(first))
    done = CleanMetadata(earliest_commit_to_retain=times[1], total_files_deleted=1)
    meta.complete(meta.transition_to_inflight(clean), done, str(after + 1))
    read = Table(tmp_path).incremental
    for since in ("earliest", ends[0]):
        with pytest.raises(InputError, match=f"until {ends[0]} is before {ends[1]}, the earliest"):
            read(since, ends[0])
        assert values(read(since, ends[1])) == {"a": "1"}
    assert values(read(ends[0])) == {"a": "2"}


def test_a_table_without_commit_times_is_refused(tmp_path):
    properties = {POPULATE_META_FIELDS: "false"}
    LogTable(LocalStorage(str(tmp_path)), properties=properties, schema=SCHEMA)
    with pytest.raises(UnsupportedTableError, match=f"{POPULATE_META_FIELDS}=false"):
        Table(tmp_path).incremental("earliest")


@VERSIONS
def test_a_table_without_commits_is_empty(version, tmp_path):
    LogTable(LocalStorage(str(tmp_path)), version=version)
    for since in ("earliest", "20260131000000"):
        scan = Table(tmp_path).incremental(since)
        assert (scan.count(), scan.next_since) == (0, None)


@pytest.mark.parametrize("scenario", ["archival_cow_v6", "archival_cow_v9", "archival_mor_v9"])
def test_a_begin_that_was_archived_is_refused(scenario, tmp_path):
    """Before a data file is opened: here they have no content."""
    table = Table(golden.build(scenario, golden.steps(scenario)[-1], tmp_path))
    archived = [place for place, _, is_archived in places(table) if is_archived]
    assert len(archived) > 1
    before = str(int(archived[0]) - 1)
    for since in (before, archived[0], archived[-2]):
        with pytest.raises(InputError, match=f"since {since} is before {archived[-1]}.*'earliest'"):
            table.incremental(since)
    everything, rest = table.incremental("earliest"), table.incremental(archived[-1])
    assert rest.plan().num_rows > 0
    assert everything.plan().num_rows >= rest.plan().num_rows
