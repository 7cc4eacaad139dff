"""Packets to the service dropped: each worker waits once, then lists; all in one namespace."""

from __future__ import annotations

import subprocess

import pytest

from tests.spark.faults import own_process

pytestmark = [pytest.mark.spark, pytest.mark.faults]

UNSHARE = ("unshare", "--user", "--map-root-user", "--net")
WORKERS = 4
"""Python processes at most: two cores, each with two functions in one stage."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    made = subprocess.run(
        [*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.fail(
            "this test makes a network namespace, and needs unshare (util-linux), ip (iproute2)"
            f" and the right to: {made.stderr}"
        )
    folder = tmp_path_factory.mktemp("black-hole")
    return own_process.run("tests.spark.faults.black_hole_job", folder, before=UNSHARE)


def test_without_a_fault_all_look_ups_are_answered(found):
    assert found["well"]["fallbacks"] == []
    assert set(found["well"]["sources"]) == {"service"}


def test_each_worker_waits_for_the_address_once(found):
    tasks = found["nowhere"]
    assert tasks["right"]
    assert set(tasks["sources"]) == {"local"}
    fallbacks = {(cause, waited): n for cause, waited, n in tasks["fallbacks"]}
    assert set(fallbacks) <= {("unreachable", True), ("unreachable", False)}
    assert 1 <= fallbacks["unreachable", True] <= WORKERS
    assert sum(fallbacks.values()) > WORKERS


def test_the_second_address_answers(found):
    tasks = found["one of two"]
    assert tasks["right"]
    assert tasks["fallbacks"] == []
    assert set(tasks["sources"]) == {"service"}


def test_a_write_survives_the_loss_of_all_packets(found):
    """The driver's look-up and its requests after the commit are lost."""
    wrote = found["lost"]
    assert wrote["left"] == found["well"]["left"]
    assert set(wrote["sources"]) == {"local"}
    assert {cause for cause, _, _ in wrote["fallbacks"]} <= {"late", "unreachable"}
    # The driver's two views at most: that of the write's look-up, and that of the sync after it.
    assert 1 <= sum(n for _, waited, n in wrote["fallbacks"] if waited) <= 2
