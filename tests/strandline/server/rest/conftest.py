"""Golden tables on disk, served; answers are checked against the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from strandline.server.rest.openapi import document
from tests.kit.servers.live_service import Answered, HttpClient, serving
from tests.kit.tables import golden

DOCUMENT: Final = document()
SCENARIOS: Final = ("replace_cow_v6", "rollback_mor_v9", "special_cow_v9", "walkdev_mor_v6")
ARCHIVED: Final = "archival_cow_v9"


def checked(answered: Answered, path: str) -> Any:
    """Return the value of an answer, which has the schema of its status."""
    response = DOCUMENT["paths"][path]["get"]["responses"][str(answered.status)]
    assert answered.headers["content-type"] == "application/json"
    schema = response["content"]["application/json"]["schema"]
    value = json.loads(answered.body)
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole).validate(value)
    return value


class Asked:
    """Asks a service's ``/v2``."""

    def __init__(self, client: HttpClient, folder: Path) -> None:
        self.client, self.folder = client, folder

    def table(self, scenario: str) -> str:
        """Return the base path of a table as it was after its last step."""
        base = self.folder / scenario
        if not base.exists():
            golden.build(scenario, golden.steps(scenario)[-1], base)
        return str(base)

    def send(
        self, name: str, params: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answered:
        return self.client.request("GET", f"/v2/{name}", params, headers)

    def get(self, name: str, scenario: str | None = None, /, **params: str) -> Any:
        """Return the value of a success."""
        table = {} if scenario is None else {"table": self.table(scenario)}
        answered = self.send(name, {**table, **params})
        assert answered.status == 200, answered.body
        return checked(answered, f"/v2/{name}")

    def rows(self, name: str, scenario: str, /, **params: str) -> list[dict[str, Any]]:
        """Return the rows of all pages."""
        value = self.get(name, scenario, **params)
        rows = value["rows"]
        while value["next"] is not None:
            value = self.get(name, scenario, **params, cursor=value["next"])
            rows += value["rows"]
        return rows

    def refused(self, name: str, params: Mapping[str, str]) -> dict[str, Any]:
        """Return the error that a request is answered with."""
        value: dict[str, Any] = checked(self.send(name, params), f"/v2/{name}")
        return value


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("lake")
    with serving(str(folder)) as server, HttpClient(server.port) as client:
        yield Asked(client, folder)
