"""A writer that is killed (-9) when it has sent its completing request, run by a test.

Arguments: base path, options as JSON. It prints the request, which takes no effect: a line with the
path, then the content.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from tests.strandline.write.tables import client, row, table
from timeline.storage.local import LocalStorage


class Sending(LocalStorage):
    """A local table whose process dies when it has sent a completing request."""

    def create(self, path: str, data: bytes = b"") -> None:
        if path.endswith(".commit"):
            sys.stdout.buffer.write(path.encode() + b"\n" + data)
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        super().create(path, data)


def main(base: str, options: str) -> None:
    with client(base, Sending(base), **json.loads(options)) as c:
        c.upsert(table(row("a", ts=5), row("killed")))


if __name__ == "__main__":
    main(*sys.argv[1:])
