"""What Hudi's server answered apart from the tables' steps, and how ours may differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from tests.conformance.view_suite import canonical
from tests.kit.servers.live_service import HttpClient
from tests.kit.tables import golden

# Odd requests.

BETTER: Mapping[int, tuple[int, str]] = {
    **dict.fromkeys((13, 14, 15, 16, 17, 18, 19, 62), (400, "'basepath'")),
    22: (400, "'fileid'"),
    27: (400, "'maxinstant'"),
    28: (400, "'includependingcompaction'"),
    31: (400, "'maxinstant'"),
    32: (400, "'currentinstant'"),
    33: (400, "'instants'"),
    34: (200, "[]"),
    **dict.fromkeys((44, 45, 46, 47), (404, "no table at")),
    51: (400, "is relative"),
    52: (403, "outside the roots"),
    **dict.fromkeys((54, 57), (200, '"partition":"2024-01-01"')),
    58: (400, "'partitions'"),
    59: (400, "partitions="),
    68: (400, "'fileid'"),
    **dict.fromkeys((71, 72), (200, "[]")),
    73: (200, "0"),
}
"""Number of the request → status and a part of the answer, where Java's is a fault of its own.

It answers 500 to what the caller did wrong; it says that it refreshed a table that isn't there
(46); it refuses who says no timeline hash, where ours tells the newest state (54, 57); it has no
markers, instant states and partitioner unless told to (71, 72, 73).
"""


def check_answer(
    exchange: golden.Exchange, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Compare an answer with the recorded one, or with what is better."""
    if exchange.n in BETTER:
        better, part = BETTER[exchange.n]
        assert (status, part in body.decode()) == (better, True), body
        return
    assert status == exchange.status
    assert headers["content-type"] == exchange.content_type
    encoding = exchange.raw["headers"].get("content-encoding")
    assert headers.get("content-encoding") == encoding
    if exchange.body is None:
        assert body.decode() == exchange.body_text
        return
    said = orjson.loads(body)
    if exchange.status >= 400 and "title" in said:
        assert said.pop("code", "view_behind") == "view_behind"
        said.pop("hint", None)
    assert canonical(said) == canonical(exchange.body)
    if "pretty" in exchange.params:
        assert len(body) == int(exchange.raw["headers"]["content-length"])


# Markers.

FOREIGN = b"allowed under instant 20261121091111111: CREATE and MERGE of files that end with"
REFUSED: Mapping[str, bytes] = {
    "create without name": b"the parameter 'markername' is missing",
    "create in it": FOREIGN,
    "duplicate of one on disk": FOREIGN,
}
"""Phase of a recorded creation that Hudi's server takes → a part of our refusal.

The last two announce files of 20261121090000000 under another instant, which no writer does; who
had that rolled back would have them deleted.
"""


def answer(recorded: tuple[golden.Exchange, ...], phase: str, path: str) -> list[str]:
    return next(e.body for e in recorded if e.phase == phase and e.path.endswith(f"/{path}"))


def meant(body: object) -> object:
    return sorted(filter(None, body)) if isinstance(body, list) else body


def check_tree(temp: Path, exchange: golden.Exchange) -> None:
    """Compare the markers on disk, in whatever files, with those that Java left."""
    recorded = exchange.raw.get("tree_after")
    if recorded is None:
        return
    folder = temp / exchange.params["markerdirpath"].rpartition("/")[2]
    here = {p.name: p.read_text() for p in folder.iterdir()} if folder.exists() else {}
    if any(line.count(".marker.") > 1 for line in lines(recorded)):
        return  # Java has joined what it found on disk without newlines
    assert lines(here) == lines(recorded), exchange


def lines(tree: dict[str, str]) -> list[str]:
    return sorted(line for text in tree.values() for line in text.split("\n") if line)


# Instant states.

MESSAGES = ".hoodie/.aux/ckp_meta"


def check_conversation(client: HttpClient, base: Path) -> None:
    """Ask what was asked of Java of the messages below a base path, which has none yet."""
    (base / ".hoodie").mkdir(parents=True)
    recording = golden.server_recording("instantstate_1.0.2", base=str(base))
    *early, late = recording.client["files"]
    for exchange in recording.exchanges:
        if exchange.phase.startswith("dir made meanwhile"):
            put(base, *early)
        elif exchange.phase.startswith("one more file"):
            put(base, late)
        status, body = client.ask(exchange.method, exchange.path, exchange.params)
        if exchange.phase in {"no param", "odd file name"}:
            assert status == 400, exchange  # the base path itself is none of ours to list
        elif status == exchange.status == 200 and isinstance(exchange.body, list):
            assert states_in(body) == states_in(orjson.dumps(exchange.body)), exchange
        elif status == 200:
            assert (status, orjson.loads(body)) == (exchange.status, exchange.body), exchange
        else:
            assert (status, body.decode()) == (exchange.status, exchange.body_text), exchange


def put(base: Path, *names: str) -> None:
    folder = base / MESSAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def states_in(body: bytes) -> list[tuple[str, str]]:
    return sorted((dto["instant"], dto["state"]) for dto in orjson.loads(body))
