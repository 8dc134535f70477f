"""All-gather by torch.distributed: what `torchrun --no-python python3 -c` runs on nodes that have torch.

Its one argument is a JSON object: backend (nccl or gloo), seed, block_bytes, repeats, connect_s, deadline_s. Every process prints
one line, `NIGHTSHIFT-COLLECTIVE` and a JSON object as the ring program's. It ends by itself when its time is over.
"""

# What a newer Python would write does not run on every node, and its output is its answer.
# ruff: noqa: T201, UP006, UP031, UP035
import datetime
import importlib
import json
import os
import signal
import sys
import time
from typing import Any, Dict

MARK = "NIGHTSHIFT-COLLECTIVE"
MIB = 1 << 20


def block_of(torch: Any, seed: int, rank: int, size: int) -> Any:
    """Return the random block of a rank, made on the host so that it is the same wherever it is made."""
    made = torch.Generator()
    made.manual_seed(seed + rank)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=made)


def gather(task: Dict[str, Any], report: Dict[str, Any]) -> None:
    """Run the all-gathers and write bandwidth and trouble into the report."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    nccl = task["backend"] == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if nccl else torch.device("cpu")
    if nccl:
        torch.cuda.set_device(device)
    dist.init_process_group(task["backend"], timeout=datetime.timedelta(seconds=task["connect_s"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    wanted = [block_of(torch, task["seed"], owner, task["block_bytes"]) for owner in range(world)]
    own, best = wanted[rank].to(device), 0.0
    for _ in range(task["repeats"] + 1):  # the first one sets the connections up
        came = [torch.empty_like(own) for _ in range(world)]
        dist.barrier()
        began = time.monotonic()
        dist.all_gather(came, own)
        if nccl:
            torch.cuda.synchronize(device)
        seconds = max(1e-6, time.monotonic() - began)
        best = max(best, max(1, world - 1) * task["block_bytes"] / MIB / seconds)
        for owner in range(world):
            if not torch.equal(came[owner].cpu(), wanted[owner]):
                report["kind"], report["peer"], report["text"] = "content", owner, "the block of rank %d differs" % owner
                return
    report["ok"], report["mib_s"] = True, round(best, 2)
    dist.destroy_process_group()


def main() -> int:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    signal.alarm(int(task["deadline_s"]) + 5)
    report: Dict[str, Any] = {
        "ok": False,
        "rank": int(os.environ.get("RANK", "0")),
        "kind": "",
        "peer": None,
        "text": "",
        "mib_s": None,
    }
    began = time.monotonic()
    try:
        gather(task, report)
    except ImportError as error:
        report["kind"], report["text"] = "setup", str(error)
    except (RuntimeError, ValueError, OSError) as error:
        # torch raises RuntimeError and its children for everything that happens to a group
        report["kind"], report["text"] = "collective", (str(error).splitlines() or [""])[0][:300]
    report["seconds"] = round(time.monotonic() - began, 3)
    print(MARK + " " + json.dumps(report, sort_keys=True), flush=True)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
