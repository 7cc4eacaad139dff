"""`strandline top`: rates between two readings, whatever the server answers; frames for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from strandline.__main__ import main
from strandline.cli.output import as_json
from strandline.cli.top import STATUS, TABLES, as_lines, quantile, watched
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.live_service import TOKEN, serving
from timeline.errors import BadAnswerError, ServiceUnreachableError

URL = "http://127.0.0.1:26754"
BOUNDS = ("0.001", "0.01", "+Inf")


def server(
    scale: int, url: str | None = None, error: str | None = None, up: float = 100
) -> dict[str, Any]:
    """Return a server's figures: 10 requests and a refusal for each of `scale`."""

    def samples(*values: tuple[dict[str, str], float]) -> dict[str, Any]:
        return {"type": "counter", "samples": [{"labels": k, "value": v} for k, v in values]}

    buckets = [
        ({"route": "latest_base_files", "way": "ready", "le": bound}, share * scale)
        for bound, share in zip(BOUNDS, (5, 10, 10), strict=True)
    ]
    metrics = {
        "strandline_requests_total": samples(
            ({"table": "/t", "way": "ready"}, 8 * scale),
            ({"table": "/t", "way": "built"}, 2 * scale),
        ),
        "strandline_request_duration_seconds": samples(*buckets),
        "strandline_refusals_total": samples(
            ({"route": "other", "status": "404", "code": "<b>"}, scale)
        ),
        "strandline_syncs_total": samples(({"table": "/t", "cause": "refresh"}, scale)),
        "strandline_memory_bytes": samples(({"account": "answers"}, 3_000_000)),
        "strandline_memory_limit_bytes": samples(({}, 12_000_000)),
    }
    return {
        "server": url,
        "error": error,
        "ready": error is None,
        "reasons": [],
        "hanging": None if error else [],
        "uptime_s": None if error else up,
        "metrics": None if error else metrics,
    }


def tables(requests: int, name: str = "/t") -> dict[str, Any]:
    row: dict[str, Any] = {
        "table": name,
        "server": None,
        "instant": None,
        "requests": requests,
        "requests_ready": 0,
        "syncs": 1,
        "partitions_loaded": 2,
        "packed_bytes": 4096,
        "storage_calls": 3,
        "storage_calls_saved": 9,
    }
    return {"tables_open": 1, "rows": [row], "next": None}


def seen(*answers: Any) -> list[tuple[dict[str, Any], str]]:
    """Return the frames of a service that answers so, a reading each 2 s."""
    clock, left = ManualClock(0), iter(answers)

    def read(name: str, **parameters: Any) -> Mapping[str, Any]:
        if name == STATUS:
            assert "strandline_requests" in parameters["names"]
        else:
            assert (name, parameters["order"]) == (TABLES, "requests")
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    frames = watched(read, clock, lambda seconds: clock.advance(int(1000 * seconds)), 2.0)
    # A frame for each reading but the first; of one that fails there are no tables.
    readings = sum(
        each.get("tables_open") is None if isinstance(each, dict) else 1 for each in answers
    )
    return list(islice(frames, readings - 1))


def status(*servers: dict[str, Any]) -> dict[str, Any]:
    return {"servers": list(servers), "fleet": None}


def test_rates_are_of_the_time_between_two_readings() -> None:
    ((shown, trouble),) = seen(status(server(1)), tables(10), status(server(5)), tables(50))
    assert trouble == ""
    assert shown["seconds"] == 2
    assert shown["lookups_per_s"] == 20
    assert shown["ready_share"] == 0.8
    (route,) = shown["routes"]
    assert (route["per_s"], route["total"]) == (20, 50)
    assert (route["p50_s"], route["p99_s"]) == (0.001, pytest.approx(0.00982))
    assert shown["refusals"] == [
        {"route": "other", "status": "404", "code": "<b>", "total": 5, "per_s": 2}
    ]
    assert shown["syncs"] == [{"cause": "refresh", "total": 5, "per_s": 2}]
    assert shown["memory"] == {
        "bytes": 3_000_000,
        "limit_bytes": 12_000_000,
        "accounts": {"answers": 3_000_000},
    }
    (table,) = shown["tables"]
    assert (table["per_s"], table["requests"]) == (20, 50)
    json.dumps(shown, allow_nan=False)


def test_servers_of_a_fleet_are_added_up_and_one_that_is_away_is_named() -> None:
    fleet = status(
        server(3, "http://a:1"), server(1, "http://b:1"), server(0, "http://c:1", "gone")
    )
    ((shown, _),) = seen(
        status(server(1, "http://a:1"), server(1, "http://b:1")), tables(0), fleet, tables(0)
    )
    assert shown["lookups_per_s"] == 10
    lines = list(as_lines(URL, shown))
    assert lines[0].startswith(f"{URL}  2 of 3 servers ready, 3 servers, up ")
    assert "http://c:1: gone" in lines


def test_a_table_has_a_line_for_each_server_of_a_fleet() -> None:
    long = "https://strandline-0.strandline.lake.svc.cluster.local:26754"
    urls = ("http://10.0.0.5:26754", long)
    rows = [{**tables(n)["rows"][0], "server": url} for n, url in zip((9, 5), urls, strict=True)]
    answer = {**tables(0), "rows": rows}
    ((shown, _),) = seen(*(status(*(server(1, url) for url in urls)), answer) * 2)
    head, one, other = list(as_lines(URL, shown))[-3:]
    assert head.split()[:4] == ["TABLE", "SERVER", "/S", "LOOK-UPS"]
    assert one.split()[:4] == ["/t", "10.0.0.5:26754", "0.0", "9"]
    place = other[head.index("SERVER") :].split("  ")[0]
    assert (place[:12], place[-6:], len(place)) == ("strandline-0", ":26754", 32)
    ((shown, _),) = seen(*(status(server(1)), tables(9)) * 2)
    assert "SERVER" not in "".join(as_lines(URL, shown))


def test_tables_that_hang_are_named_with_calls_and_clients() -> None:
    stuck = {
        "table": "/lake/t",
        "seconds": 12.3,
        "calls": [{"kind": "list", "cause": "sync", "seconds": 11.9}],
        "clients": ["10.0.0.7", "10.0.0.8"],
    }
    unexplained = {**stuck, "table": "/lake/u", "calls": [], "clients": []}
    a, b = server(1, "http://a:1"), {**server(1, "http://b:1"), "hanging": [stuck, unexplained]}
    ((shown, _),) = seen(*(status(a, b), tables(0)) * 2)
    assert [each["hanging"] for each in shown["servers"]] == [[], [stuck, unexplained]]
    held = "a request has held a thread for 12 s; calls to its storage:"
    assert list(as_lines(URL, shown))[1:3] == [
        f"http://b:1: /lake/t: {held} list for sync, 12 s; waited for by 10.0.0.7, 10.0.0.8",
        f"http://b:1: /lake/u: {held} none that takes long; waited for by nobody",
    ]


def test_of_many_tables_that_hang_each_server_has_the_longest() -> None:
    stuck = [
        {"table": f"/lake/{n}", "seconds": 400.0 - n, "calls": [], "clients": []}
        for n in range(300)
    ]
    a = {**server(1, "http://a:1"), "hanging": stuck}
    b = {**server(1, "http://b:1"), "hanging": stuck[:6]}
    ((shown, _),) = seen(*(status(a, b), tables(0)) * 2)
    assert [each["hanging"] for each in shown["servers"]] == [stuck, stuck[:6]]
    lines = list(as_lines(URL, shown))
    longest = [f"/lake/{n}: a request has held" for n in range(5)]
    for at, url, more in (
        (1, "http://a:1", "295 more tables hang"),
        (7, "http://b:1", "1 more table hangs"),
    ):
        for line, told in zip(lines[at : at + 5], longest, strict=True):
            assert line.startswith(f"{url}: {told}")
        assert lines[at + 5] == f"{url}: {more}"
    assert lines[13].startswith("look-ups ")


def test_counters_of_a_server_that_began_anew_count_from_nothing() -> None:
    ((shown, _),) = seen(status(server(9)), tables(90), status(server(1)), tables(10))
    assert shown["lookups_per_s"] == 5
    assert shown["tables"][0]["per_s"] == 0


def test_totals_of_a_server_that_goes_comes_back_or_begins_anew_are_no_rates() -> None:
    """Another one goes on with one look-up a second throughout."""

    def of_a(number: int) -> dict[str, Any]:
        found = server(1, "http://a:1")
        for sample in found["metrics"]["strandline_requests_total"]["samples"]:
            sample["value"] = 500_000 + number
        return found

    b, new = server(100_000, "http://b:1"), server(1, "http://b:1", up=1)
    away = {**server(0, "http://b:1", "gone"), "metrics": {}}
    found = seen(
        *(status(of_a(0), b), tables(10), status(of_a(1), away), {**tables(0), "rows": []}),
        *(status(of_a(2), b), tables(1_000_000), status(of_a(3), new), tables(10)),
    )
    # Of the one that began anew, its 10 since then.
    assert [shown["lookups_per_s"] for shown, _ in found] == [1, 1, 1 + 5]
    assert [each["per_s"] for shown, _ in found for each in shown["tables"]] == [0, 0]
    assert [shown["routes"][0]["per_s"] for shown, _ in found] == [0, 0, 5]
    assert [shown["refusals"][0]["per_s"] for shown, _ in found] == [0, 0, 0.5]


def test_an_idle_service_has_no_share_and_no_latency() -> None:
    ((shown, _),) = seen(status(server(1)), tables(0), status(server(1)), tables(0))
    assert shown["ready_share"] is None
    assert shown["routes"][0]["p50_s"] is None
    text = "\n".join(as_lines(URL, shown))
    assert "ready   refusals" not in text
    assert "latest_base_files  ready  0.0        10     -     -" in text
    assert "most asked" not in text
    cut = "\n".join(as_lines(URL, {**shown, "tables_open": 3000}))
    assert "tables 3000, the 1 most asked" in cut


def test_frames_go_on_while_the_server_is_away() -> None:
    away = ServiceUnreachableError("nothing listens there")
    found = seen(
        *(status(server(1)), tables(0), status(server(2)), tables(0)),
        *(away, status(server(4)), tables(0)),
    )
    assert [trouble for _, trouble in found] == ["", "nothing listens there", ""]
    assert found[1][0] == found[0][0]
    # Since the last reading, 4 s before.
    assert (found[2][0]["seconds"], found[2][0]["lookups_per_s"]) == (4, 5)
    assert "no answer: nothing listens there" in list(as_lines(URL, *found[1]))


def test_what_isnt_a_status_is_named() -> None:
    for answer in ({"servers": 3}, {"servers": [{"metrics": {}}]}, {"servers": [7]}):
        with pytest.raises(BadAnswerError, match="another form"):
            seen(answer, tables(0), answer, tables(0))
    right = {"table": "/t", "seconds": 9.0, "calls": [], "clients": []}
    for wrong in (
        {},
        {**right, "seconds": "long"},
        {**right, "calls": [{"kind": "list"}]},
        {**right, "clients": None},
    ):
        answer = status({**server(1), "hanging": [wrong]})
        with pytest.raises(BadAnswerError, match="another form"):
            seen(answer, tables(0), answer, tables(0))


def test_names_are_printed_without_control_characters() -> None:
    ((shown, _),) = seen(status(server(1)), tables(0), status(server(1)), tables(9, "/a\x1b[2J\n"))
    text = "\n".join(as_lines(URL, shown))
    assert "\x1b" not in text
    assert "/a" in text
    name = "/größe\x9b2J\x7f\n"
    line = as_json({"table": name})
    assert (line.isprintable(), "größe" in line, json.loads(line)) == (True, True, {"table": name})


def test_quantiles_lie_within_their_bucket() -> None:
    counts = {0.1: 10.0, 1.0: 20.0, math.inf: 20.0}
    assert quantile(counts, 0.25) == pytest.approx(0.05)
    assert quantile(counts, 0.75) == pytest.approx(0.55)
    assert quantile({0.1: 0.0, math.inf: 4.0}, 0.5) == 0.1
    assert quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["top", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_errors_are_one_line(tmp_path: Path) -> None:
    code, out, err = run("ftp://x", "--once")
    assert (code, out) == (2, "")
    assert "allowed: http://HOST:PORT" in err
    code, _, err = run("http://127.0.0.1:1", "--once")
    assert (code, len(err.splitlines())) == (1, 1)
    token = tmp_path / "token"
    token.write_text("two words")
    assert run("http://127.0.0.1:1", "--token-file", str(token))[0] == 2
    assert run("http://127.0.0.1:1", "--interval", "0")[0] == 2


def test_a_refused_token_is_named(tmp_path: Path) -> None:
    with serving(str(tmp_path)) as live:
        code, _, err = run(live.url, "--once")
        assert (code, "401" in err) == (1, True)
        token = tmp_path / "token"
        token.write_text(f"not-{TOKEN}")
        code, _, err = run(live.url, "--once", "--token-file", str(token))
        assert (code, "401" in err) == (1, True)
