"""A remote file store as a network makes it: each node's link has a limit, and so has the store as a whole.

python bench/_file_store.py serve SOCKET NODE_MB_S TOTAL_MB_S
python bench/_file_store.py get SOCKET SOURCE TARGET      run on a node, whose name is in SLURMD_NODENAME
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

BLOCK = 1 << 16


class Link:
    """What passes so many bytes a second, of however many readers."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s, self._free_at, self._lock = bytes_s, 0.0, threading.Lock()

    def book(self, size: int) -> float:
        """Return when a block that is handed in now has passed."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._bytes_s
            return self._free_at


class FileStore:
    """Serves folders over a Unix socket."""

    def __init__(self, node_mb_s: float, total_mb_s: float) -> None:
        self._node_mb_s, self._total = node_mb_s, Link(total_mb_s * 1e6)
        self._links: dict[str, Link] = {}
        self._lock = threading.Lock()
        self.reads: list[str] = []

    def serve(self, path: Path) -> None:
        """Answer for ever."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(64)
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rwb") as stream:
            node, source = json.loads(stream.readline())
            with self._lock:
                link = self._links.setdefault(node, Link(self._node_mb_s * 1e6))
            files = sorted(path for path in Path(source).rglob("*") if path.is_file())
            names = [[str(path.relative_to(source)), path.stat().st_size] for path in files]
            stream.write(json.dumps(names).encode() + b"\n")
            for path in files:
                with path.open("rb") as file:
                    while block := file.read(BLOCK):
                        passed = max(link.book(len(block)), self._total.book(len(block)))
                        time.sleep(max(0.0, passed - time.monotonic()))
                        stream.write(block)


def get(store: Path, source: str, target: Path) -> None:
    """Bring a folder."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(store))
        with peer.makefile("rwb") as stream:
            stream.write(json.dumps([os.environ.get("SLURMD_NODENAME", ""), source]).encode() + b"\n")
            stream.flush()
            for name, size in json.loads(stream.readline()):
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    left = size
                    while left and (block := stream.read(min(BLOCK, left))):
                        file.write(block)
                        left -= len(block)
                if left:
                    raise SystemExit(f"{name} came short by {left} bytes")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        FileStore(float(sys.argv[3]), float(sys.argv[4])).serve(Path(sys.argv[2]))
    get(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
