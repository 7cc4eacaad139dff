"""A line between clients and a server that can be cut: passes bytes on, whatever they mean."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class TcpRelay:
    """Listens on 127.0.0.1 and passes bytes on to a port there; a context manager.

    Args:
        upstream: The server's port.

    Attributes:
        port: The port for clients.
        accepted: How many connections it has accepted, cut or not.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._is_cut = False
        self.accepted = 0
        self._open: set[socket.socket] = set()

    def __enter__(self) -> TcpRelay:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _hang_up(self._listener)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections, and new ones at once."""
        with self._lock:
            self._is_cut = True
            ending = list(self._open)
        for peer in ending:
            _hang_up(peer)

    def mend(self) -> None:
        """Pass bytes on again."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the end
            self.accepted += 1
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                return  # nobody listens: the client learns it by the end of its connection
            with server:
                with self._lock:
                    if self._is_cut:
                        return
                    self._open |= {client, server}
                back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()
                with self._lock:
                    self._open -= {client, server}


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what one side sends until it ends; then end both."""
    with suppress(OSError):  # the other side has ended: so does this one
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _hang_up(source)
    _hang_up(sink)


def _hang_up(peer: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        peer.shutdown(socket.SHUT_RDWR)
