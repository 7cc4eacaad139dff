"""The state store in a real ZooKeeper."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from kazoo.client import KazooClient

from strandline.fleet.membership import HEARTBEAT_S
from strandline.fleet.roster import REREAD_S, Roster
from strandline.fleet.state.base import Delete, Put, StateStore, Versioned
from strandline.fleet.state.url import open_state
from strandline.fleet.state.zookeeper import LOOK_S, Request, ZookeeperState
from tests.conformance.state_lease_suite import LeaseSuite, holding_process
from tests.conformance.state_machine import StateMachine
from tests.conformance.state_subject import children
from tests.conformance.state_suite import StateSuite
from tests.conformance.state_watch_suite import Told, WatchSuite
from tests.fleet.jvm import running_jvm
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.tcp_relay import TcpRelay
from tests.kit.servers.zookeeper_server import ZookeeperServer, zookeeper_server
from tests.strandline.fleet.serve_fleet import check_a_fleet_of_servers, wait_until
from timeline.clock import Clock
from timeline.errors import ConfigError, InputError, StateConflictError, StateUnavailableError

pytestmark = pytest.mark.fleet

SESSION_S = 2.0
ANSWER_S = 10.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with running_jvm() as jvm, zookeeper_server(jvm, tmp_path_factory.mktemp("zk")) as running:
        yield running


@dataclass(frozen=True)
class Subject:
    hosts: str
    fleet: str
    answer_s: float = ANSWER_S

    def open(self, clock: Clock | None = None) -> ZookeeperState:
        # Changes are told by reports: none of these tests lasts until the next poll.
        return ZookeeperState(self.hosts, self.fleet, SESSION_S, self.answer_s, look_s=3600.0)


@pytest.fixture
def subject(server: ZookeeperServer) -> Subject:
    return Subject(server.hosts, uuid.uuid4().hex)


class TestZookeeperState(StateSuite):
    pass


class TestZookeeperLeases(LeaseSuite):
    pass


class TestZookeeperWatches(WatchSuite):
    pass


def test_a_key_that_was_deleted_is_told_when_it_is_there_again(subject: Subject) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        told = Told()
        one.watch("a", told)
        for _ in range(2):
            version = two.write(Put("a", b"1"))
            told.wait()
            two.write(Delete("a", version))
            told.wait()


def test_what_changes_while_a_watch_begins_hides_no_later_change(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper reports the next change only, and there is no poller yet to hear of it."""
    with closing(subject.open()) as one, closing(subject.open()) as two:
        numbers, reported, told = one._nodes.numbers, threading.Event(), Told()

        def found_first(tell: Callable[[object], object]) -> dict[str, int]:
            def tell_too(event: object) -> None:
                tell(event)
                reported.set()

            found = numbers(tell_too)
            if not reported.is_set():
                two.write(Put("b", b""))
                assert reported.wait(PATIENCE_S)
            return found

        monkeypatch.setattr(one._nodes, "numbers", found_first)
        one.watch("a", told)
        two.write(Put("a", b""))
        told.wait()


def test_changes_are_told_after_a_lost_connection_and_a_lost_session(
    server: ZookeeperServer, subject: Subject
) -> None:
    with (
        TcpRelay(int(server.hosts.rpartition(":")[2])) as line,
        closing(Subject(f"127.0.0.1:{line.port}", subject.fleet).open()) as one,
        closing(subject.open()) as two,
    ):
        told = Told()
        one.watch("a", told)
        line.cut()
        told.wait()  # that the store is away
        version = two.write(Put("a", b"1"))
        line.mend()
        told.wait()
        before = session_of(one)
        server.end_session(before)
        wait_until_connected(one, before)
        version = two.write(Put("a", b"2", version))
        told.wait()
        while one.get("a") != Versioned(b"2", version):
            told.wait()  # before, that the store was away


def test_random_steps_of_two_clients(server: ZookeeperServer) -> None:
    def machine() -> StateMachine:
        return StateMachine(Subject(server.hosts, uuid.uuid4().hex).open)

    # A machine opens two sessions, and each of its steps asks for twelve reads.
    few = settings(max_examples=15, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=few)


def session_of(state: ZookeeperState) -> int:
    with state._nodes.mapped():
        return state._nodes.session


def wait_until_absent(state: StateStore, key: str) -> None:
    told = Told()
    cancel = state.watch(key, told)
    while state.get(key) is not None:
        told.wait()
    cancel()


def test_leases_end_with_their_session(server: ZookeeperServer, subject: Subject) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        lease = one.hold("members/a", b"1", 10.0)
        kept = one.write(Put("seats/1", b"a"))
        before = session_of(one)
        server.end_session(before)
        wait_until_absent(two, "members/a")
        held = two.hold("members/a", b"2", 10.0)
        wait_until_connected(one, before)
        assert not lease.renew()
        assert not lease.renew(b"still me")
        lease.release()
        assert one.get("members/a") == Versioned(b"2", held.version)
        assert one.get("seats/1") == Versioned(b"a", kept)


def wait_until_connected(state: ZookeeperState, before: int | None = None) -> None:
    """Wait until the client has a connection, of another session than one before."""
    told, client = Told(), state._nodes.client
    client.add_listener(lambda _: told())
    while (client.client_id or (before,))[0] == before:
        told.wait()


@pytest.mark.property
def test_the_lease_of_a_killed_process_ends(subject: Subject) -> None:
    with holding_process(subject) as process, closing(subject.open()) as state:
        assert children(state, "members") == ("killed",)
        process.kill()
        process.join()
        wait_until_absent(state, "members/killed")


def test_a_lease_whose_answer_was_lost_is_held_by_the_next_call(subject: Subject) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        # What is left of such a call: the node, and nobody that knows it.
        one._nodes.client.create(f"{one._nodes.root}/members:a", b"lost", ephemeral=True)
        with pytest.raises(StateConflictError):
            two.hold("members/a", b"2", 10.0)
        lease = one.hold("members/a", b"1", 10.0)
        assert two.get("members/a") == Versioned(b"1", lease.version)
        with pytest.raises(StateConflictError):
            one.hold("members/a", b"again", 10.0)
        assert lease.renew()


def test_a_server_that_is_away_for_a_while(server: ZookeeperServer, subject: Subject) -> None:
    with closing(Subject(subject.hosts, subject.fleet, answer_s=1.0).open()) as state:
        version = state.write(Put("a", b"1"))
        told = Told()
        state.watch("a", told)
        server.stop()
        try:
            for use in (
                lambda: state.get("a"),
                lambda: children(state, ""),
                lambda: state.write(Put("a", b"2", version)),
                lambda: state.hold("b", b"", 10.0),
            ):
                with pytest.raises(StateUnavailableError, match="ZooKeeper at 127"):
                    use()
            with pytest.raises(StateUnavailableError, match="ZooKeeper at 127"):
                Subject(subject.hosts, subject.fleet, answer_s=0.1).open()
        finally:
            server.start()
        wait_until_connected(state)
        found = state.get("a")
        assert found is not None
        # The write may have been sent when the server was back; then it was carried out once.
        assert found.value in (b"1", b"2")
        while not told.calls.empty():
            told.calls.get()
        state.write(Put("a", b"3", found.version))
        told.wait()


def test_a_client_that_was_cut_off_for_long_is_back_soon(server: ZookeeperServer) -> None:
    """Its pauses before it connects again don't double for ever."""
    with (
        TcpRelay(int(server.hosts.rpartition(":")[2])) as line,
        closing(Subject(f"127.0.0.1:{line.port}", uuid.uuid4().hex).open()) as state,
    ):
        version = state.write(Put("a", b"1"))
        line.cut()
        before = line.accepted
        wait_until(lambda: line.accepted >= before + 11)
        line.mend()
        wait_until_connected(state)
        assert state.get("a") == Versioned(b"1", version)


def test_nodes_of_others_are_no_keys(server: ZookeeperServer, subject: Subject) -> None:
    with closing(subject.open()) as state:
        state.write(Put("seats/1", b""))
        client = KazooClient(server.hosts)
        client.start()
        try:
            for name in ("a b", "..a:", "é", "seats:2"):
                client.create(f"/strandline/{subject.fleet}/{name}", b"by hand")
            assert children(state, "") == ("seats",)
            assert children(state, "seats") == ("1", "2")
            client.delete(f"/strandline/{subject.fleet}", recursive=True)
        finally:
            client.stop()
            client.close()
        for use in (lambda: state.write(Put("seats/3", b"")), state.read):
            with pytest.raises(StateUnavailableError, match="was deleted while it was in use"):
                use()


def test_fleets_are_apart(server: ZookeeperServer, subject: Subject) -> None:
    with (
        closing(subject.open()) as one,
        closing(Subject(server.hosts, f"{subject.fleet}-b").open()) as other,
    ):
        one.write(Put("a", b"1"))
        assert other.get("a") is None
        assert children(other, "") == ()


def test_a_url_with_a_fleets_name_opens_it(subject: Subject) -> None:
    named = f"zk://{subject.hosts}/{subject.fleet}"
    with closing(subject.open()) as one, closing(open_state(named, SESSION_S)) as same:
        one.write(Put("a", b"1"))
        assert children(same, "") == ("a",)


def test_a_lease_can_not_be_shorter_than_the_session(subject: Subject) -> None:
    with (
        closing(subject.open()) as state,
        pytest.raises(InputError, match=r"is 1\.5 seconds; allowed: at least the session's 2"),
    ):
        state.hold("a", b"", 1.5)


def test_no_lease_is_trusted_for_longer_than_the_servers_keep_its_session(
    server: ZookeeperServer, subject: Subject
) -> None:
    with closing(ZookeeperState(subject.hosts, subject.fleet, 10.0)) as state:
        assert state.hold("a", b"", 10.0).renew()
    refused = r"dead\.secs is 10\.001; allowed: at most 10, after which ZooKeeper at .* ends"
    with closing(ZookeeperState(subject.hosts, subject.fleet, 10.001)) as state:
        with pytest.raises(ConfigError, match=refused):
            state.hold("a", b"", 12.0)
        # A client without leases is none the worse for it.
        state.write(Put("b", b""))


def test_a_lease_is_not_renewed_at_a_server_that_keeps_its_session_for_less(
    server: ZookeeperServer, subject: Subject
) -> None:
    with (
        TcpRelay(int(server.hosts.rpartition(":")[2])) as line,
        closing(Subject(f"127.0.0.1:{line.port}", subject.fleet).open()) as state,
    ):
        lease = state.hold("a", b"", SESSION_S)
        told = Told()
        state._nodes.client.add_listener(lambda _: told())
        server.allow_sessions(1500)
        try:
            line.cut()
            told.wait()
            line.mend()
            while not state._nodes.client.connected:
                told.wait()
        finally:
            server.allow_sessions()
        with pytest.raises(ConfigError, match=r"dead\.secs is 2; allowed: at most 1\.5, after"):
            lease.renew()


@pytest.mark.parametrize("fleet", ["", "../etc", "a b"])
def test_a_fleet_has_a_name(server: ZookeeperServer, fleet: str) -> None:
    with pytest.raises(InputError, match="is no key of a state store"):
        Subject(server.hosts, fleet).open()


def test_a_fleet_on_zookeeper(server: ZookeeperServer, subject: Subject) -> None:
    """A standby takes the seat of a server whose session has ended."""
    states = [subject.open() for _ in range(3)]
    a, b, s = (
        Roster(state, f"http://{name}:1", is_standby=name == "s", dead_s=SESSION_S)
        for state, name in zip(states, "abs", strict=True)
    )
    for each in (a, b, s):
        each.join()
    assert [seat.url for seat in a.step().seats] == ["http://a:1", "http://b:1"]
    states[1].close()
    wait_until_absent(states[0], f"members/{a.fleet.seats[1].holder}")
    assert [seat.url for seat in a.step().seats] == ["http://a:1", "http://s:1"]
    assert s.step() == a.fleet
    for state in states:
        state.close()


def test_a_key_made_anew_between_reads_and_write_is_not_taken_for_the_old_one(
    subject: Subject,
) -> None:
    """ZooKeeper's own version of both is 0."""
    with closing(subject.open()) as one, closing(subject.open()) as two:
        first = one.write(Put("a", b"old"))
        seen: list[int] = []

        def fill(request: Request) -> bool:
            stat = one._nodes.read("exists", "a")
            seen.append(stat.mzxid)
            if stat.mzxid == first:
                two.write(Delete("a", first))
                two.write(Put("a", b"new"))
                request.set_data(one._nodes.path("a"), b"late", stat.version)
            return stat.mzxid == first

        assert one._nodes.change(fill) is None
        assert seen == [first, two.get("a").version]
        assert two.get("a").value == b"new"


def test_a_member_that_is_told_of_nothing_sends_few_packets(
    server: ZookeeperServer, subject: Subject
) -> None:
    """Five in ten seconds, as a router of DH-HDFS, the reading of the whole fleet included."""

    def packets(use: Callable[[], object]) -> int:
        before = server.received()
        use()
        return server.received() - before

    with closing(subject.open()) as one, closing(subject.open()) as two:
        for key in ("epoch", "mounts", "groups/a", "groups/b", *(f"seats/{n}" for n in range(4))):
            two.write(Put(key, b"{}"))
        lease, *_ = (one.hold(f"members/{n}", b"{}", 10.0) for n in range(5))
        one.watch("", lambda: None)
        one._look()
        # The client's thread sends a ping if it has sent nothing else for a while.
        renewal, look, read = (
            min(packets(use) for _ in range(5)) for use in (lease.renew, one._look, one.read)
        )
    assert (renewal, look) == (1, 1)
    assert 10 * (renewal / HEARTBEAT_S + look / LOOK_S + read / REREAD_S) <= 5


def test_a_lease_that_another_client_deleted_and_made_is_not_renewed(subject: Subject) -> None:
    """ZooKeeper's own version of both is 0, and the session that made the first still lives."""
    with closing(subject.open()) as one, closing(subject.open()) as two:
        lease = one.hold("members/a", b"1", 10.0)
        assert lease.renew()
        two.write(Delete("members/a", lease.version))
        assert not lease.renew()
        other = two.hold("members/a", b"2", 10.0)
        assert not lease.renew()
        assert other.renew()
        assert two.get("members/a") == Versioned(b"2", other.version)


def test_a_renewal_is_no_change(subject: Subject) -> None:
    with closing(subject.open()) as one, closing(subject.open()) as two:
        lease = one.hold("members/a", b"1", 10.0)
        told, before = Told(), two._look()
        two.watch("", told)
        assert lease.renew()
        assert two._look() == before
        assert two.get("members/a") == Versioned(b"1", lease.version)
        one.write(Put("a", b""))
        told.wait()


def test_servers_with_their_state_here(subject: Subject, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    check_a_fleet_of_servers(tmp_path, f"zk://{subject.hosts}/{subject.fleet}")
