"""All-gather over TCP in a ring of nodes: the program that the two-round test runs on each of them.

It travels as text (`python3 -c`), so it imports nothing but the standard library and runs on Python 3.6. Its one argument is a
JSON object: rank, peers (address and ports of each rank), token, seeds (of each rank's block), block_bytes, repeats, connect_s,
deadline_s and, to spare a network, most_mib_s. Its one line of output is `NIGHTSHIFT-COLLECTIVE` and a JSON object: ok, kind,
peer, text, mib_s, seconds. It ends by itself when its time is over, and it listens only for those who know the token.
"""

# What a newer Python would write does not run on the nodes' 3.6, and its output is its answer.
# ruff: noqa: T201, UP006, UP031, UP035, UP045

import json
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

Task = Dict[str, Any]

MARK = "NIGHTSHIFT-COLLECTIVE"
MIB = 1 << 20
PIECE = 1 << 18


class Trouble(Exception):
    """What went wrong, and with which rank."""

    def __init__(self, kind: str, peer: Optional[int], text: str) -> None:
        Exception.__init__(self, text)
        self.kind, self.peer, self.text = kind, peer, text


def block_of(seed: int, size: int) -> bytes:
    """Return the random block of a rank, the same on every node; each MiB of it differs in its first bytes."""
    noise = random.Random(seed).getrandbits(8 * MIB).to_bytes(MIB, "little")
    return b"".join(struct.pack("<Q", place) + noise[8:] for place in range(0, size, MIB))[:size]


def listen(ports: Sequence[int]) -> socket.socket:
    """Return a socket on the first of the ports that is free."""
    for port in ports:
        for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
            try:
                server = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue
            try:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                server.bind((address, port))
                server.listen(4)
                return server
            except OSError:
                server.close()
    raise Trouble("setup", None, "none of the ports %s is free" % ports)


def take(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, or fewer when the other side closed."""
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            break
        found += more
    return found


def accept(server: socket.socket, task: Task, end: float, found: List[socket.socket]) -> None:
    """Wait for the previous rank, turn everybody else away."""
    rank, world = task["rank"], len(task["peers"])
    wanted = task["token"].encode() + struct.pack("<I", (rank - 1) % world)
    while time.monotonic() < end and not found:
        server.settimeout(max(0.1, end - time.monotonic()))
        try:
            connection, _ = server.accept()
            connection.settimeout(2.0)
            if take(connection, len(wanted)) == wanted:
                connection.sendall(wanted)
                found.append(connection)
            else:
                connection.close()
        except OSError:
            continue


def connect(task: Task, end: float) -> socket.socket:
    """Return a connection to the next rank, on whichever of its ports it listens."""
    rank, world = task["rank"], len(task["peers"])
    peer = (rank + 1) % world
    address, ports = task["peers"][peer]
    hello = task["token"].encode() + struct.pack("<I", rank)
    why = "nobody listens"
    while True:
        for port in ports:
            try:
                connection = socket.create_connection((address, port), timeout=max(0.2, min(3.0, end - time.monotonic())))
            except OSError as error:
                why = str(error)
                continue
            try:
                connection.sendall(hello)
                if take(connection, len(hello)) == hello:
                    return connection
            except OSError as error:
                why = str(error)
            connection.close()
        if time.monotonic() > end:
            raise Trouble("connect", peer, "no connection to %s: %s" % (address, why))
        time.sleep(0.05)


def meet(task: Task) -> Tuple[socket.socket, socket.socket]:
    """Return the connections to the next and from the previous rank."""
    server = listen(task["peers"][task["rank"]][1])
    end = time.monotonic() + task["connect_s"]
    found: List[socket.socket] = []
    waiting = threading.Thread(target=accept, args=(server, task, end, found))
    waiting.daemon = True
    waiting.start()
    onward = connect(task, end)
    waiting.join(max(0.0, end - time.monotonic()) + 0.5)
    server.close()
    if not found:
        raise Trouble("connect", (task["rank"] - 1) % len(task["peers"]), "the previous rank did not come")
    for connection in (onward, found[0]):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
    return onward, found[0]


def exchange(onward: socket.socket, back: socket.socket, block: bytes, task: Task, end: float) -> bytes:
    """Send a block to the next rank while taking one of the same size from the previous."""
    rank, world = task["rank"], len(task["peers"])
    taken, sent, size = bytearray(len(block)), 0, len(block)
    view, room, got = memoryview(block), memoryview(taken), 0
    most, began = task.get("most_mib_s"), time.monotonic()
    while sent < size or got < size:
        left = end - time.monotonic()
        if left <= 0:
            peer = (rank - 1) % world if got < size else (rank + 1) % world
            raise Trouble("timeout", peer, "took %d and sent %d of %d bytes in time" % (got, sent, size))
        may_send = sent < size and (not most or sent <= (time.monotonic() - began) * most * MIB)
        pause = 0.01 if sent < size and not may_send else min(1.0, left)
        readable, writable, _ = select.select([back] if got < size else [], [onward] if may_send else [], [], pause)
        try:
            if writable:
                sent += onward.send(view[sent : sent + PIECE])
        except OSError as error:
            raise Trouble("broken", (rank + 1) % world, str(error)) from error
        try:
            if readable:
                count = back.recv_into(room[got:])
                if not count:
                    raise Trouble("broken", (rank - 1) % world, "it closed the connection")
                got += count
        except OSError as error:
            raise Trouble("broken", (rank - 1) % world, str(error)) from error
    return bytes(taken)


def gather(onward: socket.socket, back: socket.socket, blocks: List[bytes], task: Task, end: float) -> float:
    """Run one all-gather and return how many MiB a second came in.

    Only the time on the wire is counted; then the content is compared.
    """
    rank, world = task["rank"], len(blocks)
    came, passing, began = [], blocks[rank], time.monotonic()
    for turn in range(max(1, world - 1)):
        passing = exchange(onward, back, passing, task, end)
        came.append(((rank - turn - 1) % world, passing))
    seconds = max(1e-6, time.monotonic() - began)
    for owner, block in came:
        if block != blocks[owner]:
            place = next(place for place in range(len(block)) if block[place] != blocks[owner][place])
            raise Trouble("content", owner, "the block of rank %d differs from byte %d on" % (owner, place))
    return sum(len(block) for _, block in came) / MIB / seconds


def run(task: Task) -> Dict[str, Any]:
    """Return the report of this rank."""
    began = time.monotonic()
    report: Dict[str, Any] = {"ok": False, "rank": task["rank"], "kind": "", "peer": None, "text": "", "mib_s": None}
    try:
        blocks = [block_of(seed, task["block_bytes"]) for seed in task["seeds"]]
        onward, back = meet(task)
        end = began + task["deadline_s"]
        report["mib_s"] = round(max(gather(onward, back, blocks, task, end) for _ in range(task["repeats"])), 2)
        report["ok"] = True
    except Trouble as trouble:
        report["kind"], report["peer"], report["text"] = trouble.kind, trouble.peer, trouble.text
    except MemoryError:
        report["kind"], report["text"] = "setup", "not enough memory for the blocks"
    report["seconds"] = round(time.monotonic() - began, 3)
    return report


def main() -> int:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    # whatever hangs below Python's reach ends here, too
    signal.alarm(int(task["deadline_s"]) + 5)
    report = run(task)
    print(MARK + " " + json.dumps(report, sort_keys=True))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
