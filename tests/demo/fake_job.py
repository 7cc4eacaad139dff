"""Stands in for ``demo.job``: tells of its batches, dies where it should, and leaves a child."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict

from demo.record import BatchRecord, ReaderRecord, line


def main() -> None:
    said = sys.argv[1:]
    days = int(said[said.index("--days") + 1])
    die_on = int(said[said.index("--die-on") + 1]) if "--die-on" in said else None
    table = said[said.index("--table") + 1]
    with open(f"{table}.pids", "a") as pids:
        pids.write(f"{os.getpid()}\n")
    # Like Spark's JVM: of the group, and not ended by its parent's end.
    subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
    first = 1 if die_on else days // 2 + 1
    print("not for the parent", flush=True)
    print(line("started", {"platform": "a test"}), flush=True)
    print(f"a word on stderr of {table}", file=sys.stderr, flush=True)
    if "bad" in table:
        sys.exit(3)
    for number in range(first, days + 1):
        if number == die_on:
            print('{"event":"bat', end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print(line("batch", BatchRecord(number, "2013-01-01").as_json()), flush=True)
    readers = ReaderRecord(days, (0.5, 0.25), 7)
    print(line("readers", asdict(readers)), flush=True)


main()
