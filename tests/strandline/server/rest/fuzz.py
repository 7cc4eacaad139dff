"""Has Schemathesis ask ``/v2`` of a service with golden tables what its document allows, and more.

``python -m tests.strandline.server.rest.fuzz [SECONDS]`` fails if it finds an answer that the
document doesn't have, an error without its shape, or an error of the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from strandline.server.rest.openapi import document
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables import golden

SECONDS: Final = 600
TABLES: Final = ("mor_basic_v9", "archival_cow_v9", "nonpart_cow_v6")
CHECKS: Final = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,unsupported_method,ignored_auth,allow_header_conformance,"
    "negative_data_rejection"
)
"""Not those that data which the schema allows is accepted: an instant or a group may not exist."""


def narrowed(folder: Path) -> dict[str, Any]:
    """Return the document, in which tables are those of a folder, and nobody waits for long."""
    found = document()
    tables = [str(folder / name) for name in (*TABLES, "none")]
    for path in found["paths"].values():
        for parameter in path["get"].get("parameters", ()):
            if parameter["name"] == "table" and parameter["required"]:
                parameter["schema"] = {"type": "string", "enum": tables}
            if parameter["name"] == "timeout":
                parameter["schema"] |= {"maximum": 0.05, "default": 0.05}
    return found


def main(seconds: int) -> int:
    """Run Schemathesis; return its exit code."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "lake"
        for name in TABLES:
            golden.build(name, golden.steps(name)[-1], folder / name)
        schema = Path(made) / "openapi.json"
        schema.write_text(json.dumps(narrowed(folder)))
        with serving(str(folder)) as server:
            command = [
                *(sys.executable, "-m", "schemathesis.cli", "run", str(schema)),
                *("--url", server.url, "--checks", CHECKS, "--max-time", str(seconds)),
                *("-H", f"Authorization: Bearer {TOKEN}", "--continue-on-failure"),
                *("--suppress-health-check", "all", "--warnings", "off"),
            ]
            return subprocess.run(command, cwd=made, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
