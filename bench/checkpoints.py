"""What saving costs a training loop: torch.save, DCP synchronous and asynchronous, and ours, side by side on one disk.

    python -m bench.checkpoints [--gb 1] [--saves 5] [--intervals 5,20] [--folder .]

Blocked: seconds that a save holds up the loop, the disk being quiet, with what the optimiser's next step waits for it; the first
one, which takes its memory, stands apart. Lost: the share of the computing that is lost when each way saves at an interval,
against no saves at all. Persisted: bytes a second from the snapshot to the committed checkpoint, against dd with fsync before and
after. Needs a Python with torch: `make deps-torch`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
SYNCHRONOUS = ("torch.save", "DCP synchronous")
ASYNCHRONOUS = ("DCP asynchronous, thread", "DCP asynchronous, process")
DEFAULT = "ours, process"
OVERLAPPED = "ours, process, overlap"
TIMES_LESS = 20.0
OF_ASYNCHRONOUS = 1.1
OF_DD = 0.8


def measured(folder: Path, gigabytes: float, saves: int, intervals: str) -> list[dict[str, Any]]:
    """Return what the program in the other Python said, one object a line.

    Raises:
        FileNotFoundError: There is no Python with torch.
        subprocess.CalledProcessError: It failed.
    """
    torch = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute() / "bin" / "python"
    if not torch.exists():
        raise FileNotFoundError(f"there is no {torch}: make deps-torch, or NIGHTSHIFT_TORCH")
    words = [str(torch), str(ROOT / "bench" / "_checkpoint_savers.py"), str(folder), str(gigabytes), str(saves), intervals]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if said.returncode:
        sys.stderr.write(said.stderr)
        said.check_returncode()
    return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]


def report(said: Sequence[Mapping[str, Any]]) -> int:
    """Print the figures and return how many targets are missed."""
    blocked = {one["way"]: one for one in said if "blocked_s" in one}
    size = next(one["state_bytes"] for one in said if "state_bytes" in one)
    print(f"state of {size / 1e9:.2f} GB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for way, one in blocked.items():
        print(f"{way:28} blocked {one['blocked_s']:7.3f} s  worst {one['worst_s']:7.3f} s  first {one['first_s']:7.3f} s")
    for one in said:
        if "lost_share" in one:
            print(f"{one['way']:28} saving every {one['interval_s']:g} s of computing loses {one['lost_share']:6.1%}")
    dd = median([one["dd_bytes_s"] for one in said if "dd_bytes_s" in one])
    slowest = min(one["dd_bytes_s"] for one in said if "dd_bytes_s" in one)
    persisted = {one["persisted"]: one["bytes_s"] for one in said if "persisted" in one}
    print(f"{'dd conv=fsync':28} {dd / 1e6:7.0f} MB/s, slowest {slowest / 1e6:.0f}")
    for way, rate in persisted.items():
        print(f"{way:28} {rate / 1e6:7.0f} MB/s persisted: {rate / dd:.0%} of dd")
    return _targets({way: one["blocked_s"] for way, one in blocked.items()}, persisted[DEFAULT] / dd)


def _targets(blocked: Mapping[str, float], of_dd: float) -> int:
    synchronous = min(blocked[way] for way in SYNCHRONOUS)
    asynchronous = min(blocked[way] for way in ASYNCHRONOUS)
    missed = 0
    for way in (DEFAULT, OVERLAPPED):
        less, against = synchronous / blocked[way], blocked[way] / asynchronous
        print(f"{way}: {less:.0f}x less than the faster synchronous (target {TIMES_LESS:.0f}x), {against:.2f}x DCP asynchronous "
              f"(target {OF_ASYNCHRONOUS})")  # fmt: skip
        missed += (way == OVERLAPPED and less < TIMES_LESS) + (against > OF_ASYNCHRONOUS)
    print(f"{DEFAULT}: {of_dd:.0%} of dd (target {OF_DD:.0%})")
    return missed + (of_dd < OF_DD)


def main() -> int:
    """Measure, print, and return 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--intervals", default="5,20", help="seconds of computing between two saves")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-checkpoints-", dir=options.folder) as name:
        try:
            said = measured(Path(name), options.gb, options.saves, options.intervals)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"bench.checkpoints: {error}", file=sys.stderr)
            return 2
    return int(report(said) > 0)


if __name__ == "__main__":
    sys.exit(main())
