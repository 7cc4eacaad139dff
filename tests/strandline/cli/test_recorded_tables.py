"""``strandline clean`` and ``why`` on each table that Hudi wrote: dry, they change no byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from strandline import Table
from strandline.__main__ import main
from strandline.table_services.clean.policy import POLICIES
from tests.kit.tables import golden
from tests.kit.tables.reader import contents


def told(*arguments: object) -> Any:
    """Run a command that succeeds; return its JSON."""
    done = CliRunner().invoke(main, [*map(str, arguments), "--output", "json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_clean_and_why_change_no_byte(scenario, tmp_path):
    base = Path(golden.build(scenario, golden.steps(scenario)[-1], tmp_path))
    before = contents(base)
    for policy in POLICIES:
        retained = ("--policy", policy, "--retain", 1)
        shown = told("clean", base, *retained)
        assert shown["policy"] == policy
        for file in shown["files"][:2]:
            path = f"{file['partition']}/{file['file']}".lstrip("/")
            fate = told("why", base, path, *retained)
            assert (fate["goes"], fate["reason"]) == (True, file["reason"])
    for row in Table(base).files().to_pylist()[:1]:
        file = row["path"] or row["log_paths"][0]
        assert not told("why", base, file)["goes"]
    assert contents(base) == before
