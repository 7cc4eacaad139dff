"""The page of a run of groups: their load, the plan, mounts and moves, latency, and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import nan
from pathlib import Path

from demo.fleet.groups_record import GroupsRecord, durations, latencies
from demo.fleet.page import (
    asked_table,
    event_table,
    figure_of,
    head,
    mark_events,
    proof_table,
    round_table,
    svg,
    table,
    write_html,
)
from demo.record import milliseconds


def write_groups_page(record: GroupsRecord, file: Path) -> None:
    """Write the page, one file of HTML with its drawing; needs matplotlib."""
    write_html(_page(record), file)


def _page(record: GroupsRecord) -> Iterator[str]:
    yield from head("A hot table moves to another group", is_right=record.is_right)
    yield (
        "<p>Two groups of servers have twelve tables. A Spark job writes them, and its tasks look"
        f" all of them up through two routers. Then a client asks about {escape(record.hot)} all"
        " the time, until its group is above its mark, and a plan moves what it has to. Every"
        " answer is compared with a view built anew.</p>"
    )
    yield "<h2>Load by group, and how long look-ups of the hot table took</h2>"
    yield (
        "<p>CPU is in seconds a second, the sum of the tables' peaks of five minutes, as"
        " <code>strandline fleet load</code> has it; there is a gap while a server is away, as its"
        " tables' loads are unknown then. Dashed: the groups' marks, which are the demo's, as it"
        " can't load servers to 60 % of a core. A table's peak counts from its last move on.</p>"
    )
    yield _drawing(record)
    yield "<h2>What was done</h2>"
    yield event_table(record.events)
    yield "<h2>The plan</h2>"
    yield f"<pre>{escape(record.load_before)}</pre>"
    yield f"<p>At the demo's marks:</p><pre>{escape(record.plan)}</pre>"
    yield f"<p>At the usual marks:</p><pre>{escape(record.usual_plan)}</pre>"
    yield "<h2>Moves</h2>"
    yield table(
        ("move", "path", "from", "to", "state", "seconds in each state", "why"),
        (
            (
                str(move["number"]),
                move["path"],
                move["source"],
                move["destination"],
                move["state"],
                ", ".join(f"{state} {took:.2f}" for state, took in durations(move).items()),
                move["why"],
            )
            for move in record.moves
        ),
    )
    yield f"<h2>Mounts before</h2><pre>{escape(record.mounts_before)}</pre>"
    yield f"<h2>Mounts after</h2><pre>{escape(record.mounts_after)}</pre>"
    yield (
        "<h2>Latency</h2><p>Of the client that makes the table hot, through a router. Asked again"
        f" at the other router: {record.retried}; failed then, too: {record.failed}.</p>"
    )
    yield table(
        ("the table", "look-ups", "median", "99 %", "longest"),
        (
            (
                each.phase,
                f"{each.count:,}",
                *map(milliseconds, (each.median_s, each.p99_s, each.longest_s)),
            )
            for each in latencies(record)
        ),
    )
    yield "<h2>Who was asked</h2><p>Questions that each server answered, by round.</p>"
    yield asked_table(record.rounds, record.samples)
    yield "<h2>Rounds</h2>"
    yield round_table(record.rounds)
    yield f"<h2>Load at the end</h2><pre>{escape(record.load_after)}</pre>"
    yield "<h2>The rows of all tables at the end, beside a replay of the feeds</h2>"
    yield proof_table(record.proofs)


def _drawing(record: GroupsRecord) -> str:
    """Return the groups' loads beside their marks, and the look-ups' latency, as SVG."""
    figure, (loads, took) = figure_of(2)
    xs = [sample.at_s for sample in record.loads]
    for group, mark in record.marks.items():
        (line,) = loads.plot(xs, [one.loads.get(group, nan) for one in record.loads], label=group)
        loads.axhline(mark, color=line.get_color(), linestyle="--", linewidth=1)
    loads.set(ylabel="CPU seconds a second")
    loads.legend(loc="upper left")
    took.plot(
        [one.at_s for one in record.lookups],
        [1000 * one.took_s for one in record.lookups],
        ".",
        markersize=1,
        rasterized=True,
    )
    took.set(xlabel="seconds", ylabel="milliseconds", yscale="log")
    for axes in (loads, took):
        mark_events(axes, record.events)
    return svg(figure)
