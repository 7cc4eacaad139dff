"""What the report on an object store counts, and what it calls a failure."""

from dataclasses import replace

import pytest

from demo.object_store.record import FORGETS, KEPT, OWN, StoreReport, most_in_a_second
from demo.record import GroupProof, Proof
from tests.demo.object_store.sample import job, measure, report


def changed(way, new):
    """Return the report with another job of a way on day 302."""
    found = report()
    jobs = (new if (each.job.way, each.job.day) == (way, 302) else each for each in found.jobs)
    return replace(found, jobs=tuple(jobs))


def test_a_good_report_has_no_failures_and_can_be_read_back():
    found = report()
    assert found.failures == []
    assert StoreReport.from_json(found.as_json()) == found
    assert found.days == (301, 302, 303)


def test_requests_are_those_of_the_servers_log_within_the_job():
    found = measure(job(OWN, 301, 100.0), 40)
    assert (found.requests.answered, found.requests.by_way) == (40, {OWN: 40})
    assert found.requests.busiest == 8
    assert found.requests.took_s == pytest.approx(0.03)
    assert found.rate == 4
    assert report().spread(OWN, lambda each: each.requests.answered).most == 34


@pytest.mark.parametrize(
    ("way", "new", "told"),
    [
        (
            OWN,
            measure(job(OWN, 302, 0.0), 33, passed=30),
            "day 302, each task builds its own view: its server's log has 33 requests, "
            "its proxy's 30",
        ),
        (
            KEPT,
            measure(job(KEPT, 302, 0.0), 2, tag="writer"),
            "day 302, the service, kept: 2 requests of its time are tagged writer",
        ),
        (
            KEPT,
            measure(job(KEPT, 302, 0.0, fallbacks=("it is dead",)), 2),
            "day 302, the service, kept: tasks stopped using the service: it is dead",
        ),
        (
            OWN,
            measure(job(OWN, 302, 0.0, calls=3), 33),
            "day 302, each task builds its own view: its tasks made 48 calls, the server saw 33",
        ),
        (
            FORGETS,
            measure(job(OWN, 302, 0.0), 6),
            "day 302, each task builds its own view: its tasks made 32 calls, the server saw 6",
        ),
        (
            KEPT,
            measure(job(KEPT, 302, 0.0), 6),
            "the service, kept: up to 6 requests; a service that forgets the table at each commit: "
            "from 6",
        ),
    ],
)
def test_counts_that_disagree_are_failures(way, new, told):
    assert told in changed(way, new).failures


def test_tasks_of_one_worker_and_other_files_are_failures():
    of_day = job(KEPT, 302, 0.0)
    shared = replace(of_day, tasks=(of_day.tasks[0],) * 16)
    assert changed(KEPT, measure(shared, 2)).failures == [
        "day 302, the service, kept: tasks shared a Python worker",
        "day 302: the service, kept: other files than each task builds its own view",
    ]


def test_a_service_that_was_not_replaced_and_wrong_rows_are_failures():
    found = report()
    proofs = found.proofs | {"service-on": (Proof("hudi-rs", 1, "1 rows", 0.1),)}
    bad = replace(
        found, killed=(11, 11), proofs=proofs, groups=GroupProof(303, 310, "dt=1: 2 file groups")
    )
    assert bad.failures == [
        "the service's process 11 was not replaced",
        "service-on: hudi-rs differs: 1 rows",
        "the tables' file groups differ: dt=1: 2 file groups",
    ]


def test_times_are_compared_below_half_of_what_the_server_can_answer():
    assert report().busiest.rate == 3.4
    assert report(capacity=6.9).compares_times
    assert not report(capacity=6.7).compares_times


def test_tasks_may_list_while_the_service_is_replaced():
    found = report()
    listed = measure(job(KEPT, 303, 500.0, fallbacks=("it is dead",), calls=1), 25)
    assert replace(found, after_kill=replace(listed, is_disturbed=True)).failures == []
    assert len(replace(found, after_kill=listed).failures) == 2


def test_the_busiest_second_is_any_second():
    assert most_in_a_second([]) == 0
    assert most_in_a_second([5.0, 0.0, 0.9, 1.8, 1.5, 0.95]) == 4
    assert most_in_a_second([0.0, 1.0, 2.0]) == 1
