"""The examples of units and manifests: they parse, name only things that exist, and start."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from strandline.__main__ import main
from strandline.cli.serve import SettingOption, serve
from strandline.server.http.authorization import GREETING, HEALTH
from strandline.settings.command_line import FLAGS
from strandline.settings.sources import ServeSettings, variable
from tests.release.image import CONTAINERFILE, stages_of
from tests.strandline.server.process.test_command import Serving

EXAMPLES = Path(__file__).parents[4] / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
UNIT = EXAMPLES / "systemd" / "strandline.service"
PROPERTIES = EXAMPLES / "systemd" / "strandline.properties"

Manifest = dict[str, Any]
WORKLOADS = ("deployment.yaml", "statefulset.yaml")


def manifests(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text("utf-8")))


def manifest(name: str) -> Manifest:
    (only,) = manifests(name)
    return only


def pod(name: str) -> Manifest:
    spec: Manifest = manifest(name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> Manifest:
    (only,) = pod(name)["containers"]
    return only


def unit() -> configparser.ConfigParser:
    """Return the unit; of several lines of one key only the last."""
    parser = configparser.ConfigParser(
        strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",)
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's documentation has it
    parser.read_string(UNIT.read_text("utf-8").replace("\\\n", " "))
    return parser


def unit_arguments() -> list[str]:
    command, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert command.endswith("/bin/strandline")
    return arguments


def flags_of(arguments: list[str]) -> dict[str, str | tuple[str, ...]]:
    """Return the flags that click parses from a command line."""
    verb, *rest = arguments
    assert main.get_command(click.Context(main), verb) is serve
    context = serve.make_context("serve", list(rest))
    known = {flag.key for flag in FLAGS}
    return {
        key: "true" if value is True else value
        for key, value in context.params.items()
        if key in known and value not in (None, False, ())
    }


COMMANDS = {UNIT.name: unit_arguments(), **{name: container(name)["args"] for name in WORKLOADS}}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_one_of_serves(name: str) -> None:
    options = {
        spelling
        for option in serve.params
        if isinstance(option, SettingOption)
        for spelling in option.opts
    }
    used = {word.partition("=")[0] for word in COMMANDS[name] if word.startswith("--")}
    assert used
    assert used <= options
    assert set(flags_of(COMMANDS[name])) == {word[2:].replace("-", "_") for word in used}


class Place:
    """A machine for a command line: what its paths stand for, below a directory."""

    def __init__(self, top: Path, config: str) -> None:
        self.top = top
        self.config = config
        (top / "lake").mkdir()
        (top / "token").write_text("s3cret\n")
        (top / "config").write_text(config, "utf-8")

    def arguments(self, arguments: list[str]) -> list[str]:
        """The same flags with this machine's paths, and a port that is free."""
        instead = {
            "--config": str(self.top / "config"),
            "--root": str(self.top / "lake"),
            "--host": "127.0.0.1",
            "--port": "0",
            "--store-dir": str(self.top / "store"),
            "--token-file": str(self.top / "token"),
        }
        words = [part for word in arguments[1:] for part in word.split("=", 1)]
        return [
            instead.get(before, word) for before, word in zip(["", *words], words, strict=False)
        ]


def config_of(name: str) -> str:
    """The file of settings that a command line reads."""
    if name == UNIT.name:
        return PROPERTIES.read_text("utf-8")
    text: str = manifest("secret.yaml")["stringData"]["strandline.properties"]
    return text


@pytest.mark.property
@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_starts_and_is_ready(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path, config_of(name))
    with Serving(*place.arguments(COMMANDS[name])) as serving:
        assert json.loads(serving.get(HEALTH)) == {"ok": True}
        assert serving.get(GREETING) == b"Hello Hudi"
        status = json.loads(serving.get("/v1/strandline/status", "s3cret"))
        sources = {row["from"] for row in status["settings"].values()}
        assert sources == {"flag", "file", "default"}
        said = serving.first + serving.end()
    assert "Traceback" not in said
    assert "replace-me" not in said + json.dumps(status)


@pytest.mark.property
@pytest.mark.parametrize(
    "name", [WORKLOADS[0], *(pytest.param(one, marks=pytest.mark.product) for one in WORKLOADS[1:])]
)
def test_a_pod_whose_root_comes_late_gets_ready_without_a_restart(
    tmp_path: Path, name: str
) -> None:
    place = Place(tmp_path, config_of(name))
    lake = tmp_path / "lake"
    lake.rmdir()
    with Serving(*place.arguments(COMMANDS[name])) as serving:
        assert serving.get(GREETING) == b"Hello Hudi"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            serving.get(HEALTH)
        lake.mkdir()
        line = next(line for line in serving.stderr if "ready" in line)
        assert json.loads(line)["message"] == "ready again"
        assert json.loads(serving.get(HEALTH)) == {"ok": True}


def test_the_settings_of_the_examples_are_known(tmp_path: Path) -> None:
    for name in COMMANDS:
        config = tmp_path / name
        # Those in comments, too.
        config.write_text(re.sub("(?m)^#(?=strandline)", "", config_of(name)), "utf-8")
        told = ServeSettings.read({"config": str(config)}, {})
        assert any(row["from"] == "file" for row in told.redacted().values())


def test_variables_are_settings() -> None:
    known = {variable(setting) for flag in FLAGS for setting in flag.settings}
    used = {entry["name"] for name in WORKLOADS for entry in container(name)["env"]}
    used |= set(re.findall(r"STRANDLINE_[A-Z_]+(?==)", UNIT.read_text("utf-8")))
    assert used
    assert used <= known


@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_manifest_has_its_parts(path: Path) -> None:
    for found in manifests(path.name):
        assert set(found) <= {"apiVersion", "kind", "metadata", "spec", "type", "stringData"}
        assert re.fullmatch(r"[a-z0-9-]+", found["metadata"]["name"])
        assert found["metadata"]["labels"] == {"app.kubernetes.io/name": "strandline"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_service_and_policy_find_the_pod_and_its_port(name: str) -> None:
    spec = manifest(name)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    service, policy = manifest("service.yaml")["spec"], manifest("network-policy.yaml")["spec"]
    assert spec["selector"]["matchLabels"] == labels
    assert service["selector"] == labels
    assert policy["podSelector"]["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    assert ports == {"http": int(str(flags_of(container(name)["args"])["port"]))}
    assert [port["targetPort"] for port in service["ports"]] == list(ports)
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == list(ports)
    assert service["ports"][0]["port"] == ports["http"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_process_keeps_the_markers(name: str) -> None:
    spec = manifest(name)["spec"]
    assert spec["replicas"] == 1
    assert spec.get("strategy", {"type": "Recreate"}) == {"type": "Recreate"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_probes_ask_what_is_there_and_wait_longer_than_an_answer_takes(name: str) -> None:
    probes = {
        kind: container(name)[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    assert paths == {
        "startupProbe": GREETING,
        "livenessProbe": GREETING,
        "readinessProbe": HEALTH,
    }
    for probe in probes.values():
        assert probe["httpGet"]["port"] == "http"
        assert probe["timeoutSeconds"] > 2
    waits = int(container(name)["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod(name)["terminationGracePeriodSeconds"] > waits + 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pod_may_do_little(name: str) -> None:
    assert pod(name)["automountServiceAccountToken"] is False
    assert pod(name)["enableServiceLinks"] is False
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_path_of_the_command_is_on_a_volume_that_is_there(name: str) -> None:
    claims = manifest(name)["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
    volumes |= {claim["metadata"]["name"]: claim for claim in claims}
    mounts = {mount["mountPath"]: mount for mount in container(name)["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    flags = flags_of(container(name)["args"])
    secret = manifest("secret.yaml")
    assert volumes["secret"]["secret"]["secretName"] == secret["metadata"]["name"]
    for key in ("config", "token_file"):
        folder, _, file = str(flags[key]).rpartition("/")
        assert mounts[folder]["name"] == "secret"
        assert file in secret["stringData"]
    assert mounts[str(flags["store_dir"])].get("readOnly", False) is False
    # The checks of the store, and spilling by default, make files there.
    assert "/tmp" in mounts


@pytest.mark.parametrize("name", WORKLOADS)
def test_memory_is_enough_for_the_budget(name: str) -> None:
    units = {"Mi": 1, "Gi": 1024}
    resources = container(name)["resources"]
    requested, limit = (
        int(resources[kind]["memory"][:-2]) * units[resources[kind]["memory"][-2:]]
        for kind in ("requests", "limits")
    )
    budget = int(str(flags_of(container(name)["args"])["memory"]))
    assert budget + 512 <= requested <= limit


def test_the_image_runs_the_command() -> None:
    """tests/release runs it; here it is what the manifests say."""
    stage = stages_of(CONTAINERFILE.read_text("utf-8"))[-1]
    assert stage.only("ENTRYPOINT").words() == ["strandline"]
    serve, *_ = stage.only("CMD").words()
    for name in WORKLOADS:
        context = pod(name)["securityContext"]
        assert stage.only("USER").text == f"{context['runAsUser']}:{context['runAsGroup']}"
        assert container(name)["args"][0] == serve
        assert f"build -t {container(name)['image']} ." in CONTAINERFILE.read_text("utf-8")


def test_a_bad_setting_is_not_tried_again() -> None:
    service = unit()["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert int(service["TimeoutStopSec"]) > 2
    assert (
        service["StateDirectory"] == str(flags_of(unit_arguments())["store_dir"]).rpartition("/")[2]
    )
    (root,) = flags_of(unit_arguments())["root"]
    assert service["ReadWritePaths"] == root


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze isn't installed")
    return found


def test_systemd_takes_the_unit(tmp_path: Path, analyze: str) -> None:
    command = tmp_path / "strandline"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    text = re.sub("(?m)^ExecStart=[^ ]+", f"ExecStart={command}", UNIT.read_text("utf-8"))
    (tmp_path / UNIT.name).write_text(text)
    told = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
