"""Run the Spark tests on PySpark 4, or say why there are none to run: what ``tox -e spark4`` calls.

PySpark 4 needs Python 3.11. On 3.10 tox installs none, and an environment that then failed, or that
passed without a word, would tell something untrue.
"""

from __future__ import annotations

import sys

import pytest

OLDEST_PYTHON = (3, 11)


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST_PYTHON:
        needed, here = ".".join(map(str, OLDEST_PYTHON)), sys.version.split()[0]
        print(f"NOT RUN: PySpark 4 needs Python {needed} or later, and this is {here}.")
        print("The Spark tests ran on PySpark 3.5 only: environment spark35.")
        return 0
    return int(pytest.main(["--ignore=tests/fleet", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
