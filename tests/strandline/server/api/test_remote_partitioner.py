"""Where buckets begin: as Hudi's server answers, the same for all clients, remembered or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from strandline.server.api.remote_partitioner import BucketRange, RemotePartitioner, count_of
from strandline.server.api.routes import PARTITION_INDEX
from strandline.server.process.composition_root import Parts
from tests.kit.servers.live_service import AppClient, parts_of
from timeline.errors import InputError


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = parts_of("/lake")
    yield parts
    parts.close()


def test_a_path_has_a_beginning_for_each_pair_of_numbers() -> None:
    indexes = RemotePartitioner()
    assert indexes.index(BucketRange("a", 10, 16)) == 0
    assert indexes.index(BucketRange("b", 10, 16)) == 10
    assert indexes.index(BucketRange("c", 10, 16)) == 4
    assert indexes.index(BucketRange("a", 10, 4)) == 0
    assert indexes.index(BucketRange("b", 10, 4)) == 2
    assert indexes.index(BucketRange("a", 10, 16)) == 0


@pytest.mark.parametrize("buckets", [1, 7, 64, 1000])
def test_buckets_spread_evenly_over_a_job(buckets: int) -> None:
    indexes, load = RemotePartitioner(), [0] * 16
    for number in range(160):
        first = indexes.index(BucketRange(f"p={number}", buckets, 16))
        for bucket in range(buckets):
            load[(first + bucket) % 16] += 1
    assert set(load) == {buckets * 160 // 16}


def test_concurrent_requests_get_the_same_answer() -> None:
    indexes = RemotePartitioner()
    heard: list[list[int]] = []

    def ask() -> None:
        heard.append([indexes.index(BucketRange(f"p={n}", 3, 64)) for n in range(500)])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(indexes) for indexes in heard}) == 1


def test_what_is_too_much_to_remember_is_the_same_each_time() -> None:
    indexes = RemotePartitioner(1000)
    asked = [BucketRange(path, 3, 1000) for path in ("a", "b", "c", "d", "é" * 5000)]
    first = [indexes.index(one) for one in asked]
    assert first[:2] == [0, 3]
    assert [indexes.index(one) for one in reversed(asked)] == first[::-1]
    assert all(0 <= index < 1000 for index in first)


def test_a_number_that_is_none_is_refused(subtests: pytest.Subtests, parts: Parts) -> None:
    for text in ["0", "-1", "+1", " 1", "1.0", "x", "\uff11", "2147483648", "9" * 5000]:
        with subtests.test(text=text):
            with pytest.raises(
                InputError, match=r"numbuckets is .*; allowed: a whole number from 1 to"
            ):
                count_of(text, "numbuckets")
            for name in ("numbuckets", "partitionnum"):
                asked = {"numbuckets": "4", "partitionnum": "8", "partitionpath": "a", name: text}
                assert AppClient(parts).ask("GET", PARTITION_INDEX, asked)[0] == 400


def test_the_largest_numbers_are_taken() -> None:
    indexes, most = RemotePartitioner(), 2**31 - 1
    assert indexes.index(BucketRange("a", most, most)) == 0
    assert indexes.index(BucketRange("b", most - 1, most)) == 0
    assert indexes.index(BucketRange("c", 1, most)) == most - 1
