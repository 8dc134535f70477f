"""Replay a year of a generated cluster: how fast history is read and replayed, in how much memory, and what the report makes of it.

    python -m bench.backtest [--per-day 100] [--days 365] [--mode act]

256 nodes, 6 of 100 jobs fail: broken GPUs and nodes, a storage that is away, memory, bugs, time limits; users submit again after
hours, by night in the morning. Which node was broken is known, so the drains that the replay decides on can be compared with the
truth. The rates are those of the generated cluster: a site's own come from its own files.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from assistant.engine.backtest import Kernels, NodeEvents, Replay, Replayed, Traces, read_accounts, sections, tally
from assistant.engine.backtest.attempts import Attempt
from assistant.policy import Mode, load_policy

NOTICE_S, ANSWER_S = 30.0, 1800.0
MEMORY_MB, WRONG_DRAINS = 600.0, 0.01


def main() -> int:
    """Measure, print, and return 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-day", type=int, default=100, help="jobs")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--mode", choices=[str(mode) for mode in Mode], default="act")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"  # sacct's times have no zone
    time.tzset()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="nightshift-year-") as name:
        folder = Path(name)
        # in a process of its own: its memory is not that of the replay
        subprocess.run([sys.executable, "-m", "bench._year", name, str(options.per_day), str(options.days)], check=True)
        return int(replay(folder, Mode(options.mode)))


def replay(folder: Path, mode: Mode) -> bool:
    """Replay, print, and return whether a figure is over its limit."""
    began = time.monotonic()
    accounts = read_accounts(folder / "sacct.txt")
    read_s = time.monotonic() - began
    began = time.monotonic()
    traces = Traces(folder / "logs", Kernels(folder / "kernel"), accounts.attempts)
    policy = dataclasses.replace(load_policy(), mode=mode, kill_switch=())
    found = list(Replay(accounts.attempts, traces, policy, notice_s=NOTICE_S).run())
    replay_s = time.monotonic() - began
    told = tally(
        accounts.attempts, found, jobs=accounts.attempts, notice_s=NOTICE_S, answer_s=ANSWER_S, unknown={}, events=NodeEvents()
    )
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(accounts.attempts):,} jobs of {told.days:g} days, {len(found):,} failures with logs, policy {mode}")
    print(f"  accounting read       {accounts.rows / read_s:10,.0f} rows/s      {read_s:.2f} s")
    print(f"  failures replayed     {len(found) / replay_s:10,.1f} /s          {replay_s:.1f} s: diagnosis, playbook, gate, budget")
    print(f"  memory, at most       {memory_mb:10,.0f} MB          limit {MEMORY_MB:g} MB")
    print(f"  restarts              {told.restarts.per_week:10,.1f} a week      {told.restarts.count:,}")
    print(f"  drains                {told.drains.per_week:10,.1f} a week      {told.drains.count:,}")
    print(f"  questions             {told.asked.per_week:10,.1f} a week      {told.asked.count:,}")
    print(f"  handed over           {told.handed_over.per_week:10,.1f} a week      {told.handed_over.count:,}")
    waiting = told.waiting
    print(f"  GPU-hours of waiting  {waiting.gpu_hours:10,.0f}             saved alone {waiting.saved_alone:,.0f}", end="")
    print(f", after a yes {waiting.saved_asked:,.0f}")
    wrong = _against_truth(accounts.attempts, found, json.loads((folder / "truth.json").read_text()))
    for section in sections(told):
        if section.title == "what might have done harm":
            for name, value in section.pairs:
                print(f"  {name}: {value}")
    return memory_mb > MEMORY_MB or wrong > WRONG_DRAINS


def _against_truth(attempts: list[Attempt], found: list[Replayed], truth: dict[str, dict[str, str]]) -> float:
    """Print how the decisions compare with what was broken, and return the share of drains that took a good node."""
    right, wrong = 0, 0
    broken: Counter[str] = Counter()
    drained: Counter[str] = Counter()
    for one in found:
        known = truth[attempts[one.number].job.id]
        right += one.diagnosis is not None and one.diagnosis.reason == known["reason"]
        nodes = {node for change in one.decided if change.kind == "cordon" and change.done for node in change.nodes}
        broken[known["reason"]] += bool(known["node"])
        drained[known["reason"]] += known["node"] in nodes
        wrong += len(nodes - {known["node"]})
    total = drained.total() + wrong
    print(f"  reason is the true one {right / len(found):9.3f}             {right:,} of {len(found):,}")
    for reason, many in sorted((+broken).items()):
        print(f"  broken nodes drained  {drained[reason] / many:10.3f}             {drained[reason]:,} of {many:,}: {reason}")
    print(
        f"  drains of good nodes  {wrong / total if total else 0:10.3f}             {wrong:,} of {total:,}, limit {WRONG_DRAINS:g}"
    )
    return wrong / total if total else 0.0


if __name__ == "__main__":
    sys.exit(main())
