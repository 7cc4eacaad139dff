"""URLs of state stores: what they mean, what is refused, and that no password is shown."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from strandline.fleet.state.sqlite import SqliteState
from strandline.fleet.state.url import StateUrl, open_state
from tests.conformance.state_subject import children
from timeline.errors import ConfigError


def test_what_a_url_means(subtests: pytest.Subtests) -> None:
    for url, scheme, place, fleet in [
        ("zk://a:2181/lake", "zk", "a:2181", "lake"),
        ("zk://a:2181,b.c:2182,[::1]:1/x.y-z_1", "zk", "a:2181,b.c:2182,[::1]:1", "x.y-z_1"),
        ("postgresql://h/db?fleet=f", "postgresql", "postgresql://h/db", "f"),
        ("postgres://u:p%40@h:1,i:2/db?fleet=f", "postgresql", "postgres://u:p%40@h:1,i:2/db", "f"),
        (
            "postgresql://h/db?sslmode=require&fleet=f&connect_timeout=3",
            "postgresql",
            "postgresql://h/db?sslmode=require&connect_timeout=3",
            "f",
        ),
        ("sqlite:///var/lib/fleet.db", "sqlite", "/var/lib/fleet.db", ""),
        ("sqlite:////var/a b?fleet=lake", "sqlite", "/var/a b", "lake"),
    ]:
        with subtests.test(url=url, scheme=scheme, place=place, fleet=fleet):
            assert StateUrl.of(url) == StateUrl(scheme, place, fleet)


NO_URLS = [
    "zk",
    "zk://",
    "zk:///lake",
    "zk://a/lake",
    "zk://a:0/lake",
    "zk://a:65536/lake",
    "zk://a:1,/lake",
    "zk://u:pw@a:1/lake",
    "zk://a b:1/lake",
    "etcd://a:1/lake",
    "postgresql://h/db?fleet=a&fleet=b",
    "postgresql://h/db?fleet=a&x",
    "postgresql://u:p/w@h/db?fleet=a",
    "sqlite://relative/path",
    "sqlite:///",
    "sqlite:///folder/",
    "sqlite:///a.db?name=lake",
    "sqlite:///a.db?fleet=a&x=1",
    "sqlite:///a.db?fleet=a&fleet=b",
    "sqlite:///:memory:",
    "sqlite:///a\0b",
]


def test_what_is_no_url_of_a_fleet_is_refused(subtests: pytest.Subtests) -> None:
    for url in NO_URLS:
        with (
            subtests.test(url=url),
            pytest.raises(
                ConfigError, match=r"the fleet's URL '.*' can't be read; allowed: zk://HOST"
            ),
        ):
            StateUrl.of(url)


def test_a_url_of_postgresql_without_a_fleet_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"postgresql://\*\*\*' lacks \?fleet=FLEET; allowed: zk"):
        StateUrl.of("postgresql://u:geheim@h/db")


def test_an_empty_url_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"the fleet's URL '' \(empty\) can't be read"):
        StateUrl.of("")


def test_a_url_without_a_fleets_name_is_refused(subtests: pytest.Subtests) -> None:
    for url in [
        "zk://a:1",
        "zk://a:1/",
        "zk://a:1/a/b",
        "zk://a:1/..",
        "zk://a:1/a?b",
        f"zk://a:1/{'x' * 101}",
        "postgresql://h/db?fleet=",
        "postgresql://h/db?fleet=a%20b",
        "sqlite:///a.db?fleet=",
    ]:
        with (
            subtests.test(url=url),
            pytest.raises(ConfigError, match=r"URL '.*' names no fleet; allowed: letters, digits"),
        ):
            StateUrl.of(url)


def test_no_password_is_in_a_refusal(subtests: pytest.Subtests) -> None:
    for url in [
        "postgresql://u:geheim@h/db",
        "postgresql://u:geheim/1@h/db?fleet=f",
        "postgresql://u:geheim@h/db?fleet=/",
        "zk://u:geheim@h:1/f",
        "geheim",
        "Geheim://x",
    ]:
        with subtests.test(url=url):
            with pytest.raises(ConfigError, match=r"\*\*\*") as refused:
                StateUrl.of(url)
            assert "eheim" not in str(refused.value)


def test_the_text_of_a_url_has_no_password() -> None:
    url = "postgresql://u:geheim@h:5432,i/db?sslmode=require&fleet=f&password=geheim"
    assert str(StateUrl.of(url)) == "postgresql://h:5432,i/db?fleet=f"
    for same in ("zk://a:1,b:2/f", "sqlite:///a.db", "sqlite:///a.db?fleet=f"):
        assert str(StateUrl.of(same)) == same


def test_a_file_is_opened_and_keeps_its_fleets_name(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/fleet.db"
    for named in (url, f"{url}?fleet=lake", f"{url}?fleet=lake", url):
        with closing(open_state(named)) as state:
            assert isinstance(state, SqliteState)
            assert children(state, "seats") == ()
    with pytest.raises(
        ConfigError, match=r"fleet\.db has the fleet 'lake', but .* 'pond'; allowed"
    ):
        open_state(f"{url}?fleet=pond")


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"state store .*missing/fleet\.db can't be made"):
        open_state(f"sqlite://{tmp_path}/missing/fleet.db")
