"""A writer that stops itself (SIGSTOP) before one of its storage calls, run by a test.

Arguments: base path, operation, kind and ending of the path of the call, options as JSON. It prints
one line of JSON: the code and ``retryable`` of its error, or its instant.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from tests.kit.storage.hooked_storage import HookedStorage
from tests.strandline.write.tables import client, row, table
from timeline.errors import StrandlineError

ROWS = table(row("a", ts=5), row("stopped"))


class Stop:
    """Stops the process before the first call of a kind on a path that ends so."""

    def __init__(self, kind: str, ending: str) -> None:
        self.at = (kind, ending)

    def __call__(self, kind: str, path: str) -> None:
        if self.at[0] == kind and path.endswith(self.at[1]):
            self.at = ("", "")
            os.kill(os.getpid(), signal.SIGSTOP)


def main(base: str, operation: str, kind: str, ending: str, options: str) -> None:
    with client(base, HookedStorage(base, Stop(kind, ending)), **json.loads(options)) as c:
        try:
            result = getattr(c, operation)(ROWS)
        except StrandlineError as error:
            print(
                json.dumps({"code": error.code, "retryable": error.retryable, "text": str(error)})
            )
        else:
            print(json.dumps({"instant": result.instant}))


if __name__ == "__main__":
    main(*sys.argv[1:])
