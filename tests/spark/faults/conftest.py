"""A table to write to, and what the same write leaves with a service that is well."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.spark.faults import job


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """A table to be copied."""
    base = tmp_path_factory.mktemp("prepared") / "t"
    job.prepare(base)
    return base


@pytest.fixture
def base(prepared, tmp_path) -> Path:
    shutil.copytree(prepared, tmp_path / "t")
    return tmp_path / "t"


@pytest.fixture(scope="session")
def several_tasks(spark):
    """A session with as many tasks after a shuffle as it is told, however few the rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", job.TASKS)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


@pytest.fixture(scope="session")
def expected(several_tasks, prepared, tmp_path_factory) -> job.Left:
    """What the write leaves with its service on and well."""
    base = tmp_path_factory.mktemp("well") / "t"
    shutil.copytree(prepared, base)
    with job.client(several_tasks, base) as c:
        assert c.service is not None  # waited for, so that it answers
        result = c.upsert(job.frame(several_tasks, job.changes()))
    assert result.fallbacks == ()
    assert set(job.sources(result)) == {"service"}
    left = job.left_in(base)
    assert left.leftovers == []
    assert len(left.rows) == 4 * len(job.PARTITIONS) + len(job.PARTITIONS) + 1
    assert [group[:2] for group in left.groups if group[0] == "p0"] == [
        ("p0", 1),
        ("p0", 2),
        ("p0", 2),
    ]
    return left
