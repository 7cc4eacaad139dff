"""What is told of a stage that Spark gave up, from the text of its error."""

from __future__ import annotations

import pytest

from strandline.write.engine.failed_task import lost_worker

GIVEN_UP = (
    "An error occurred while calling o836.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 12.0"
    " failed 4 times, most recent failure: Lost task 3.3 in stage 12.0 (TID 34)"
    " (10.0.0.1 executor 1): {}\n\tat org.apache.spark.api.python.BasePythonRunner"
)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "Python worker exited unexpectedly (crashed)",
        ),
        (
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: x",
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: x",
        ),
        (
            "java.net.SocketException: Connection reset",
            "java.net.SocketException: Connection reset",
        ),
    ],
)
def test_workers_that_end_too_often_are_told_with_stage_and_cause(cause: str, told: str) -> None:
    """Not as an error of ``collectToPython`` (#32)."""
    error = lost_worker(RuntimeError(GIVEN_UP.format(cause)))
    assert error is not None
    assert error.retryable
    assert error.message == (
        "Spark gave up stage 12.0 of this write, and nothing was committed: Task 3 in stage 12.0"
        f" failed 4 times, at last by: {told}"
    )


def test_rows_that_are_lost_too_often_are_told_with_stage_and_cause() -> None:
    """Executors that end take what other stages were to read with them (#32)."""
    error = lost_worker(
        RuntimeError(
            "An error occurred while calling o836.collectToPython.\n"
            ": org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 7"
            " (collectToPython at NativeMethodAccessorImpl.java:0) has failed the maximum allowable"
            " number of times: 4. Most recent failure reason:\n"
            "org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for"
            " shuffle 2 partition 0\n\tat org.apache.spark.MapOutputTracker$.validateStatus"
        )
    )
    assert error is not None
    assert error.retryable
    assert error.message == (
        "Spark gave up stage 7 of this write, and nothing was committed: failed the maximum"
        " allowable number of times: 4, at last by:"
        " org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for"
        " shuffle 2 partition 0"
    )


def test_other_failures_of_tasks_are_not_taken_for_lost_workers() -> None:
    cause = "org.apache.spark.api.python.PythonException: ValueError: mine"
    assert lost_worker(RuntimeError(GIVEN_UP.format(cause))) is None
    assert lost_worker(RuntimeError("Python worker exited unexpectedly")) is None
    # A connection to storage, not to a worker.
    elsewhere = GIVEN_UP.replace("org.apache.spark.api.python.BasePythonRunner", "org.acme.Store")
    assert lost_worker(RuntimeError(elsewhere.format("java.net.SocketException: reset"))) is None
