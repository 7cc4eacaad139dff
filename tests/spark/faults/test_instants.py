"""Tasks whose instant is newer or older than the service's, and files cleaned under their feet."""

from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from executor_proxy import connect
from executor_proxy.worker_state import start_anew
from strandline.server.process.timeline_service import TimelineService
from strandline.write.engine.local import LocalEngine
from tests.spark.faults import job
from timeline.errors import ViewBehindError

pytestmark = [pytest.mark.spark, pytest.mark.faults]

ALONE = {"hoodie.embed.timeline.server": "false"}
CLEANING = {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1"}
BEHIND = "ViewBehindError"


def commit(base, number, options=None):
    """Update a row of each partition, without telling any service."""
    rows = [
        (f"{partition}-a1", partition, 10 + number, f"v{number}") for partition in job.PARTITIONS
    ]
    with job.client(LocalEngine(), base, {**ALONE, **(options or {})}) as c:
        return c.upsert(job.table(rows))


def look_up(view, partition):
    """Return the names of a partition's newest files, or the class of the error."""
    try:
        return sorted(file.name for file in view.latest_base_files(partition))
    except ViewBehindError:
        return BEHIND


def names_now(base):
    with TimelineService([str(base)], in_process=True) as service:
        view = connect(service.url, base, token=service.token, fallback=False)
        return {partition: look_up(view, partition) for partition in job.PARTITIONS}


def in_tasks(spark, view):
    """Return each partition's answers: each is asked about by two tasks."""
    asked = [*job.PARTITIONS, *job.PARTITIONS]
    numbers = spark.sparkContext.parallelize(asked, len(asked))
    found = numbers.map(lambda partition: (partition, look_up(view, partition))).collect()
    return {p: [answer for q, answer in found if q == p] for p in job.PARTITIONS}


def twice(answers):
    return {partition: [names, names] for partition, names in answers.items()}


def test_a_write_ahead_of_the_service(several_tasks, base, prepared, tmp_path):
    """The service learns of the other's commit by the first look-up, and answers."""
    well = tmp_path / "well"
    shutil.copytree(prepared, well)
    commit(well, 1)
    with job.client(LocalEngine(), well) as c:
        assert c.upsert(job.table(job.changes())).fallbacks == ()
    with job.client(several_tasks, base) as c:
        with closing(connect(c.service.url, base, token=c.service.token, fallback=False)) as view:
            view.latest_base_files(job.PARTITIONS[0])
        commit(base, 1)
        result = c.upsert(job.frame(several_tasks, job.changes()))
    assert result.fallbacks == ()
    assert set(job.sources(result)) == {"service"}
    assert job.left_in(base) == job.left_in(well)


def test_tasks_behind_the_service_are_answered_at_their_instant(spark, base):
    at_first = names_now(base)
    with TimelineService([str(base)]) as service:
        view = connect(service.url, base, token=service.token, fallback=False)
        for number in range(3):
            commit(base, number)
        # The service is at the newest instant now.
        ahead = connect(service.url, base, token=service.token, fallback=False)
        assert in_tasks(spark, view) == twice(at_first)
        now = in_tasks(spark, ahead)
    assert now == twice(names_now(base))
    assert all(now[partition][0] != at_first[partition] for partition in job.PARTITIONS)


def test_tasks_that_list_are_answered_at_their_instant(spark, base):
    """As above, once the service is gone."""
    at_first = names_now(base)
    with TimelineService([str(base)]) as service:
        view = connect(service.url, base, token=service.token)
    for number in range(3):
        commit(base, number)
    assert in_tasks(spark, view) == twice(at_first)


@pytest.mark.parametrize("has_service", [True, False])
def test_a_cleaner_runs_while_tasks_look_up(spark, base, has_service):
    """A task gets what was there at its instant, or an error; never an answer that lacks files."""
    at_first = names_now(base)
    with TimelineService([str(base)]) as service:
        view = connect(service.url, base, token=service.token)
        if not has_service:
            service.stop()
        with ThreadPoolExecutor(1) as cleaner:
            cleaned = cleaner.submit(
                lambda: [commit(base, number, CLEANING).clean for number in range(3)]
            )
            during = [in_tasks(spark, view)]
            while not cleaned.done():
                during.append(in_tasks(spark, view))
        after = in_tasks(spark, view)
        if not has_service:
            # A worker that has listed nothing before the clean; this process has, for its commits.
            start_anew()
            again = pickle.loads(pickle.dumps(view))
            assert {str(look_up(again, partition)) for partition in job.PARTITIONS} == {BEHIND}
    assert sum(each.files_deleted for each in cleaned.result() if each) > 0
    for found in [*during, after]:
        for partition, answers in found.items():
            assert all(answer in (at_first[partition], BEHIND) for answer in answers)
