"""What training within a part of the device memory costs: plain, naive swapping of tensors and ours, side by side in one run.

    python -m bench.virtual_memory [--shares 0.75,0.5,0.25] [--rates 0,500] [--steps 3]

The model is a row of equal feed-forward blocks with AdamW; the need is the peak of plain training, all counted. The CPU is the
device. A rate is that of the link between host and device in MB/s: 0 is a plain copy in memory, others sleep for what a copy would
take. Busy is processor time and time on the link, the best step of each: beside other work it says more than the wall clock.
`x plain` is the slow-down by it; the last columns are naive swapping over ours. Needs a Python with torch: `make deps-torch`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMES_BETTER = 2.0
OF_BOUND = 1.1


def measured(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the program in the other Python said, one object a line.

    Raises:
        FileNotFoundError: There is no Python with torch.
        subprocess.CalledProcessError: It failed.
    """
    torch = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute() / "bin" / "python"
    if not torch.exists():
        raise FileNotFoundError(f"there is no {torch}: make deps-torch, or NIGHTSHIFT_TORCH")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    program = [str(torch), str(ROOT / "bench" / "_virtual_memory_runs.py"), *words]
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.stderr.write(answer.stderr)
        answer.check_returncode()
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def busy_s(row: Mapping[str, Any]) -> float:
    """Return the processor time of a step and the time of its traffic on the link: its wall time where nothing else runs."""
    rate = row["rate"] * 1e6
    return float(row["cpu_s"]) + (row["traffic"] / rate if rate else 0.0)


def report(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print the table and return how many targets are missed."""
    plain, missed = rows[0], 0
    print(f"need {plain['need'] / 1e6:.1f} MB (weights {plain['weights'] / 1e6:.1f}), plain step {plain['wall_s'] * 1e3:.0f} ms, "
          f"{plain['cpu_s'] * 1e3:.0f} ms of CPU; load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    print("budget  link MB/s  way           peak/budget  traffic MB  of bound  busy ms  x plain  wall ms  naive/ours: busy  wall")
    ours: Mapping[str, Any] = {}
    for row in rows[1:]:
        start = f"{row['share']:6.0%}  {row['rate'] or 'memory':>9}  {row['way']:12}"
        if "refused" in row:
            print(f"{start}  {row['refused']}")
            missed += 1
            continue
        ours = row if row["way"] == "ours" else ours
        naive = row is not ours
        of_bound = "" if naive else f"{row['traffic'] / row['bound']:.3f}"
        better = busy_s(row) / busy_s(ours)
        ratios = f"{better:16.2f}  {row['wall_s'] / ours['wall_s']:4.2f}" if naive else ""
        print(f"{start}  {row['peak'] / row['budget']:11.3f}  {row['traffic'] / 1e6:10.1f}  {of_bound:>8}  "
              f"{busy_s(row) * 1e3:7.0f}  {busy_s(row) / plain['cpu_s']:7.2f}  {row['wall_s'] * 1e3:7.0f}  {ratios}"
              f"{'' if row['same'] else '  OTHER RESULTS'}")  # fmt: skip
        missed += not row["same"]
        missed += not naive and (row["peak"] > row["budget"] or row["traffic"] > OF_BOUND * row["bound"])
        missed += row["way"] == "naive" and row["rate"] > 0 and better < TIMES_BETTER
    print(f"wanted: peak within the budget, the same results, traffic <= {OF_BOUND} x its lower bound, naive/ours >= "
          f"{TIMES_BETTER} with a link; missed: {missed}")  # fmt: skip
    return missed


def main() -> int:
    """Measure, print, and return 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", default="0.5,0.25", help="budgets, as shares of the need")
    parser.add_argument("--rates", default="0,500", help="of the link in MB/s; 0 is a plain copy")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=8, help="of a micro-batch")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each; the best counts")
    options = parser.parse_args()
    sizes = (options.layers, options.width, options.micro_batches, options.rows, options.steps)
    try:
        rows = measured([*map(str, sizes), options.shares, options.rates])
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"bench.virtual_memory: {error}", file=sys.stderr)
        return 2
    return int(report(rows) > 0)


if __name__ == "__main__":
    sys.exit(main())
