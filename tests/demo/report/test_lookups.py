"""What the report says about look-ups."""

from collections import Counter

from demo.record import BatchRecord, GroupProof, RunRecord, ServiceKill
from demo.report.lookups import account, by_source, rows, unexpected

LATE = ("late", "no answer in 10 s")
DEAD = ("unreachable", "nothing listens there")


def batch(number, kills=0, fallbacks=(), **lookups):
    lists = {("list", "lookup"): number}
    day = f"2013-01-{number:02}"
    return BatchRecord(
        number, day, lookups=lookups, fallbacks=fallbacks, calls=lists, service_kills=kills
    )


def a_run(*batches):
    return RunRecord(service=True, batches=batches, service_kill=ServiceKill(3, 5, 6))


GOOD = a_run(
    batch(1, service=(0.002,)),
    batch(2, service=(0.001, 0.003), cache=(0.00001,)),
    batch(3, kills=1, service=(0.9, 0.1)),
    batch(4, service=(0.004,)),
    batch(5, kills=3, fallbacks=(DEAD, DEAD), local=(0.3,)),
    batch(6, kills=4, fallbacks=(DEAD, LATE), local=(0.2, 0.1)),
    batch(7, service=(0.005,)),
)


def test_batches_in_which_nothing_happened_share_a_row():
    found = rows(GOOD)
    assert [(row.batches, row.event, row.kills) for row in found] == [
        ("1-2", "", 0),
        ("3", "killed once", 1),
        ("4", "", 0),
        ("5", "killed for good", 3),
        ("6", "killed for good", 4),
        ("7", "", 0),
    ]
    first = found[0]
    assert first.counts == {"service": 3, "cache": 1, "local": 0}
    assert first.took_s == (0.00001, 0.001, 0.002, 0.003)
    assert first.list_calls == 3
    assert found[4].fallbacks == Counter(late=1, unreachable=1)
    assert found[4].causes == "1 late, 1 unreachable"


def test_every_batch_can_have_a_row():
    assert [row.batches for row in rows(GOOD, every=True)] == list("1234567")


def test_a_batch_with_fallbacks_has_a_row_of_its_own():
    run = RunRecord(True, (batch(1), batch(2, fallbacks=(LATE,)), batch(3), batch(4)))
    assert [row.batches for row in rows(run)] == ["1", "2", "3-4"]


def test_the_sources_that_answered_nothing_are_left_out():
    assert by_source(GOOD)["local"] == [0.1, 0.2, 0.3]
    assert list(by_source(GOOD)) == ["service", "cache", "local"]
    assert by_source(RunRecord(True, (batch(1, service=(1.0,)),))) == {"service": [1.0]}


def test_the_account_has_the_numbers():
    assert account(GOOD, GroupProof(7, 12, None)) == [
        "In batch 3 the service's process was killed, and the driver replaced it on the same port: "
        "2 look-ups (2 answered by the service), the slowest in 900 ms; no fallback.",
        "In batches 5 to 6 its process and each replacement were killed until the driver gave up "
        "(7 processes): 3 look-ups (3 by listing storage), the slowest in 300 ms; "
        "fallbacks: 1 late, 3 unreachable.",
        "From batch 7 on, another service ran: 1 look-up (1 answered by the service), the slowest "
        "in 5 ms; no fallback.",
        "The table's 7 file groups and 12 file slices equal those of the run with the service on.",
    ]


def test_the_account_claims_no_equality_that_was_not_shown():
    assert len(account(GOOD, None)) == len(account(GOOD, GroupProof(7, 12, "differ"))) == 3
    assert account(RunRecord(True, (batch(1),)), None) == []


def test_fallbacks_are_expected_only_while_the_service_is_killed():
    assert unexpected(GOOD) == []
    # Whether tasks outwait the replacement depends on the machine.
    slow = a_run(*GOOD.batches[:2], batch(3, kills=1, fallbacks=(LATE,)), *GOOD.batches[3:])
    assert unexpected(slow) == []
    bad = a_run(batch(1, fallbacks=(LATE, LATE)), batch(3), batch(5, kills=4), batch(7))
    assert unexpected(bad) == [
        "batch 1: tasks stopped using the service: no answer in 10 s",
        "batch 3: the service was not killed",
        "batch 5: the service was killed, and nothing fell back",
    ]
