"""A writer among several, run by a test as a process of its own.

Arguments: base path, name, number of rounds, options as JSON. In each round it inserts a row of its
own and updates a row that all writers update, and repeats the write while its error allows it. It
waits for a line on its standard input before it begins, and prints one line of JSON: its
commits' instants and the codes of its errors.
"""

from __future__ import annotations

import json
import sys

from tests.strandline.write.tables import client, row, table
from timeline.errors import StrandlineError


def main(base: str, name: str, rounds: str, options: str) -> None:
    errors: list[str] = []
    instants: list[str] = []
    with client(base, **json.loads(options)) as c:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(rounds)):
            rows = table(row(f"{name}-{number:03d}"), row("shared", ts=2, name=f"{name}-{number}"))
            while True:
                try:
                    result = c.upsert(rows)
                except StrandlineError as error:
                    if not error.retryable:
                        raise
                    errors.append(error.code)
                else:
                    instants.append(result.instant)
                    break
    print(json.dumps({"instants": instants, "errors": errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
