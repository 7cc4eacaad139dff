"""The job's own logic: where it resumes, and the storage that kills it."""

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter

import pytest

from demo.feed import Landing
from demo.job import Doom, FatalStorage, main, options, service_calls, steps_left
from demo.progress import last_step


@pytest.fixture
def landing(tmp_path):
    landing = Landing(tmp_path / "feed")
    landing.folder.mkdir()
    for number, steps in {1: ["upsert"], 2: ["upsert"], 3: ["upsert", "delete"]}.items():
        for step in steps:
            landing.file(number, step).touch()
    return landing


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ((0, ""), [(1, ["upsert"]), (2, ["upsert"]), (3, ["upsert", "delete"])]),
        ((1, "upsert"), [(2, ["upsert"]), (3, ["upsert", "delete"])]),
        ((3, "upsert"), [(3, ["delete"])]),
        ((3, "delete"), []),
    ],
)
def test_the_job_goes_on_after_the_last_step(landing, done, left):
    assert steps_left(landing, 3, done) == left


def test_without_a_table_nothing_is_done(tmp_path):
    assert last_step(str(tmp_path / "table")) == (0, "")


def test_the_options_are_hudis(tmp_path):
    assert options(6, service=False)["hoodie.embed.timeline.server"] == "false"
    assert options(6, service=False)["hoodie.write.table.version"] == "6"


def test_the_calls_of_the_service_are_summed_over_its_tables():
    calls = [
        {"kind": "list", "cause": "sync", "count": 2},
        {"kind": "read", "cause": "sync", "count": 1},
    ]
    status = {"tables": {"a": {"storage_calls": calls}, "b": {"storage_calls": calls[:1]}}}
    assert service_calls(status) == Counter({("list", "sync"): 4, ("read", "sync"): 1})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kill-service", "4"], "'4' is not ONCE,FIRST-LAST in ascending order, such as 7,15-17"),
        (["--kill-service", "4,3-5"], "'4,3-5' is not ONCE,FIRST-LAST in ascending order"),
        (["--kill-service", "0,3-5"], "'0,3-5' is not ONCE,FIRST-LAST in ascending order"),
        (["--no-service", "--kill-service", "1,2-2"], "needs the service, which --no-service"),
    ],
)
def test_a_plan_to_kill_that_makes_no_sense_is_refused(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--feed", "feed", "--table", "table", *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


DEADLY = """
import sys
from demo.job import Doom, FatalStorage

doom = Doom()
storage = FatalStorage.of(sys.argv[1], doom).for_cause("commit")
storage.create("1_2.commit")
doom.near = True
storage.create("3.commit.requested")
storage.create("3_4.commit")
"""


def test_near_its_doom_the_process_dies_before_the_commit_and_only_then(tmp_path):
    died = subprocess.run([sys.executable, "-c", DEADLY, tmp_path.as_uri()]).returncode
    assert died == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == ["1_2.commit", "3.commit.requested"]


def test_executors_get_the_harmless_storage(tmp_path):
    storage = FatalStorage.of(str(tmp_path), Doom(near=True))
    arrived = pickle.loads(pickle.dumps(storage))
    arrived.create("3_4.commit")
    assert not isinstance(arrived, FatalStorage)
    assert storage.calls.snapshot() == {}
