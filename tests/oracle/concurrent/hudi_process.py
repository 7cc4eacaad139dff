"""Real Hudi in a process of its own, which can be killed; it writes what a test tells it.

Arguments of the process: base path of the table, and options as JSON. It prints a line when it is
ready. Each line that it reads is an ``Order`` as JSON; it answers with the commit's instant, or
null, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.concurrent.hudi_writer import HudiWriter
from tests.oracle.hudi import HUDI, hudi_session
from tests.strandline.write.concurrent.round_writer import Order

ROOT = Path(__file__).parents[3]


@dataclass
class HudiProcess:
    """The test's end of the process."""

    child: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def started(
        cls, base: str, options: Mapping[str, str], release: str = HUDI
    ) -> Iterator[HudiProcess]:
        """Run the process within the block, after which it is killed."""
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.oracle.concurrent.hudi_process",
                base,
                json.dumps(options),
                release,
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # The JVM is a process of its own, which is killed with the group.
            start_new_session=True,
        )
        with child:
            process = cls(child)
            try:
                while process.answer() != {"at": "start"}:
                    assert child.poll() is None
                yield process
            finally:
                process.kill()

    def send(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line)
        self.child.stdin.flush()

    def answer(self) -> object:
        """Return the next answer; ``None`` for a line of Spark's, and at the end."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        return json.loads(line) if line.startswith("{") else None

    def kill(self) -> None:
        """Kill Python and the JVM (-9), unless they have been killed."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()


def main(base: str, options: str, release: str) -> None:
    with (
        hudi_session(Path(base).parent / "warehouse", release) as hudi,
        HudiWriter.started(hudi, base, json.loads(options)) as writer,
    ):
        print(json.dumps({"at": "start"}), flush=True)
        for line in iter(sys.stdin.readline, ""):
            order = Order(**json.loads(line))
            print(json.dumps({"instant": writer.write(order)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
