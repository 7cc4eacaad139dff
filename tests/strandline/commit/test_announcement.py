"""What a commit announces before it completes, and what others take for unknown."""

from __future__ import annotations

import json
import uuid

from strandline.commit.concurrent_operations import decode_announcement, encode_announcement
from strandline.commit.conflict import ConcurrentOperation
from timeline.instant import COMMIT, Instant, State

INSTANT = Instant("20250101000000000", COMMIT, State.COMPLETED)
GROUPS = frozenset({("eu", "a-0"), ("eu", "b-0"), ("", "c-0"), ("ü/\ud800", "d-0")})
OPERATION = ConcurrentOperation(INSTANT, "UPSERT", GROUPS, '{"type": "record"}', stream="s")


def test_an_announcement_is_read_as_it_was_written():
    assert decode_announcement(INSTANT, encode_announcement(OPERATION)) == OPERATION
    nothing = ConcurrentOperation(INSTANT, "DELETE", frozenset())
    assert decode_announcement(INSTANT, encode_announcement(nothing)) == nothing


def test_another_version_or_type_is_unknown(subtests):
    for name, value in [
        ("version", 2),
        ("version", None),
        ("operation", 1),
        ("schema", None),
        ("stream", None),
        ("groups", [["eu", "a-0"]]),
        ("groups", {"eu": "a-0"}),
        ("groups", {"eu": [["a-0"]]}),
    ]:
        with subtests.test(name=name, value=value):
            content = json.loads(encode_announcement(OPERATION))
            assert (
                decode_announcement(INSTANT, json.dumps({**content, name: value}).encode()) is None
            )
            del content[name]
            assert decode_announcement(INSTANT, json.dumps(content).encode()) is None


def test_what_is_not_an_announcement_is_unknown(subtests):
    for data in [b"", b"[]", b"\xff", b"[" * 100_000]:
        with subtests.test(data=data):
            assert decode_announcement(INSTANT, data) is None
            assert decode_announcement(INSTANT, encode_announcement(OPERATION)[:-1]) is None


def test_a_file_group_takes_less_than_fifty_bytes():
    groups = frozenset(("eu", f"{uuid.UUID(int=at)}-0") for at in range(10_000))
    operation = ConcurrentOperation(INSTANT, "UPSERT", groups, "s" * 1000)
    assert len(encode_announcement(operation)) < 50 * 10_000
