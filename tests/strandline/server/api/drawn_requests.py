"""Requests as Hypothesis draws them, to a live service."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes, urlencode

from hypothesis import event
from hypothesis import strategies as st

from strandline.server.http.server import ServiceServer
from tests.fsview.subject import BY_PATH
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import TOKEN
from tests.kit.servers.raw_http import Answer, RawConnection, request
from tests.strandline.server.api.fuzzed_service import (
    FILE,
    INSIDE,
    INSTANT,
    OLDER,
    PROPER,
    Faults,
    Place,
)
from tests.strandline.server.touched import Touched


class Live:
    """The service under test, with the right answers to proper requests."""

    def __init__(
        self, server: ServiceServer, place: Place, touched: Touched, known: list[dict[str, str]]
    ) -> None:
        self.server, self.place, self.touched, self.faults = server, place, touched, Faults()
        logging.getLogger().addHandler(self.faults)
        self.known = [urlencode(params) for params in known]
        targets = [f"{path}?{self.known[0]}&partition=2024-01-01" for path in PROPER]
        asked = [request(target, token=TOKEN) for target in targets]
        self.bystander = RawConnection(server.port)
        answers = {one: self.bystander.ask(one) for one in asked}
        assert all(answer.status == 200 and FILE in answer.body for answer in answers.values())
        self.proper = {one: answer.body for one, answer in answers.items()}
        assert any(path.startswith(str(place.table)) for path in touched.paths)
        self.routes = sorted((path, method) for method, path in server.parts.routes)
        self.values = values(place)

    def check(self, answer: Answer) -> None:
        """Check an answer to whatever was asked."""
        event(f"status {answer.status}")
        # 501: a Transfer-Encoding that isn't supported.
        assert answer.status < 500 or answer.status == 501, answer
        assert not INSIDE.search(answer.body), answer

    def check_goes_on(self, connection: RawConnection) -> None:
        """Check that proper requests are answered rightly, by the hot path and the long way."""
        for asked, right in self.proper.items():
            answer = connection.ask(asked)
            assert (answer.status, answer.body) == (200, right), answer

    def check_nothing_else(self) -> None:
        """Check that nothing outside was touched, that the service found no fault in itself, and
        that a client who was there before goes on."""
        # ``/metrics`` reads figures of the process.
        assert self.touched.outside(str(self.place.root), "/proc/self") == []
        assert self.faults.records == []
        self.check_goes_on(self.bystander)


METHODS: Final = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"]
OWN_PARAMS: Final = {
    "/marker/": ("markerdirpath", "markername", "basepath"),
    "/partitioner/": ("numbuckets", "partitionpath", "partitionnum"),
    "/instantstate/": ("instantstatedirpath",),
    "/v2/group": ("table", "partition", "file_id"),
    "/v2/": ("table", "prefix", "filter", "limit", "cursor"),
}
"""Part of the path → parameters, of what isn't a route of the view."""
HEADERS: Final = [
    "Accept: application/json",
    "Accept: \xff",
    "Accept-Encoding: gzip, deflate",
    "Accept-Encoding: gzip;q=0",
    "Accept-Encoding: ,;;q=",
    "Authorization: Basic eDp5",
    "Content-Type: application/x-www-form-urlencoded; charset=\xe9",
    "Content-Type: multipart/form-data",
    "Cookie: a=b; c",
    "Expect: 100-continue",
    "Expect: something",
    "Host: other:99999",
    "If-None-Match: *",
    "Origin: https://example.com",
    "Range: bytes=0-0",
    "Referer: \x80\xff",
    "X-Forwarded-For: 127.0.0.1",
    "X-Http-Method-Override: DELETE",
    "X_Odd: under_score",
    f"X-Long: {'l' * 3000}",
]
PARTITIONS: Final = [
    "2024-01-01",
    "2024-01-01/",
    "/2024-01-01",
    "..",
    "../t6",
    "../../outside/secret",
    "way-out",
    "way-out/2024-01-01",
    "files",
    "column_stats",
    ".hoodie",
    "/etc",
    "a\0b",
    "",
    "n" * 300,
    "m/" * 3000,
]
JSON_LISTS: Final = [
    "[]",
    '["2024-01-01"]',
    '["2024-01-01","..","/etc","way-out"]',
    '["\\ud800"]',
    '["\\u0000"]',
    "[" * 100_000,
    '["' + "n" * 5000 + '"]',
    "[1]",
    "[null]",
    "{}",
    "NaN",
    "1e999",
    "9" * 5000,
]
NUMBERS: Final = [
    "0",
    "1",
    "-1",
    "16",
    "9" * 30,
    "9" * 5000,
    "1e3",
    "\uff10",
    " 4",
    "0x10",
    "1_0",
    "",
]
FILTERS: Final = [
    "partition~2024",
    "bytes>=0",
    "bytes>=",
    "=",
    "," * 20,
    "partition=%2",
    "x" * 3000,
]
anything = st.one_of(
    st.text(max_size=30).map(lambda text: quote(text, errors="surrogatepass")),
    st.binary(max_size=30).map(quote_from_bytes),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30),
)


def chance(share: float) -> st.SearchStrategy[bool]:
    """Return a choice that is true in about this share of the cases, and shrinks to false."""
    return st.integers(1, 100).map(lambda number: number > 100 - round(share * 100))


def mostly(some: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy that usually draws from another, and sometimes anything."""
    return chance(0.2).flatmap(lambda odd: anything if odd else some)


ODD_NAMES = ["../x", "a\nb", "", "n" * 5000, "a.marker.CREATE", f"p/.f_{OLDER}.log.1.marker.CREATE"]


def values(place: Place) -> dict[str, st.SearchStrategy[str]]:
    """Return the values worth trying of each parameter, as they are in a query string."""
    temps = [f"{base}/.hoodie/.temp" for base in place.base_paths]
    instants = [INSTANT, "20261121090000001", "1_2", "..", "", "x", "9" * 300]
    odd = st.tuples(st.sampled_from(temps), st.sampled_from(instants)).map("/".join)
    sound = [f"{base}/.hoodie/.temp/{i}" for base in place.tables for i in (INSTANT, OLDER)]
    directories = st.one_of(st.sampled_from(sound), odd, st.sampled_from(place.base_paths))
    names = st.builds(marker_name, st.sampled_from([INSTANT, OLDER]), st.integers(0, 50))
    said: dict[str, st.SearchStrategy[str]] = {
        "basepath": st.sampled_from(place.base_paths),
        "table": st.sampled_from(place.base_paths),
        "at": st.sampled_from([INSTANT, OLDER, "9" * 400]),
        "file_id": st.sampled_from(PARTITIONS),
        "prefix": st.sampled_from(PARTITIONS),
        "filter": st.sampled_from(FILTERS),
        "limit": st.sampled_from(NUMBERS),
        "cursor": st.sampled_from(["", f"{'a' * 16}.0.0.0", "9" * 300]),
        "partition": st.sampled_from(PARTITIONS),
        "partitionpath": st.sampled_from(PARTITIONS),
        "partitions": st.sampled_from(JSON_LISTS),
        "markerdirpath": directories,
        "instantstatedirpath": directories,
        "markername": st.one_of(names, st.sampled_from(ODD_NAMES)),
        "numbuckets": st.sampled_from(NUMBERS),
        "partitionnum": st.sampled_from(NUMBERS),
        "instants": st.sampled_from([INSTANT, ",", ",".join([INSTANT] * 2000), ""]),
        "refreshoff": st.sampled_from(["true", "TRUE", "false", ""]),
        "lastinstantts": st.sampled_from(["0", "", INSTANT, "9" * 400]),
    }
    escaped = {
        name: some.map(lambda text: quote(text, errors="surrogatepass"))
        for name, some in said.items()
    }
    return {name: mostly(some) for name, some in escaped.items()}


@dataclass(frozen=True)
class Asked:
    """A request that is one by the rules of HTTP.

    Attributes:
        data: Its bytes.
        to_head: Whether its answer has no body.
        last: Whether the server ends the connection after it.
        right: What it is answered, if that is known.
        refused: The status that a rule of heads gives it, whatever it asks for.
    """

    data: bytes
    to_head: bool = False
    last: bool = False
    right: bytes | None = None
    refused: int | None = None


@st.composite
def queries(draw: Any, live: Live, path: str) -> str:
    """Return a query string, mostly with a table's path, without which little code is reached."""
    route = BY_PATH.get(("GET", path)) or BY_PATH.get(("POST", path))
    own = next((params for part, params in OWN_PARAMS.items() if part in path), ())
    wanted = ["basepath", *(param.name for param in route.params)] if route else [*own]
    if draw(chance(0.3)):
        more = st.sampled_from(sorted({*live.values, "pretty", "timelinehash"}))
        wanted = draw(st.lists(st.one_of(more, st.sampled_from(wanted or ["x"])), max_size=5))
    pairs = [f"{name}={draw(live.values.get(name, anything))}" for name in wanted]
    if draw(chance(0.6)):  # the first of a name is taken
        pairs.insert(0, draw(st.sampled_from(live.known)))
    if draw(chance(0.3)):
        pairs += draw(st.lists(anything, max_size=2))
    return "&".join(pairs)


@st.composite
def requests(draw: Any, live: Live) -> Asked:
    """Return a request that keeps the rules of HTTP, whatever it asks for."""
    rule, method = draw(st.sampled_from(live.routes))
    path = rule
    if draw(chance(0.15)):
        odd = st.sampled_from(["/", "//", "%2F", "/..", "x", ";a", "%00"])
        others = [
            odd.map(rule.__add__),
            anything.map("/".__add__),
            st.just("*"),
            st.just(f"/{rule}"),
            st.just(f"http://h{rule}"),
        ]
        path = draw(st.one_of(others))
    if draw(chance(0.15)):
        method = draw(st.sampled_from(METHODS))
    query = draw(queries(live, rule.rstrip("/")))
    target = f"{path}?{query}" if query else path
    lines = draw(st.lists(st.sampled_from(HEADERS), max_size=3, unique=True))
    token = draw(st.sampled_from([None, "wrong"])) if draw(chance(0.05)) else TOKEN
    body = draw(st.binary(max_size=200)) if draw(st.booleans()) else b""
    last = draw(chance(0.1))
    if last:
        lines.append("Connection: close")
    # Who waits to be told to send the body isn't told; whether it comes can't be known.
    last = last or any(line.startswith("Expect") for line in lines)
    if draw(chance(0.8)):
        data = request(target, *lines, method=method, token=token, body=body)
    else:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body), body) for _ in range(2) if body)
        head = request(target, *lines, "Transfer-Encoding: chunked", method=method, token=token)
        data = head + chunks + b"0\r\n\r\n"
    if draw(chance(0.05)):
        data, last = data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1), True
    return Asked(data, method == "HEAD", last, refused=refusal(method, lines, token))


def refusal(method: str, lines: list[str], token: str | None) -> int | None:
    """Return the status of a request with these header lines, with which ``request`` sends Host."""
    names = [line.partition(":")[0] for line in lines]
    if "Host" in names or ("Authorization" in names and token is not None):
        return 400
    return 403 if method == "POST" and "Origin" in names else None


@st.composite
def conversations(draw: Any, live: Live) -> list[Asked]:
    """Return requests that are sent at once, proper ones among them."""
    proper = [Asked(data, right=right) for data, right in live.proper.items()]
    asked = st.one_of(requests(live), requests(live), st.sampled_from(proper))
    return draw(st.lists(asked, min_size=1, max_size=6))
