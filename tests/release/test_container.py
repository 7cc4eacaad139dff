"""The container file: its commands run as another user, in a folder in place of an image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor_proxy import connect
from tests.kit.concurrency.patience import PROCESS_S, pause
from tests.kit.servers.free_port import free_port
from tests.kit.tables import golden
from tests.release.image import CONTAINERFILE, Image, Stage, stages_of

pytestmark = [pytest.mark.dist, pytest.mark.product]

PORT = "26754"
TOKEN = "a-token-for-the-container"
SCENARIO = "multi_mor_v6"


def last_stage(port: str = PORT) -> Stage:
    return stages_of(CONTAINERFILE.read_text("utf-8").replace(PORT, port))[-1]


@pytest.fixture(scope="module")
def image(source: Path) -> Iterator[Image]:
    """The last stage, in a folder that every user can read, without what only the first has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        first = Image(folder, source)
        first.make_base()
        stages = stages_of(CONTAINERFILE.read_text("utf-8"))
        for stage in stages[:-1]:
            first.build(stage)
        shutil.rmtree(folder / "src")
        image = Image(folder, source)
        image.build(stages[-1])
        golden.build_final(SCENARIO, folder / "lake" / "t")
        (folder / "run/secrets").mkdir(parents=True)
        (folder / "run/secrets/strandline").write_text(f"{TOKEN}\n")
        yield image


def test_every_base_has_a_version_and_the_last_stage_another_user() -> None:
    stages = stages_of(CONTAINERFILE.read_text("utf-8"))
    assert len(stages) == 2
    for stage in stages:
        image, _, tag = stage.base.partition(":")
        assert image == "python"
        assert len(tag.partition("-")[0].split(".")) == 3, f"{tag} isn't one version"
    assert last_stage().only("USER").text == "10001:10001"
    assert [each for each in last_stage().instructions if each.name == "RUN"] == []


def test_the_last_stage_has_nothing_that_builds(image: Image) -> None:
    (packages,) = (image.folder / "opt/strandline/lib").glob("python*/site-packages")
    installed = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert {"strandline", "s3fs", "rocksdict"} <= installed
    assert not {"pip", "setuptools", "wheel", "build"} & installed
    assert not (image.folder / "opt/strandline/bin/pip").exists()


def test_the_service_is_healthy_as_another_user_and_answers(image: Image) -> None:
    port = str(free_port())
    stage = last_stage(port)
    check = image.command(stage.only("HEALTHCHECK").words())
    command = image.command([*stage.only("ENTRYPOINT").words(), *stage.only("CMD").words()])

    def is_healthy() -> bool:
        run = subprocess.run(check, env=image.environment, capture_output=True, check=False)
        return run.returncode == 0

    assert not is_healthy()
    with subprocess.Popen(
        command, cwd=image.folder, env=image.environment, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            deadline = time.monotonic() + PROCESS_S
            while not is_healthy():
                assert service.poll() is None, service.stderr.read() if service.stderr else ""
                assert time.monotonic() < deadline
                pause()
            if os.geteuid() == 0:
                assert os.stat(f"/proc/{service.pid}").st_uid == 10001
            base = image.folder / "lake/t"
            view = connect(f"http://127.0.0.1:{port}", base, token=TOKEN, fallback=False)
            found = [path.parent for path in base.rglob(".hoodie_partition_metadata*")]
            partitions = {str(path.relative_to(base)) for path in found}
            assert len(partitions) > 1
            assert all(view.latest_file_slices(partition) for partition in partitions)
        finally:
            service.terminate()
        assert service.stderr is not None
        told = service.stderr.read()
    assert service.returncode == 0, told
    assert TOKEN not in told
    assert not is_healthy()


def test_the_health_check_is_of_the_port_that_is_served() -> None:
    stage = last_stage()
    assert f"--port={PORT}" in stage.only("CMD").words()
    assert stage.only("EXPOSE").text == PORT
    assert f":{PORT}/healthz" in json.dumps(stage.only("HEALTHCHECK").words())
