"""Which instants a commit is compared with, and which conflict, as Hudi's strategies decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.commit.concurrent_operations import decode_announcement, encode_announcement
from strandline.commit.conflict import (
    BUCKET_INDEX,
    PREFER_WRITER,
    SIMPLE,
    STRATEGIES,
    ConcurrentOperation,
    Conflict,
    candidates,
    conflicts_with,
    operation_of,
)
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    ROLLBACK,
    Instant,
    State,
)
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    CompactionPlan,
    CompactionPlanOperation,
    RequestedReplaceMetadata,
    SliceInfo,
    WriteStat,
)
from timeline.timeline import Timeline

A, B, C = ("eu", "a-0"), ("eu", "b-0"), ("us", "a-0")


def at(n, action=COMMIT, state=State.COMPLETED):
    return Instant(f"{n:017d}", action, state)


OURS = at(50, state=State.INFLIGHT)


def times(instants):
    return [int(instant.requested_time) for instant in instants]


def commit(*groups, operation="UPSERT", replaced=None):
    stats = {}
    for partition, file_id in groups:
        stats.setdefault(partition, []).append(WriteStat(file_id=file_id, path="p"))
    return CommitMetadata(
        partition_to_write_stats={path: tuple(each) for path, each in stats.items()},
        operation_type=operation,
        partition_to_replace_file_ids=replaced or {},
        extra_metadata={"schema": "s"},
    )


def test_completed_since_the_start_whenever_they_were_requested():
    seen = Timeline.of([at(10), at(20, state=State.INFLIGHT), at(30), OURS])
    now = Timeline.of([at(10), at(20), at(30), OURS, at(60), at(70, REPLACE_COMMIT)])
    assert times(candidates(seen, now, OURS, SIMPLE, 9)) == [20, 60, 70]


def test_what_writes_no_files_or_still_runs_does_not_count():
    now = Timeline.of(
        [
            at(40, state=State.INFLIGHT),
            at(45, DELTA_COMMIT, State.REQUESTED),
            OURS,
            at(60, state=State.INFLIGHT),
            at(61, CLEAN),
            at(62, ROLLBACK),
        ]
    )
    assert candidates(Timeline.of([OURS]), now, OURS, SIMPLE, 9) == ()


def test_planned_table_services(subtests):
    for action, version, requested, counts in [
        (CLUSTERING, 9, 40, True),
        (CLUSTERING, 9, 60, True),
        (REPLACE_COMMIT, 6, 40, True),  # may be a clustering; its plan decides
        (REPLACE_COMMIT, 9, 60, True),
        (COMPACTION, 6, 40, False),
        (COMPACTION, 6, 60, True),
        (COMPACTION, 8, 60, False),
    ]:
        with subtests.test(action=action, version=version, requested=requested):
            for state in (State.REQUESTED, State.INFLIGHT):
                now = Timeline.of([OURS, at(requested, action, state)])
                found = candidates(Timeline.of([OURS]), now, OURS, SIMPLE, version)
                assert (times(found) == [requested]) == counts
                assert candidates(Timeline.of([OURS]), now, OURS, PREFER_WRITER, version) == ()


def test_only_the_same_group_of_the_same_partition_conflicts():
    ours = operation_of(OURS, commit(A, B))
    others = [
        operation_of(at(60), commit(C)),
        operation_of(at(61), commit(B, C)),
        operation_of(at(62, REPLACE_COMMIT), commit(C, replaced={"eu": ("a-0", "x-0")})),
    ]
    found = conflicts_with(ours, others, SIMPLE)
    assert found == (
        Conflict(f"{61:017d}", COMMIT, "UPSERT", (B,)),
        Conflict(f"{62:017d}", REPLACE_COMMIT, "UPSERT", (A,)),
    )
    assert str(found[0]) == (f"UPSERT of commit {61:017d} changed file group b-0 of partition 'eu'")
    assert conflicts_with(operation_of(OURS, commit()), others, SIMPLE) == ()


def test_plans_name_their_input_groups():
    clustering = RequestedReplaceMetadata(
        "CLUSTER", ClusteringPlan((ClusteringGroup(slices=(SliceInfo("a-0", "eu"),)),))
    )
    compaction = CompactionPlan((CompactionPlanOperation("1", "a-0", "eu"),))
    for instant, plan, operation in (
        (at(40, CLUSTERING, State.REQUESTED), clustering, "CLUSTER"),
        (at(40, REPLACE_COMMIT, State.INFLIGHT), clustering, "CLUSTER"),
        (at(60, COMPACTION, State.INFLIGHT), compaction, "COMPACT"),
    ):
        planned = operation_of(instant, plan)
        assert (planned.operation, planned.groups) == (operation, {A})
        (conflict,) = conflicts_with(operation_of(OURS, commit(A)), [planned], SIMPLE)
        assert (conflict.groups, conflict.resolved) == ((A,), False)


def test_an_overwrite_under_way_conflicts_only_if_it_began_later():
    ours = operation_of(OURS, commit(A))
    for requested, expected in ((40, 0), (60, 1)):
        overwrite = at(requested, REPLACE_COMMIT, State.INFLIGHT)
        other = operation_of(overwrite, commit(A, operation="INSERT_OVERWRITE"))
        assert len(conflicts_with(ours, [other], SIMPLE)) == expected
    requested = operation_of(at(60, REPLACE_COMMIT, State.REQUESTED), RequestedReplaceMetadata())
    assert requested.groups == frozenset()


@pytest.mark.parametrize(
    ("ours", "other", "text"),
    [
        ("INSERT_OVERWRITE", "INSERT_OVERWRITE", "overwrote partition 'eu'"),
        ("INSERT_OVERWRITE", "DELETE_PARTITION", "overwrote partition 'eu'"),
        ("INSERT_OVERWRITE_TABLE", "INSERT_OVERWRITE_TABLE", "overwrote the table"),
        ("INSERT_OVERWRITE_TABLE", "UPSERT", "looked up keys in partition 'eu', which this write"),
        ("UPSERT", "INSERT_OVERWRITE_TABLE", "overwrote partition 'eu'"),
        ("DELETE", "INSERT_OVERWRITE", "overwrote partition 'eu'"),
        ("INSERT_OVERWRITE", "UPSERT_PREPPED", "looked up keys in partition 'eu'"),
        ("INSERT", "INSERT_OVERWRITE_TABLE", None),
        ("INSERT_OVERWRITE_TABLE", "BULK_INSERT", None),
        ("INSERT_OVERWRITE", "CLUSTER", None),
        ("UPSERT", "UPSERT", None),
    ],
)
def test_an_overwrite_concerns_its_partitions_whatever_their_groups_are(ours, other, text):
    """An announcement tells it, too (#32)."""

    def named(operation, number, group):
        replaces = "OVERWRITE" in operation or operation in ("DELETE_PARTITION", "CLUSTER")
        action = REPLACE_COMMIT if replaces else COMMIT
        return operation_of(at(number, action), commit(group, operation=operation))

    mine, elsewhere = named(ours, 50, A), named(other, 60, ("asia", "a-0"))
    if "TABLE" not in ours + other:
        assert conflicts_with(mine, [elsewhere], SIMPLE) == ()
    theirs = named(other, 60, B)
    announced = decode_announcement(theirs.instant, encode_announcement(theirs))
    for each in (theirs, announced):
        found = conflicts_with(mine, [each], SIMPLE)
        assert [text in str(conflict) for conflict in found] == ([] if text is None else [True])
    pending = replace(theirs, instant=at(40, theirs.instant.action, State.INFLIGHT))
    assert conflicts_with(mine, [pending], SIMPLE) == ()


def test_an_earlier_compaction_is_resolved_and_a_later_one_conflicts():
    ours = operation_of(OURS, commit(A))
    earlier = operation_of(at(40), commit(A, operation="COMPACT"))
    later = operation_of(at(60), commit(A, operation="COMPACT"))
    found = conflicts_with(ours, [earlier, later], SIMPLE)
    assert [conflict.resolved for conflict in found] == [True, False]


def test_a_delta_commit_adds_its_logs_to_what_a_later_compaction_wrote():
    ours = operation_of(replace(OURS, action=DELTA_COMMIT), commit(A))
    later = operation_of(at(60), commit(A, operation="COMPACT"))
    (found,) = conflicts_with(ours, [later], SIMPLE)
    assert found.resolved


def test_before_version_8_a_delta_commit_conflicts_with_a_compaction_that_it_has_not_seen(subtests):
    """Its planner may have chosen an earlier time; the delta commit's logs lie on the old slice."""
    ours = operation_of(at(50, DELTA_COMMIT, State.INFLIGHT), commit(A))
    unseen = Timeline.of([ours.instant])
    planned = Timeline.of([at(40, COMPACTION, State.REQUESTED), ours.instant])
    done = Timeline.of([at(40), ours.instant])
    operation = commit(A, operation="COMPACT")
    for now, state in ((planned, State.INFLIGHT), (done, State.COMPLETED)):
        for seen, version, compared, resolved in [
            (unseen, 6, True, False),
            (planned, 6, now is done, True),
            (unseen, 8, now is done, True),
        ]:
            with subtests.test(state=state, version=version, has_seen=seen is planned):
                for strategy in (SIMPLE, PREFER_WRITER):
                    found = candidates(seen, now, ours.instant, strategy, version)
                    assert (times(found) == [40]) == compared
                    other = operation_of(now.instants[0], operation)
                    (conflict,) = conflicts_with(ours, [other], strategy, version, seen)
                    assert conflict.resolved == resolved


def test_two_groups_of_one_bucket_conflict():
    mine, theirs, other = (
        ("eu", "00000001-aaaa-0"),
        ("eu", "00000001-bbbb-0"),
        ("eu", "00000002-aaaa-0"),
    )
    ours = operation_of(OURS, commit(mine))
    found = conflicts_with(
        ours,
        [operation_of(at(60), commit(theirs)), operation_of(at(61), commit(other))],
        BUCKET_INDEX,
    )
    assert [(conflict.instant, conflict.groups) for conflict in found] == [(f"{60:017d}", (mine,))]
    assert conflicts_with(ours, [operation_of(at(60), commit(theirs))], SIMPLE) == ()


def test_the_recorded_schema_is_kept():
    assert operation_of(at(60), commit(A)).avro_schema == "s"
    assert operation_of(at(60), None) == ConcurrentOperation(at(60), "UNKNOWN", frozenset())


def test_names_are_hudis_classes():
    assert {name.rpartition(".")[2] for name in STRATEGIES} == {
        "SimpleConcurrentFileWritesConflictResolutionStrategy",
        "PreferWriterConflictResolutionStrategy",
        "BucketIndexConcurrentFileWritesConflictResolutionStrategy",
    }
