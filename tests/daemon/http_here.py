"""A real HTTP server on this machine, for what the watch sends."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class HttpHere:
    """Listens on a free port, in a thread of its own."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = HTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
