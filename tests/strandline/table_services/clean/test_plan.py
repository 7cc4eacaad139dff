"""The planner as a pure function: groups in, names of files out."""

from __future__ import annotations

from functools import partial

from fsview.model.file_group import BaseFile, CompactionOperation, FileGroup, FileSlice, LogFile
from strandline.table_services.clean.parts import divided
from strandline.table_services.clean.plan import (
    FROM_THE_START,
    PartitionGroups,
    Rule,
    Savepoints,
    cleaner_plan,
    deleted_slices,
    fates,
    fates_in,
    instants_between,
    instants_since,
    partitions_left_over,
    partitions_named,
    plan_since,
)
from strandline.table_services.clean.policy import (
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    Retention,
)
from timeline.instant import Instant, State
from timeline.metadata.instant_metadata import (
    ActionInstant,
    CleanMetadata,
    CleanPartitionMetadata,
    CommitMetadata,
    SavepointMetadata,
    SavepointPartitionMetadata,
    WriteStat,
)
from timeline.metadata.written_files import CommitFiles
from timeline.timeline import Timeline


def commits(*times: str, pending: tuple[str, ...] = ()) -> Timeline:
    return Timeline.of(
        [Instant(time, "commit", State.COMPLETED) for time in times]
        + [Instant(time, "commit", State.INFLIGHT) for time in pending]
    )


def base(file_id: str, instant: str, partition: str = "p") -> BaseFile:
    name = f"{file_id}_0-0-0_{instant}.parquet"
    return BaseFile(partition, name, 10, 0, file_id, instant)


def log(file_id: str, instant: str, version: int = 1, suffix: str = "") -> LogFile:
    name = f".{file_id}_{instant}.log.{version}_0-0-0{suffix}"
    return LogFile("p", name, 1, 0, file_id, instant, version, "0-0-0", suffix)


def group(file_id: str, *instants: str, partition: str = "p") -> FileGroup:
    slices = tuple(
        FileSlice(partition, file_id, instant, base(file_id, instant, partition))
        for instant in sorted(instants, reverse=True)
    )
    return FileGroup(partition, file_id, slices, Timeline())


def plan(timeline, earliest, groups=(), replaced=(), partitions=("p",), **more):
    found = timeline.find(earliest)
    assert found is not None
    return plan_by(
        timeline, Retention(KEEP_LATEST_COMMITS, found), groups, replaced, partitions, **more
    )


def plan_by(timeline, kept, groups=(), replaced=(), partitions=("p",), **more):
    more.setdefault("savepoints", Savepoints())
    deleted = deleted_slices(
        timeline,
        kept,
        partitions,
        lambda partition: PartitionGroups(
            tuple(g for g in groups if g.partition == partition),
            tuple(g for g in replaced if g.partition == partition),
        ),
        **more,
    )
    plan_of = partial(cleaner_plan, timeline, kept, "/lake/t", more["savepoints"])
    return next((part.planned for part in divided(deleted, plan_of, 1 << 40)), None)


def names(planned) -> list[str]:
    if planned is None:
        return []
    return sorted(
        file.file_path.rpartition("/")[2]
        for files in planned.plan.file_paths_to_be_deleted_per_partition.values()
        for file in files
    )


def test_the_newest_slice_before_the_earliest_stays(subtests):
    for instants, earliest, gone in [
        (("1",), "4", []),
        (("4", "5"), "4", []),
        (("1", "4"), "4", []),
        (("1", "2"), "4", ["1"]),
        (("1", "2", "3", "4", "5"), "4", ["1", "2"]),
        (("1", "3", "5"), "3", []),
        (("1", "2", "3", "5"), "3", ["1"]),
    ]:
        with subtests.test(instants=instants, earliest=earliest):
            timeline = commits("1", "2", "3", "4", "5")
            planned = plan(timeline, earliest, [group("a", *instants)])
            assert names(planned) == [base("a", instant).name for instant in gone]


def test_what_is_not_committed_neither_goes_nor_counts():
    timeline = commits("1", "3", "5")
    # The file of 2 was left behind by a write that failed: a reader at 3 reads 1.
    assert names(plan(timeline, "3", [group("a", "1", "2", "3")])) == []
    assert names(plan(timeline, "5", [group("a", "0", "1", "2")])) == [base("a", "0").name]


def test_what_is_archived_counts_as_committed():
    planned = plan(commits("7", "8"), "8", [group("a", "1", "2", "7")])
    assert names(planned) == [base("a", "1").name, base("a", "2").name]


def test_a_savepointed_commit_does_not_pass_for_the_timelines_start():
    """The commits around it are archived, so what they wrote is committed."""
    timeline = Timeline.of([*commits("2", "8", "9"), Instant("2", "savepoint", State.COMPLETED)])
    planned = plan(timeline, "9", [group("a", "2", "3", "4")])
    assert names(planned) == [base("a", "2").name, base("a", "3").name]


def test_logs_go_with_their_slice():
    slices = (
        FileSlice("p", "a", "3", base("a", "3")),
        FileSlice("p", "a", "2", base("a", "2")),
        FileSlice("p", "a", "1", None, (log("a", "1", 2, ".cdc"), log("a", "1"))),
    )
    planned = plan(commits("1", "2", "3", "4"), "4", [FileGroup("p", "a", slices, Timeline())])
    assert names(planned) == [
        log("a", "1").name,
        log("a", "1", 2, ".cdc").name,
        base("a", "2").name,
    ]
    assert planned.bytes == 12
    assert planned.files == 3


def test_a_replaced_group_goes_whole():
    planned = plan(commits("1", "2", "3"), "3", replaced=[group("a", "1", "2")])
    assert names(planned) == [base("a", "1").name, base("a", "2").name]


def test_a_savepoint_keeps_whole_slices_of_live_and_replaced_groups():
    savepoints = Savepoints.of(
        {
            "1": SavepointMetadata(
                partition_metadata={
                    "p": SavepointPartitionMetadata("p", (base("a", "1").name, base("r", "1").name))
                }
            )
        }
    )
    live = FileGroup(
        "p",
        "a",
        (
            FileSlice("p", "a", "3", base("a", "3")),
            FileSlice("p", "a", "2", base("a", "2")),
            FileSlice("p", "a", "1", base("a", "1"), (log("a", "1"),)),
        ),
        Timeline(),
    )
    planned = plan(
        commits("1", "2", "3", "4"), "4", [live], [group("r", "1", "2")], savepoints=savepoints
    )
    assert names(planned) == [base("a", "2").name, base("r", "2").name]
    assert planned.plan.extra_metadata == {"savepointed_timestamps": "1"}


def test_a_pending_compaction_keeps_the_slices_it_will_read():
    """From the one it was planned on; older ones go."""
    timeline = commits("1", "2", "3", "4", "6")
    operation = CompactionOperation("p", "a", "2", "5")
    planned = plan(timeline, "6", [group("a", "1", "2", "3", "4")], compactions=[operation])
    assert names(planned) == [base("a", "1").name]


def test_nothing_to_delete_is_no_plan():
    assert plan(commits("1", "2"), "2", [group("a", "1", "2")]) is None
    assert plan(commits("1", "2"), "2", partitions=()) is None


def test_the_plan_says_what_hudis_says():
    timeline = commits("1", "2", "3", "4")
    planned = plan(
        timeline,
        "3",
        [group("a", "1", "2", partition="x=1/y=é"), group("b", "1", "2", partition="")],
        partitions=("x=1/y=é", "", "nowhere"),
    )
    said = planned.plan
    assert said.earliest_instant_to_retain == ActionInstant("3", "commit", "COMPLETED")
    assert said.last_completed_commit_timestamp == "4"
    assert said.policy == "KEEP_LATEST_COMMITS"
    assert said.version == 2
    assert said.files_to_be_deleted_per_partition == {}
    assert said.partitions_to_be_deleted == ()
    assert {
        partition: [(file.file_path, file.is_bootstrap_base_file) for file in files]
        for partition, files in said.file_paths_to_be_deleted_per_partition.items()
    } == {
        "": [("file:/lake/t/b_0-0-0_1.parquet", False)],
        "x=1/y=é": [("file:/lake/t/x=1/y=é/a_0-0-0_1.parquet", False)],
    }


def test_needed_from_is_where_deleting_stops():
    kept = Retention(KEEP_LATEST_COMMITS, Instant("9", "commit", State.COMPLETED))
    found = fates(group("a", "1", "2", "3"), kept, lambda _: True, needed_from="2")
    assert {each.found.base_instant: each.rule for each in found} == {
        "3": Rule.READ,
        "2": Rule.COMPACTION,
        "1": Rule.SUPERSEDED,
    }


# By versions.


def versions(kept: int) -> Retention:
    return Retention(KEEP_LATEST_FILE_VERSIONS, None, kept)


def test_the_newest_versions_stay(subtests):
    timeline = commits("1", "2", "3", "4")
    for kept, gone in [(1, ["1", "2", "3"]), (3, ["1"]), (4, []), (9, [])]:
        with subtests.test(kept=kept):
            planned = plan_by(timeline, versions(kept), [group("a", "1", "2", "3", "4")])
            assert names(planned) == [base("a", instant).name for instant in gone]


def test_what_is_not_committed_is_no_version():
    timeline = commits("1", "2", "4", pending=("3",))
    planned = plan_by(timeline, versions(2), [group("a", "1", "2", "3", "4")])
    assert names(planned) == [base("a", "1").name]


def test_what_a_compaction_will_read_is_one_version():
    """Hudi's ``getFilesToCleanKeepingLatestVersions``."""
    operation = CompactionOperation("p", "a", "3", "5")
    for kept, gone in [(1, ["1", "2"]), (2, ["1"]), (3, [])]:
        planned = plan_by(
            commits("1", "2", "3", "4"),
            versions(kept),
            [group("a", "1", "2", "3", "4")],
            compactions=[operation],
        )
        assert names(planned) == [base("a", instant).name for instant in gone]


def test_a_plan_by_versions_has_no_earliest_instant_and_tells_how_many_it_kept():
    planned = plan_by(commits("1", "2"), versions(1), [group("a", "1", "2")], [group("r", "2")])
    assert names(planned) == [base("a", "1").name, base("r", "2").name]
    said = planned.plan
    assert said.earliest_instant_to_retain is None
    assert said.policy == KEEP_LATEST_FILE_VERSIONS
    assert said.extra_metadata == {"strandline.clean.versions": "1"}


def test_by_versions_only_what_completed_since_the_last_clean_is_read(subtests):
    timeline = Timeline.of(
        [
            Instant("2", "commit", State.COMPLETED, "3"),
            Instant("4", "commit", State.COMPLETED, "7"),
            Instant("6", "commit", State.COMPLETED, "8"),
            Instant("9", "commit", State.INFLIGHT),
        ]
    )
    said = {"strandline.clean.versions": "2"}
    last = Instant("5", "clean", State.COMPLETED)
    for known, found in [
        (CleanMetadata(extra_metadata=said), ["4", "6"]),
        # Hudi's, another number, another policy: what they left isn't known.
        (CleanMetadata(), None),
        (CleanMetadata(extra_metadata={"strandline.clean.versions": "3"}), None),
        (CleanMetadata(earliest_commit_to_retain="2", extra_metadata=said), None),
        (None, None),
    ]:
        with subtests.test(known=known):
            since = instants_since(timeline, last, known, 2)
            assert since is None or [i.requested_time for i in since] == found
            assert (since is None) is (found is None)
    archived = Instant("1", "clean", State.COMPLETED)
    assert instants_since(timeline, archived, CleanMetadata(extra_metadata=said), 2) is None


def test_each_slice_has_a_reason():
    timeline = commits("1", "2", "3", "4", pending=("5",))
    saved = Savepoints.of(
        {
            "1": SavepointMetadata(
                partition_metadata={"p": SavepointPartitionMetadata("p", (base("b", "1").name,))}
            )
        }
    )
    kept = Retention(KEEP_LATEST_COMMITS, timeline.find("4"))
    groups = PartitionGroups(
        (group("a", "1", "2", "4", "5"), group("b", "1", "2")), (group("r", "3"),)
    )
    reasons = {
        (fate.found.file_id, fate.found.base_instant): (fate.rule, fate.by)
        for fate in fates_in(timeline, kept, saved)(groups)
    }
    assert reasons == {
        ("a", "5"): (Rule.UNCOMMITTED, "5"),
        ("a", "4"): (Rule.RETAINED, "4"),
        ("a", "2"): (Rule.READ, "4"),
        ("a", "1"): (Rule.SUPERSEDED, "2"),
        ("b", "2"): (Rule.READ, "4"),
        ("b", "1"): (Rule.SAVEPOINT, "1"),
        ("r", "3"): (Rule.REPLACED, ""),
    }
    deleted = deleted_slices(timeline, kept, ["p"], lambda partition: groups, savepoints=saved)
    assert [fate.reason for fate in deleted] == [
        "superseded by the slice of 2, which retained readers use in its place",
        "its file group was replaced, and no retained reader uses it",
    ]


# Where to look.


def stats(**by_partition: str) -> CommitMetadata:
    return CommitMetadata(
        {p: (WriteStat(file_id="f", prev_commit=prev),) for p, prev in by_partition.items()}
    )


def named(commits):
    return partitions_named(map(CommitFiles.of, commits))


def test_partitions_that_only_got_new_groups_are_not_looked_at():
    assert named([stats(a="null", b="1"), stats(c="null")]) == {"b"}


def test_partitions_that_only_got_logs_are_not_looked_at():
    """A log's previous commit is never "null" from version 8 on."""
    stat = WriteStat(file_id="a", path=f"p/{log('a', '3').name}", prev_commit="3")
    assert named([CommitMetadata({"p": (stat,)})]) == set()


def test_a_compaction_may_call_the_first_base_file_of_old_logs_new():
    compacted = CommitMetadata(stats(a="null").partition_to_write_stats, compacted=True)
    by_type = CommitMetadata(stats(b="null").partition_to_write_stats, operation_type="COMPACT")
    assert named([compacted, by_type]) == {"a", "b"}


def test_partitions_of_replaced_groups_are_looked_at():
    replacing = CommitMetadata(partition_to_replace_file_ids={"r": ("f",)})
    assert named([replacing]) == {"r"}


def test_only_instants_that_left_the_window_since_are_read():
    timeline = commits("1", "2", "3", "4", pending=("25",))
    earliest = Instant("4", "commit", State.COMPLETED)
    assert [i.requested_time for i in instants_between(timeline, "2", earliest)] == ["2", "3"]
    assert len(instants_between(timeline, FROM_THE_START, earliest)) == 3
    assert instants_between(timeline, "4", earliest) == ()


def test_plan_since(subtests):
    for last_clean, saved, since in [
        (None, (), FROM_THE_START),
        (CleanMetadata(), (), FROM_THE_START),
        (CleanMetadata(earliest_commit_to_retain="2"), (), "2"),
        # 1 is archived, and with it perhaps others since.
        (CleanMetadata(earliest_commit_to_retain="1"), (), FROM_THE_START),
        (
            CleanMetadata(
                earliest_commit_to_retain="3", extra_metadata={"savepointed_timestamps": "2,3"}
            ),
            ("2", "3", "4"),
            "3",
        ),
        # A savepoint is gone: what it kept may go anywhere.
        (
            CleanMetadata(
                earliest_commit_to_retain="3", extra_metadata={"savepointed_timestamps": "2,3"}
            ),
            ("3",),
            FROM_THE_START,
        ),
    ]:
        with subtests.test(last_clean=last_clean, saved=saved):
            assert plan_since(commits("2", "3", "4"), last_clean, saved) == since


def test_an_instant_kept_by_a_savepoint_does_not_hide_that_others_are_archived():
    timeline = Timeline.of([*commits("2", "8"), Instant("2", "savepoint", State.COMPLETED)])
    assert plan_since(timeline, CleanMetadata(earliest_commit_to_retain="3"), ("2",)) == ""


def test_partitions_where_deleting_failed_are_looked_at_again():
    last = CleanMetadata(
        partition_metadata={
            "a": CleanPartitionMetadata("a", failed_delete_files=("x",)),
            "b": CleanPartitionMetadata("b", success_delete_files=("y",)),
        }
    )
    assert partitions_left_over(last) == {"a"}
    assert partitions_left_over(None) == set()
