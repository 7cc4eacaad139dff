"""What the lock by ZooKeeper derives from options; tests/oracle has it on a server."""

from __future__ import annotations

import pytest

from strandline.commit.lock.open import open_lock
from strandline.commit.lock.zookeeper import implicit_path, xxhash64
from strandline.write.options.client_options import parse_options
from timeline.errors import ConfigError
from timeline.storage.local import LocalStorage

PACKAGE = "org.apache.hudi.client.transaction.lock."
PREFIX = "hoodie.write.lock.zookeeper."


def test_hashes_are_those_of_xxhash64(subtests: pytest.Subtests) -> None:
    for data, seed, expected in [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (bytes(range(100)), 0, 0x6AC1E58032166597),
        (bytes(range(32)), 2**64 - 1, 0x35220DFDB7D4D7C9),
    ]:
        with subtests.test(data=data, seed=seed):
            assert xxhash64(data, seed) == expected


def test_implicit_path_is_the_same_for_both_schemes_of_s3() -> None:
    assert (
        implicit_path("S3A://b/t") == implicit_path("s3://b/t") == "/tmp/45205BCC2F82AB53/lock_key"
    )
    assert implicit_path("s3://b/t/") != implicit_path("s3://b/t")


def described(table_name: str = "trips", **options: str) -> str:
    named = {f"{PREFIX}{name}": value for name, value in options.items()}
    named["hoodie.write.lock.provider"] = PACKAGE + "ZookeeperBasedLockProvider"
    return open_lock(parse_options(named), LocalStorage("/t"), table_name=table_name).describe()


def test_a_lock_is_described_by_its_servers_and_path(subtests: pytest.Subtests) -> None:
    for options, place in [
        ({"url": "a:1,b:2", "base_path": "/locks"}, "a:1,b:2/locks/trips"),
        ({"url": "a", "base_path": "locks//x/", "lock_key": "k"}, "a/locks/x/k"),
        ({"url": "a:1,b:1", "base_path": "/l", "port": "1"}, "a:1,b:1/l/trips"),
        ({"url": "a", "base_path": "/l", "port": "2181"}, "a/l/trips"),
    ]:
        with subtests.test(options=options):
            assert described(**options) == f"ZookeeperBasedLockProvider at {place}"


def test_missing_and_contradicting_options_are_named(subtests: pytest.Subtests) -> None:
    for options, named in [
        ({"base_path": "/l"}, f"ZookeeperBasedLockProvider needs {PREFIX}url; not set"),
        ({"url": "a"}, f"needs {PREFIX}base_path; not set"),
        (
            {"table_name": ""},
            f"needs {PREFIX}url, {PREFIX}base_path, {PREFIX}lock_key (or hoodie.table.name)",
        ),
        ({"url": "a", "base_path": "/l", "port": "1"}, f"{PREFIX}port is 1 and {PREFIX}url is a"),
    ]:
        with subtests.test(options=options):
            with pytest.raises(ConfigError) as raised:
                described(**options)
            assert named in str(raised.value)
