"""A server on a real socket that answers, or misbehaves, as the test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_DRIP_S: Final = 0.01


@dataclass(frozen=True)
class Request:
    """One request as it came; ``connection`` and ``number`` count from 0."""

    connection: int
    number: int
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """A proper answer."""

    body: bytes = b"[]"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False

    def encoded(self) -> bytes:
        headers = {"Content-Type": "text/plain", "Content-Length": str(len(self.body))}
        if self.close:
            headers["Connection"] = "close"
        lines = [
            f"HTTP/1.1 {self.status} X",
            *(f"{k}: {v}" for k, v in (headers | self.headers).items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Raw:
    """These bytes, then the end of the connection."""

    data: bytes = b""


@dataclass(frozen=True)
class Drip:
    """These bytes one by one, over and over, with a short wait after each."""

    head: bytes
    drops: bytes


class Hang:
    """No answer until the server stops."""


Script = Callable[[Request], "Reply | Raw | Hang | Drip"]


class ScriptedServer:
    """Listens on 127.0.0.1; a context manager. ``requests`` holds what came, in order."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._stopped = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.requests: list[Request] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> ScriptedServer:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for peer in self._open:
                _close(peer)
        for thread in list(self._threads):
            thread.join()

    def close_connections(self) -> None:
        """Hang up on every client; the port stays open."""
        with self._lock:
            for peer in self._open:
                _close(peer)
            self._open.clear()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(peer)
                number = self.connections
                self.connections += 1
            self._start(self._serve, peer, number)

    def _serve(self, peer: socket.socket, connection: int) -> None:
        with peer, peer.makefile("rb") as stream:
            try:
                while (request := self._read(stream, connection)) is not None:
                    action = self._script(request)
                    if isinstance(action, Hang):
                        self._stopped.wait()
                        return
                    if isinstance(action, Drip):
                        peer.sendall(action.head)
                        for drop in cycle(action.drops):
                            if self._stopped.wait(_DRIP_S):
                                return
                            peer.sendall(bytes([drop]))
                    peer.sendall(action.data if isinstance(action, Raw) else action.encoded())
                    if isinstance(action, Raw) or action.close:
                        return
            except OSError:
                return

    def _read(self, stream: object, connection: int) -> Request | None:
        line = stream.readline().decode()  # type: ignore[attr-defined]
        if not line.strip():
            return None
        method, target, _ = line.split()
        headers: dict[str, str] = {}
        while (header := stream.readline().decode().strip()) != "":  # type: ignore[attr-defined]
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        parts = urlsplit(target)
        with self._lock:
            request = Request(
                connection=connection,
                number=len(self.requests),
                method=method,
                path=parts.path,
                params=dict(parse_qsl(parts.query, keep_blank_values=True)),
                headers=headers,
            )
            self.requests.append(request)
        return request


def _close(peer: socket.socket) -> None:
    try:
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already
