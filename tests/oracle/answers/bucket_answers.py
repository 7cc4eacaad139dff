"""Asks real Hudi for the buckets of the keys in ``tests/kit/answers/bucket_cases.py``.

python -m tests.oracle.answers.bucket_answers    write tests/kit/answers/bucket_answers.json
"""

from __future__ import annotations

import json
import tempfile

from tests.kit.answers.bucket_cases import ANSWERS, COUNTS, cases
from tests.oracle.hudi import Hudi, hudi_session


def ask(hudi: Hudi) -> dict[str, list[int]]:
    """Return (key, fields) as JSON → the bucket for each of ``COUNTS``."""
    identifier = hudi.jvm.org.apache.hudi.index.bucket.BucketIdentifier
    return {
        json.dumps([key, fields]): [
            identifier.getBucketId(key, ",".join(fields), count) for count in COUNTS
        ]
        for key, fields in cases()
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, hudi_session(folder) as session:
        lines = [f"{json.dumps(case)}: {found}" for case, found in ask(session).items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
