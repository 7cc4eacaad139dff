"""Table 1 and figure 11 of DCMS, and the balance by tokens, on the fleet's own ring."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import mean, median
from typing import Final

from benchmarks.papers.availability import COPIES, SERVERS
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section, percent, spread
from executor_proxy.seat_ring import DEFAULT, Layout, Seat, SeatRing
from strandline.fleet.planning.simulation import fullest, kept, moved, owned

JOINING: Final = 2
_NUMBERS: Final = 1_000_000
"""Random rings have seats of random numbers below this."""


def random_seats(dice: random.Random, count: int) -> list[Seat]:
    """Return seats with points of their own."""
    return [Seat(number) for number in dice.sample(range(_NUMBERS), count)]


def read(ring: SeatRing, tables: Sequence[str], dice: random.Random) -> Counter[int]:
    """Return seat number → reads, if each table is read ten times, of any copy."""
    return Counter(
        dice.choice(holders).number for holders in map(ring.owners, tables) for _ in range(10)
    )


def survives(ring: SeatRing, seats: Sequence[Seat], tables: Sequence[str], crashes: int) -> bool:
    """Return whether each table has a server left, whichever servers crash."""
    groups = {frozenset(ring.owners(table)) for table in tables}
    return not any(group <= set(down) for down in combinations(seats, crashes) for group in groups)


def table_1(dice: random.Random, tables: Sequence[str], rings: int) -> Section:
    """Return table 1 with m = 10 and r = 3."""
    made = [random_seats(dice, SERVERS) for _ in range(rings)]
    of_seats = [SeatRing(seats) for seats in made]
    few = tables[: len(tables) // 10]
    safe = [
        [survives(ring, seats, few, crashes) for ring, seats in zip(of_seats, made, strict=True)]
        for crashes in (COPIES - 1, COPIES)
    ]
    writes = {len(ring.owners(table)) for ring in of_seats for table in tables}
    by_copies = [fullest(kept(ring, tables).values(), SERVERS) for ring in of_seats]
    by_reads = [fullest(read(ring, tables, dice).values(), SERVERS) for ring in of_seats]
    capacity = [SERVERS / COPIES / share for share in by_copies]
    reads = [SERVERS / share for share in by_reads]
    return Section(
        "Table 1 (DCMS): one server X, m = 10 servers with r = 3 copies",
        [
            Row(
                "crashes that every table survives",
                "r - 1",
                str(COPIES - 1),
                str(COPIES - 1) if all(safe[0]) and not any(safe[1]) else "other",
                all(safe[0]) and not any(safe[1]),
            ),
            Row("servers that a read asks", "1", "1", "1", True),
            Row(
                "servers that a write reaches",
                "r",
                str(COPIES),
                "/".join(map(str, sorted(writes))),
                writes == {COPIES},
            ),
            Row("storage, until the fullest is full", "(X/r)m", "3.33 X", f"{spread(capacity)} X"),
            Row("reads, until the busiest is busy", "Xm", "10 X", f"{spread(reads)} X"),
            Row("writes, until the busiest is busy", "X(m/r)", "3.33 X", f"{spread(capacity)} X"),
        ],
        'The paper calls the storage one "per NameNode"; the formula is that of all together. The'
        " formulas are of a ring that is even: `here` divides them by the load of the fullest"
        f" server. They count work: no throughput was measured. {rings} rings.",
    )


def figure_11(dice: random.Random, tables: Sequence[str], rings: int) -> Section:
    """Return what moves when two servers join."""
    rows = []
    formula, here, by_modulo = [], [], []
    for servers in (4, 8, 10, 12, 20, 40):
        shares, only_to_new = [], True
        for _ in range(rings):
            seats = random_seats(dice, servers + JOINING)
            taken = moved(SeatRing(seats[:servers]), SeatRing(seats), tables)
            only_to_new &= taken.keys() <= {seat.number for seat in seats[servers:]}
            shares.append(taken.total() / len(tables))
        law = JOINING / (servers + JOINING)
        modulo = mean(number % servers != number % (servers + JOINING) for number in range(100_000))
        # A seat's share varies by a tenth (100 tokens), two seats' by 0.07; and the tables drawn.
        deviation = law * (0.071**2 + 1 / (law * len(tables))) ** 0.5 / rings**0.5
        rows.append(
            Row(
                f"{servers} servers; modulo {percent(modulo, 0)}",
                "",
                percent(law, 1),
                spread([100 * share for share in shares], 1) + " %",
                only_to_new and abs(mean(shares) - law) < 4 * deviation,
            )
        )
        formula.append((servers, 100 * law))
        here.append((servers, 100 * median(shares)))
        by_modulo.append((servers, 100 * modulo))
    series = [
        Series("2/(n + 2)", formula),
        Series("here, median", here),
        Series("hash modulo servers", by_modulo),
    ]
    return Section(
        "Figure 11 (DCMS): share of tables that move when two servers join",
        rows,
        "The figure has no numbers; the formula is 2/(n + 2). It agrees if the mean is within four"
        " standard deviations, and every table that moved has moved to a new server."
        f" {rings} rings each.",
        Plot("figure_11", "servers before two join", "tables that move, %", series),
    )


def balance(dice: random.Random, tables: Sequence[str], rings: int) -> Section:
    """Return the load of the fullest server by the number of tokens."""
    rows = []
    of_owners, of_copies = [], []
    for tokens in (1, 10, 100, 1000):
        layout = Layout(tokens=tokens)
        many = [SeatRing(random_seats(dice, SERVERS), layout) for _ in range(rings)]
        loads = [fullest(owned(ring, tables).values(), SERVERS) for ring in many]
        copies = [fullest(kept(ring, tables).values(), SERVERS) for ring in many]
        of_owners.append((tokens, mean(loads)))
        of_copies.append((tokens, mean(copies)))
        # The longest of n random gaps has a mean of H(n)/n.
        longest = sum(1 / n for n in range(1, SERVERS + 1)) if tokens == 1 else None
        name = "1 token" if tokens == 1 else f"{tokens} tokens"
        label = f"{name} (the fleet's)" if tokens == DEFAULT.tokens else name
        rows += [
            Row(
                f"{label}: owned by the fullest",
                "1 + e, e negligible" if tokens == 1 else "",
                f"mean {longest:.2f}" if longest else "",
                f"{spread(loads)}, mean {mean(loads):.2f}",
            ),
            Row(f"{label}: with copies", "", "", spread(copies)),
        ]
    series = [
        Series("e negligible", [(1, 1.0)], is_paper=True),
        Series("owned, mean of rings", of_owners),
        Series("with copies, mean of rings", of_copies),
    ]
    return Section(
        "Balance by tokens: load of the fullest of 10 servers by the mean",
        rows,
        f"Section 4.1 of DCMS calls e negligible with one point a server. {rings} rings each.",
        Plot("balance", "tokens a server", "load of the fullest / mean", series, log_x=True),
    )
