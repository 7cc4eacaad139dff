"""Frames whose file slices a timeline service tells: the driver asks, and tasks know nothing of it.

By ``strandline.spark.read``, and on PySpark 4 by ``spark.read.format("strandline")``.
"""

from __future__ import annotations

import pickle
import socket
from importlib.metadata import version
from types import SimpleNamespace

import pyarrow as pa
import pytest

from strandline import Table
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables import golden

IS_SPARK_4 = int(version("pyspark").partition(".")[0]) >= 4
WAYS = ["read", pytest.param("load", marks=pytest.mark.skipif(not IS_SPARK_4, reason="PySpark 4"))]
pytestmark = [pytest.mark.spark, pytest.mark.parametrize("way", WAYS)]
TABLES = ["mor_basic_v6", "mor_basic_v9"]
ADDRESS = "http://127.0.0.1:{}"


@pytest.fixture
def frame_of(spark, way):
    """Return what makes a frame of a table: ``frame_of(path, **options)``."""
    if way == "read":
        from strandline.spark import read

        return lambda base, **options: read(spark, base, **options)
    from strandline.spark_source import StrandlineDataSource

    spark.dataSource.register(StrandlineDataSource)
    return lambda base, **options: spark.read.format("strandline").load(str(base), **options)


def rows(frame):
    return by_key(pa.Table.from_batches(frame._collect_as_arrow()))


def by_key(table):
    return sorted(table.to_pylist(), key=lambda r: (r["_hoodie_partition_path"], r["id"]))


def asked(server):
    """Return how often file slices were asked for."""
    requests = server.parts.status()["requests"]
    return sum(count for route, count in requests.items() if "slices" in route)


@pytest.mark.parametrize("name", TABLES)
def test_the_driver_asks_and_tasks_do_not(frame_of, tmp_path, name):
    base = golden.build_final(name, tmp_path)
    with serving(str(tmp_path)) as server:
        frame = frame_of(base, service=ADDRESS.format(server.port), token=TOKEN)
        count = asked(server)
        assert count > 0
        assert rows(frame) == by_key(Table(base).to_arrow())
        assert asked(server) == count
    assert frame.count() == Table(base).scan().count()


def test_plans_show_no_token(frame_of, tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    with serving(str(tmp_path)) as server:
        frame = frame_of(base, service=ADDRESS.format(server.port), token=TOKEN)
    execution = frame._jdf.queryExecution()
    for plan in (execution.toString(), execution.logical().treeString(), repr(frame)):
        assert TOKEN not in plan


def test_a_service_that_is_down_is_replaced_by_listing(frame_of, tmp_path):
    base = golden.build_final("mor_basic_v9", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        service = ADDRESS.format(unused.getsockname()[1])
    assert rows(frame_of(base, service=service, token=TOKEN)) == by_key(Table(base).to_arrow())


def test_a_service_that_wants_another_token_is_replaced_by_listing(frame_of, tmp_path):
    base = golden.build_final("mor_basic_v9", tmp_path)
    with serving(str(tmp_path)) as server:
        frame = frame_of(base, service=ADDRESS.format(server.port), token="another")
        assert rows(frame) == by_key(Table(base).to_arrow())
        assert asked(server) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"service": "localhost:8080"}, "localhost:8080"),
        ({"service": ""}, "service is ''; allowed: http"),
        ({"token": TOKEN}, "token is given without service"),
    ],
)
def test_bad_addresses_are_refused_by_name(frame_of, tmp_path, options, message):
    base = golden.build_final("cow_basic_v9", tmp_path)
    with pytest.raises(Exception, match=message) as raised:
        frame_of(base, **options)
    assert TOKEN not in str(raised.value)


class Session:
    """Stands for a session of Spark, and keeps the function that tasks run."""

    sparkContext = SimpleNamespace(defaultParallelism=1)  # noqa: N815 - Spark's name

    def range(self, *_):
        return self

    def mapInArrow(self, function, _schema):  # noqa: N802 - Spark's name
        return function


def test_what_tasks_are_sent_has_no_token(way, tmp_path):
    base = golden.build_final("mor_basic_v9", tmp_path)
    file_id = Table(base).files()["file_id"][0].as_py().encode()
    options = {"token": TOKEN}
    with serving(str(tmp_path)) as server:
        options["service"] = ADDRESS.format(server.port)
        if way == "read":
            from strandline.spark import read

            sent = [pickle.dumps(read(Session(), base, **options))]
        else:
            from strandline.spark_source import StrandlineDataSource

            source = StrandlineDataSource({"path": str(base), **options})
            sent = [pickle.dumps(source)]
            reader = source.reader(source.schema())
            # Tasks need no more of these two than the name, and how to read.
            assert all(file_id not in pickle.dumps(each) for each in (source, reader))
            sent += map(pickle.dumps, (source, reader, *reader.partitions()))
    assert file_id in sent[0]
    for each in sent:
        assert TOKEN.encode() not in each
        assert options["service"].encode() not in each
