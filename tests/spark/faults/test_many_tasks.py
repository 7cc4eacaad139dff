"""200 tasks over 100 partitions on two cores with the service down: what each worker lists."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from tests.spark.faults import own_process

pytestmark = [pytest.mark.spark, pytest.mark.faults]


# Without reuse each task is a process of its own, which takes longer to start than to look up.
@pytest.mark.parametrize(("tasks", "reuse"), [(200, "true"), (20, "false")])
def test_a_worker_lists_each_partition_once_and_the_timeline_once(tmp_path, tasks, reuse, report):
    found = own_process.run("tests.spark.faults.many_tasks_job", tmp_path, tasks, reuse)
    answers = {partition: names for _, partition, names in found["well"]}
    assert len(answers) == tasks // 2
    asked = defaultdict(set)
    for pid, partition, names in found["down"]:
        assert names == answers[partition]
        asked[str(pid)].add(partition)
    listed = {pid: Counter(places) for pid, places in found["listed"].items() if places}
    if reuse == "false":
        assert len(asked) == tasks
    else:
        assert len(asked) < tasks / 10
    assert listed.keys() == asked.keys()
    for pid, places in listed.items():
        partitions = {place for place in places if not place.startswith(".hoodie/")}
        assert partitions <= asked[pid]
        # A look at the timeline holds for a minute.
        looks = 1 + found["minutes"]
        if partitions < asked[pid]:
            # Reading the table's two commits was cheaper at last: it lists timeline and archive,
            # and looks at the timeline after that.
            looks += 3
        assert places.total() <= len(partitions) + looks
        assert all(places[partition] == 1 for partition in partitions)
    total = sum(map(len, found["listed"].values()))
    report(
        f"service down, worker reuse {reuse}: {tasks} tasks over {tasks // 2} partitions in"
        f" {len(asked)} worker processes made {total} list calls"
    )
