"""Two hosts on one machine: network namespaces with a cable (a veth pair) between them.

They are made in a user namespace, which no privilege is needed for, with ``unshare``, ``nsenter``
and ``ip`` (Debian: util-linux, iproute2). Files are shared, but for each host's ``/etc/hosts``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

DRIVER, WORKERS = "10.77.0.1", "10.77.0.2"
NAMES = f"127.0.0.1 localhost\n{DRIVER} driver.spark.svc\n{WORKERS} workers.spark.svc\n"
"""The names that both hosts know; ``driver.spark.svc`` is as that of a headless service."""


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
        address: Its address on the cable.
        inside: What runs the command that follows it on this host.
    """

    address: str
    inside: tuple[str, ...]

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True, capture_output=True, text=True)


@contextmanager
def two_hosts(names: Path) -> Iterator[tuple[Host, Host]]:
    """Make the driver's host and the workers' host.

    Args:
        names: Where to write their ``/etc/hosts``.

    Raises:
        RuntimeError: A program is missing, or the system doesn't allow namespaces.
    """
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        raise RuntimeError(f"not installed: {', '.join(missing)} (Debian: iproute2, util-linux)")
    names.write_text(NAMES, "utf-8")
    with (
        _namespaces(("unshare", "--user", "--map-root-user")) as first,
        _namespaces(first) as second,
    ):
        driver, workers = Host(DRIVER, first), Host(WORKERS, second)
        peer = second[2]
        driver.run("ip", "link", "add", "cable", "type", "veth", "peer", "cable", "netns", peer)
        for host in (driver, workers):
            host.run("mount", "--bind", str(names), "/etc/hosts")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")
            host.run("ip", "link", "set", "lo", "up")
        yield driver, workers


@contextmanager
def _namespaces(prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Keep namespaces of networks and mounts alive; return the command that enters them."""
    if prefix[0] == "unshare":
        command = [*prefix, "--net", "--mount"]
    else:
        command = [*prefix, "unshare", "--net", "--mount"]
    # The shell ends with its input, so that nothing is left however this process ends.
    holder = subprocess.Popen(
        [*command, "sh", "-c", "echo ready; read _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        assert holder.stdin is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespaces can be made here: {holder.stderr.read().strip()}")
        try:
            target = ("nsenter", "--target", str(holder.pid))
            yield (*target, "--user", "--net", "--mount", "--preserve-credentials")
        finally:
            with suppress(BrokenPipeError):
                holder.stdin.close()
