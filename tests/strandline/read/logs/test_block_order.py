"""Which blocks count, in which order: rollbacks, uncommitted instants, log compactions."""

from __future__ import annotations

import pytest

from strandline.read.logs.block_order import PlacedBlock, blocks_in_order
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND,
    COMMAND_TYPE,
    COMPACTED_TIMES,
    DELETE,
    INSTANT_TIME,
    TARGET_INSTANT_TIME,
    LogBlock,
)
from timeline.errors import CorruptMetadataError, UnsupportedTableError


def data(time, name="", kind=AVRO_DATA, **merges):
    header = {INSTANT_TIME: time}
    if merges:
        header[COMPACTED_TIMES] = merges["of"]
    return PlacedBlock(LogBlock(kind, header, (name or time).encode(), 0), "a log")


def rollback(target, command="0"):
    header = {INSTANT_TIME: "99", TARGET_INSTANT_TIME: target, COMMAND_TYPE: command}
    return PlacedBlock(LogBlock(COMMAND, header, b"", 7), "a log")


def ordered(*blocks, uncommitted=()):
    found = blocks_in_order(blocks, lambda time: time not in uncommitted)
    return [placed.block.content.decode() for placed in found]


def test_blocks_come_by_instant_in_the_order_of_its_first_block():
    blocks = data("1", "1a"), data("2", "2a"), data("1", "1b", DELETE), data("2", "2b")
    assert ordered(*blocks) == ["1a", "1b", "2a", "2b"]
    assert ordered() == []


def test_blocks_of_instants_that_are_not_completed_are_left_out():
    assert ordered(data("1"), data("2"), data("3"), uncommitted={"2"}) == ["1", "3"]


def test_a_rollback_removes_what_is_before_it():
    assert ordered(data("1"), data("2"), data("3"), rollback("2")) == ["1", "3"]
    # The instant's time may be used again: by the same write, tried again.
    assert ordered(data("2", "a"), data("3"), rollback("2"), data("2", "b")) == ["3", "b"]
    assert ordered(rollback("7"), data("1"), rollback("7"), rollback("1")) == []


def test_what_was_rolled_back_is_not_asked_for():
    asked = []
    blocks = data("1"), data("2"), data("1"), rollback("2")
    blocks_in_order(blocks, lambda time: asked.append(time) or True)
    assert asked == ["1"]


def test_another_command_is_refused():
    with pytest.raises(UnsupportedTableError, match=r"a log, block at offset 0, .*command '1'"):
        ordered(data("1"), rollback("1", "1"))


def test_a_log_compaction_comes_in_the_place_of_the_newest_it_compacted():
    blocks = data("1"), data("2"), data("3"), data("4", "1+2", of="1,2")
    assert ordered(*blocks) == ["1+2", "3"]
    both = data("1"), data("2"), data("3"), data("4", "a", of="1,2"), data("4", "b", of="1,2")
    assert ordered(*both) == ["a", "b", "3"]


def test_log_compactions_of_log_compactions():
    blocks = (
        *(data(time) for time in "12"),
        data("3", "1+2", of="1,2"),
        *(data(time) for time in "456"),
        data("7", "1+2+4+5", of="3,4,5"),
        data("8"),
    )
    assert ordered(*blocks) == ["1+2+4+5", "6", "8"]


def test_a_log_compaction_that_is_not_completed_or_rolled_back_replaces_nothing():
    blocks = data("1"), data("2"), data("3", "1+2", of="1,2")
    assert ordered(*blocks, uncommitted={"3"}) == ["1", "2"]
    assert ordered(*blocks, rollback("3")) == ["1", "2"]


def test_a_log_compaction_whose_blocks_are_gone_comes_in_its_own_place():
    assert ordered(data("3"), data("4", "1+2", of="1,2"), data("5")) == ["3", "1+2", "5"]


def test_a_log_compaction_that_names_itself_replaces_only_the_others():
    assert ordered(data("1"), data("2"), data("3", "1+3", of="1,3")) == ["1+3", "2"]
    assert ordered(data("2"), data("3", "1+3", of="1,3")) == ["2", "1+3"]
    assert ordered(data("3", "3", of="3")) == ["3"]


@pytest.mark.parametrize("compactions", ["4:5 5:4", "4:1,5 5:2,4", "4:6 5:4 6:5"])
def test_log_compactions_that_replace_each_other_are_damage(compactions):
    """Hudi's reader shows none of their rows."""
    pairs = [each.split(":") for each in compactions.split()]
    blocks = [data(time, time, of=times) for time, times in pairs]
    with pytest.raises(CorruptMetadataError, match=r"a log, block at offset 0, is of instant "):
        ordered(*blocks)
