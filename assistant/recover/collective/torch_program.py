"""All-gather by torch.distributed: what `torchrun` starts on nodes that have torch, once for each GPU, or once for gloo.

It travels as text (`python3 -c`). torchrun only starts the processes of one node; the nodes meet here, so that a partner that does
not come costs `connect_s` and is told as such. The one argument is a JSON object: backend (nccl or gloo), node (its number in the
world), peers (address of each node), port (of the first), token, seed, block_bytes, repeats, connect_s, deadline_s. Every process
prints one line, `NIGHTSHIFT-COLLECTIVE` and a JSON object as the ring program's, and ends by itself when its time is over.
"""

# What a newer Python would write does not run on every node, and its output is its answer.
# ruff: noqa: UP006, UP031, UP035
import datetime
import fcntl
import importlib
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict

MARK = "NIGHTSHIFT-COLLECTIVE"
MIB = 1 << 20
SIOCGIFADDR = 0x8915


def block_of(seed: int, size: int) -> bytearray:
    """Return the random block of a rank; not by torch, whose numbers differ between its versions."""
    noise = random.Random(seed).getrandbits(8 * MIB).to_bytes(MIB, "little")
    return bytearray(b"".join(struct.pack("<Q", place) + noise[8:] for place in range(0, size, MIB))[:size])


def interface_to(address: str) -> str:
    """Return the network interface over which a peer is reached; empty when nobody can say.

    gloo takes the one of the host's own name, and on many hosts that is 127.0.1.1, at which no other node finds it.
    """
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                asked = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(asked[20:24]) == own:
                return name
    except OSError:
        pass
    finally:
        probe.close()
    return ""


def join(task: Dict[str, Any], dist: Any, rank: int, world: int, end: float) -> None:
    """Meet the other nodes at the first of them, and make the group."""
    peer = task["peers"][1 if not task["node"] else 0] if len(task["peers"]) > 1 else ""
    if peer and task["backend"] == "gloo" and "GLOO_SOCKET_IFNAME" not in os.environ:
        name = interface_to(peer)
        if name:
            os.environ["GLOO_SOCKET_IFNAME"] = name
    patience = datetime.timedelta(seconds=task["connect_s"])
    store = dist.TCPStore(task["peers"][0], task["port"], world, rank == 0, timeout=patience, wait_for_workers=False)
    # whoever comes to this port by mistake has other keys
    store = dist.PrefixStore(task["token"], store)
    store.set("here%d" % rank, "1")
    store.wait(["here%d" % other for other in range(world)], patience)
    # the last word has `give_up`, a little earlier
    patience = datetime.timedelta(seconds=max(1.0, end - time.monotonic()) + 5)
    dist.init_process_group(task["backend"], store=store, rank=rank, world_size=world, timeout=patience)


def gather(task: Dict[str, Any], report: Dict[str, Any], rank: int, world: int, end: float) -> None:
    """Run the all-gathers and write bandwidth and trouble into the report."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    report["kind"] = "device"
    nccl = task["backend"] == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if nccl else torch.device("cpu")
    if nccl:
        torch.cuda.set_device(device)
    size, best = task["block_bytes"], 0.0
    wanted = [torch.frombuffer(block_of(task["seed"] + owner, size), dtype=torch.uint8) for owner in range(world)]
    own = wanted[rank].to(device)
    report["kind"] = "connect"
    join(task, dist, rank, world, end)
    report["kind"] = "collective"
    # the first of NCCL only sets its connections up; gloo has them already
    for _ in range(task["repeats"] + nccl):
        came = [torch.empty_like(own) for _ in range(world)]
        dist.barrier()
        began = time.monotonic()
        dist.all_gather(came, own)
        if nccl:
            torch.cuda.synchronize(device)
        best = max(best, max(1, world - 1) * size / MIB / max(1e-6, time.monotonic() - began))
        for owner in range(world):
            if not torch.equal(came[owner].cpu(), wanted[owner]):
                report["kind"], report["peer"], report["text"] = "content", owner, "the block of rank %d differs" % owner
                return
    # who leaves first takes the meeting place along
    dist.barrier()
    report["ok"], report["kind"], report["mib_s"] = True, "", round(best, 2)


def tell(report: Dict[str, Any], began: float) -> None:
    """Print the report and end, whatever torch's threads still wait for."""
    report["seconds"] = round(time.monotonic() - began, 3)
    sys.stdout.write(MARK + " " + json.dumps(report, sort_keys=True) + "\n")
    sys.stdout.flush()
    os._exit(0 if report["ok"] else 1)


def give_up(report: Dict[str, Any], began: float, deadline_s: float) -> None:
    """Say that the time is over, while the main thread hangs in torch."""
    late = "no answer from the others within %g s" % deadline_s
    tell(dict(report, ok=False, kind="timeout", text=late), began)


def main() -> None:
    """Run the task of the command line."""
    task, began = json.loads(sys.argv[1]), time.monotonic()
    # whatever hangs below Python's reach ends here, too
    signal.alarm(int(task["deadline_s"]) + 5)
    each, local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    rank, world = task["node"] * each + local, len(task["peers"]) * each
    report: Dict[str, Any] = {"ok": False, "rank": rank, "kind": "setup", "peer": None, "text": "", "mib_s": None}
    watch = threading.Timer(task["deadline_s"], give_up, (report, began, task["deadline_s"]))
    watch.daemon = True
    watch.start()
    try:
        gather(task, report, rank, world, began + task["deadline_s"])
    except (ImportError, MemoryError) as error:
        report["kind"], report["text"] = "setup", str(error) or "not enough memory for the blocks"
    except Exception as error:  # noqa: BLE001  torch has many of its own, and each is an answer
        report["text"] = "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0][:300])
        if "out of memory" in report["text"] or "EADDRINUSE" in report["text"]:
            report["kind"] = "setup"
    watch.cancel()
    tell(report, began)


if __name__ == "__main__":
    main()
