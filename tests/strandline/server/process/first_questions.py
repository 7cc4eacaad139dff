"""A service of its own process, that is asked what it has never been asked before.

``python -m tests.strandline.server.process.first_questions BASE AFTER`` serves the table at
``BASE``, has what is at ``AFTER`` take its place, and prints as JSON which modules its questions
made it import.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from strandline.cli.serve import load_ahead
from tests.kit.servers.live_service import HttpClient, serving

VIEW = "/v1/hoodie/view"


def main(base: Path, after: Path) -> None:
    load_ahead()  # as the command does before it serves
    asked = {"basepath": str(base), "refreshoff": "true"}
    partition = {"partition": "2024-01-01"}
    with serving(str(base), token=None) as server, HttpClient(server.port, None) as client:
        assert client.request("GET", "/healthz").status == 200
        ready = set(sys.modules)
        for path, more in (
            ("slices/partition/latest/", partition),
            ("loadallpartitions/", {}),
            ("refresh/", {}),
            ("slices/partition/latest/", partition),
            ("datafiles/latest/partition", partition),
        ):
            method = "POST" if path in ("loadallpartitions/", "refresh/") else "GET"
            if path == "refresh/":
                base.rename(base.with_name("before"))
                after.rename(base)
            answered = client.request(method, f"{VIEW}/{path}", asked | more)
            assert answered.status == 200, answered.body
        imported = sorted(set(sys.modules) - ready)
    print(json.dumps(imported))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
