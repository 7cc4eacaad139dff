"""A writer that is killed (-9) when it has sent its completing request, run by a test.

Arguments: base path, options as JSON, a key of ``WRITES``. It prints the request, which takes no
effect: a line with the path, then the content. Right before, a beat takes effect that was sent long
before and got no answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import pyarrow as pa

from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.storage.local import LocalStorage


class Sending(LocalStorage):
    """A local table whose process dies when it has sent a completing request."""

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self._beats: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes = b"") -> None:
        if path.startswith(HEARTBEAT_FOLDER):
            self._beats.append((path, data))
        if path.endswith((".commit", ".replacecommit")):
            self.replace(*self._beats[0])
            sys.stdout.buffer.write(path.encode() + b"\n" + data)
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        super().create(path, data)


WIDER = pa.schema([*SCHEMA, ("extra", pa.string())])

WRITES = {
    "upsert": lambda c: c.upsert(table(row("a", ts=5), row("killed"))),
    "overwrite": lambda c: c.insert_overwrite(table(row("killed"))),
    "add a column": lambda c: c.upsert(
        table({**row("killed", "asia"), "extra": "kept"}, schema=WIDER)
    ),
}


def main(base: str, options: str, write: str) -> None:
    with client(base, Sending(base), **json.loads(options)) as c:
        WRITES[write](c)


if __name__ == "__main__":
    main(*sys.argv[1:])
