"""Measures a service's first answer, in a process of its own.

``python -m benchmarks.servers.first_answer ROOT TARGET OPTION=VALUE ...`` is the
command. The process imports everything that a service imports, then creates the service, starts it,
and sends itself a request for the target over HTTP. Options are those of ``StoreOptions``. It
prints one line of JSON: wall and CPU seconds from the creation of the service to the end of the
answer, including the client's; storage calls by kind and cause; the number of loaded partitions.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.servers.server import HEADERS
from fsview.store.stores import StoreOptions
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions

IMPORTED_LATER = ("rocksdict", "uvloop", "fastavro")
"""Optional packages that the service imports when it starts."""


def first_answer(root: str, target: str, store: StoreOptions) -> dict[str, Any]:
    """Start a service, send it one request, and return the figures."""
    wall, cpu = time.perf_counter(), time.process_time()
    parts = Parts(PartsOptions((root,), store=store, check_interval_s=0))
    server = ServiceServer(parts, ServerOptions())
    server.start_thread()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("GET", target, headers=HEADERS)
    response = connection.getresponse()
    body = response.read()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    connection.close()
    (table,) = parts.status()["tables"].values()
    server.stop()
    server.wait()
    return {
        "status": response.status,
        "bytes": len(body),
        "wall_s": wall,
        "cpu_s": cpu,
        "calls": table["storage_calls"],
        "partitions": table["partitions_loaded"],
    }


def main() -> None:
    """Measure as the command line says and print the figures."""
    root, target, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    for name in IMPORTED_LATER:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    print(json.dumps(first_answer(root, target, StoreOptions(**options))))


if __name__ == "__main__":
    main()
