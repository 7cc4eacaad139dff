"""Cuts a server of a fleet off the others: ``unshare --net python -m … FOLDER``.

The network is a bridge, with a cable to each server's namespace. The database is on the bridge's
own address, and the clients ask from there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo.spark import start_session
from tests.fleet.faulty_fleet import Host, faulty_fleet
from tests.fleet.postgres_place import new_database
from tests.kit.servers.namespaces import namespace, run
from tests.kit.servers.postgres_server import postgres_server
from tests.spark.faults.own_process import tell

NETWORK = "10.78.0"


@contextmanager
def bridged(count: int) -> Iterator[list[Host]]:
    """Make a bridge and hosts with a cable to it, ``cable0`` and so on."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "bridge", "type", "bridge")
    run("ip", "address", "add", f"{NETWORK}.254/24", "dev", "bridge")
    run("ip", "link", "set", "bridge", "up")
    with ExitStack() as stack:
        hosts = []
        for n in range(count):
            inside = stack.enter_context(namespace("--net"))
            address, cable = f"{NETWORK}.{n + 1}", f"cable{n}"
            made = ("ip", "link", "add", cable, "type", "veth", "peer", "cable")
            run(*made, "netns", inside[2])
            run("ip", "link", "set", cable, "master", "bridge", "up")
            run(*inside, "ip", "address", "add", f"{address}/24", "dev", "cable")
            for link in ("cable", "lo"):
                run(*inside, "ip", "link", "set", link, "up")
            hosts.append(Host(address, inside))
        yield hosts


def main(folder: Path) -> None:
    with bridged(3) as hosts, postgres_server(f"{NETWORK}.254") as postgres:
        state, url = f"{postgres.url()}?fleet=f", new_database(postgres)
        shared = ("--storage", "sql", "--store-url", url)
        spark = start_session("strandline-fleet", "local[2,2]")
        with faulty_fleet(spark, folder, state, *shared, hosts=hosts) as fleet:
            owner = fleet.placed()[0]
            cable = f"cable{fleet.servers.index(owner)}"
            run("ip", "link", "set", cable, "down")
            fleet.go_on_without(owner)
            run("ip", "link", "set", cable, "up")
            fleet.all_well()
            fleet.go_on()
    tell({"well": True})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
