"""The watchdog on a large cluster: how soon a failure is an incident and diagnosed, what it costs while nothing happens.

    python -m bench.watch [--minutes 1] [--nodes 2000] [--jobs 5000] [--failures 50] [--days 30]

Real time and a real store; the cluster is simulated, but every job writes a real log (by another process), and 50 of them die each
minute. CPU is that of this process, the listing of the simulated jobs included; memory is without what the simulated cluster holds.
Then a month passes on a small cluster, in jumps of ten minutes, with a job that starts every hour and one in four that dies; memory
must not grow from the first week to the last day.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import resource
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from assistant.config import Settings, WatchSettings
from assistant.daemon.loop import Watchdog
from assistant.policy import Breaker, Mode, load_policy
from assistant.ports import JumpingClock, SystemClock
from assistant.process_memory import few_arenas
from assistant.records import JobSpec
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.wiring import build
from bench._busy_night import BusyNight, Writer

OPEN_S, DIAGNOSED_S, MEDIAN_S, CPU_SHARE, MEMORY_MB = 5.0, 10.0, 3.0, 0.5, 250.0
POLL_S = 2.0
GROWTH_MB = 15.0
QUIET_S = 30.0


class Forgetful(SimulatedCluster):
    """A cluster that forgets old jobs, as every scheduler does."""

    _last = 0

    def _new_id(self) -> str:
        self._last += 1
        return str(self._last)

    def forget(self, before: datetime) -> None:
        """Know nothing more of jobs that ended before, nor of their logs."""
        for job in [job for job in self._jobs.values() if job.ended is not None and job.ended < before]:
            del self._jobs[job.id]
            if job.log is not None:
                job.log.unlink(missing_ok=True)
        self.controller = self.controller[-1_000:]


def watchdog(folder: Path, cluster: BusyNight) -> Watchdog:
    """Return a watchdog that acts, on a store of its own."""
    settings = Settings(
        state_folder=folder,
        store=folder / "nightshift.db",
        commands={"kernel_log": ("dmesg",)},
        watch=WatchSettings(poll_s=POLL_S, hang_after_s=1800.0),
    )
    policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=(folder / "stop",), breaker=Breaker())
    engine = build(settings, scheduler=cluster, transport=cluster, policy=policy)
    _ = engine.knowledge
    return Watchdog(engine, "watch@bench:1.1", POLL_S)


def memory_mb() -> float:
    """Return the resident size of this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def cpu_s() -> float:
    """Return what this process has used of processors, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _line(name: str, value: float, limit: float, unit: str, more: str = "") -> bool:
    print(f"{name:44} {value:8.2f} {unit:2}  limit {limit:g} {unit}  {more}".rstrip())
    return value > limit


class Night(NamedTuple):
    """What was measured on the large cluster."""

    busy_share: float
    """Of a core, while every job writes its log and none dies."""
    still_share: float
    """The same while nobody writes."""
    looks: int
    """How often all jobs were listed in a time of quiet."""
    quiet_mb: float
    died: dict[str, datetime]


def main() -> int:
    """Measure, print, and return 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--failures", type=int, default=50, help="a minute")
    parser.add_argument("--days", type=int, default=30)
    options = parser.parse_args()
    few_arenas()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="nightshift-watch-") as name:
        folder = Path(name)
        held = memory_mb()
        cluster = BusyNight(folder, nodes=options.nodes, jobs=options.jobs)
        held = memory_mb() - held
        dog = watchdog(folder, cluster)
        night = measured(folder, cluster, dog, options.failures, options.minutes)
        dog.close()
        died = f"{len(night.died)} of them died in {options.minutes:g} min"
        print(f"{options.nodes:,} nodes, {options.jobs:,} jobs writing logs, {died}:")
        over = told(dog.engine.store, night, held)
    over |= month(options.days)
    return int(over)


def measured(folder: Path, cluster: BusyNight, dog: Watchdog, failures: int, minutes: float) -> Night:
    """Let the watch run: first in quiet, then jobs die, at last nobody writes any more."""
    died = {}
    runs = threading.Thread(target=dog.run)
    with Writer(folder):
        runs.start()
        time.sleep(QUIET_S)
        asked = cluster.asked
        busy_share = share_of_a_core(QUIET_S)
        looks, quiet_mb = cluster.asked - asked, memory_mb()
        for _ in range(int(failures * minutes)):
            died[cluster.die()] = SystemClock().now()
            time.sleep(60 / failures)
        time.sleep(DIAGNOSED_S)
    time.sleep(DIAGNOSED_S)
    still_share = share_of_a_core(QUIET_S)
    dog.stop()
    runs.join()
    return Night(busy_share, still_share, looks, quiet_mb, died)


def share_of_a_core(seconds: float) -> float:
    """Wait, and return how much of a core this process used meanwhile."""
    before, began = cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (cpu_s() - before) / (time.monotonic() - began)


def told(store: Store, night: Night, held_mb: float) -> bool:
    """Print the figures of the large cluster, and return whether one is over its limit."""
    opened, diagnosed = [], []
    for job, at in night.died.items():
        for incident in store.incidents(job=job, limit=1):
            opened.append((incident.opened - at).total_seconds())
            found = store.stages(incident.id).get("diagnosed")
            if found is not None:
                diagnosed.append((found - incident.opened).total_seconds())
    became = f"{len(opened)} became incidents, {len(diagnosed)} were diagnosed"
    print(f"  {became}; {night.looks} queries of jobs in {QUIET_S:g} s of quiet, one each {POLL_S:g} s")
    over = len(opened) != len(night.died) or len(diagnosed) != len(night.died)
    middle = f"median {_median(opened):.2f} s"
    over |= _line("  from the failure to the incident, worst", max(opened, default=1e9), OPEN_S, "s", middle)
    over |= _line("  from the incident to its diagnosis, worst", max(diagnosed, default=1e9), DIAGNOSED_S, "s")
    over |= _line("  the same, median", _median(diagnosed), MEDIAN_S, "s")
    over |= _line("  CPU while no job dies and all write", night.busy_share, CPU_SHARE, "", "of one core")
    over |= _line(
        "  CPU while nobody writes", night.still_share, CPU_SHARE, "", "of one core: what a look costs that finds nothing new"
    )
    over |= _line("  memory", memory_mb() - held_mb, MEMORY_MB, "MB", f"quiet: {night.quiet_mb - held_mb:.0f} MB")
    return over


def month(days: int) -> bool:
    """Let a month pass, print how memory grows, and return whether it grew too much."""
    with tempfile.TemporaryDirectory(prefix="nightshift-month-") as name:
        folder, clock = Path(name), JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))
        cluster = Forgetful(clock, folder, nodes=16)
        dies = SimulatedRun(
            steps=2_000, fails_at=900, lines=("RuntimeError: CUDA error: an illegal memory access was encountered",)
        )
        cluster.plan("llm", *[*[SimulatedRun(steps=2_000)] * 3, dies] * (days * 6), SimulatedRun(steps=2_000))
        spec = JobSpec("llm", "srun python train.py\n", nodes=2, work_dir=folder, log="job-%j.log")
        settings = Settings(state_folder=folder, store=folder / "nightshift.db", commands={"kernel_log": ("dmesg",)})
        policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=(folder / "stop",), breaker=Breaker())
        engine = build(settings, clock=clock, scheduler=cluster, transport=cluster, policy=policy)
        dog, sizes = Watchdog(engine, "watch@bench:1.1", POLL_S), []
        for day in range(days):
            for ten_minutes in range(144):
                if ten_minutes % 6 == 0:
                    cluster.submit(spec)
                clock.sleep(600)
                dog.look()
            cluster.forget(clock.now() - timedelta(days=1))
            sizes.append(memory_mb())
            if day in (0, 6, days - 1):
                print(f"  day {day + 1:2}: {sizes[-1]:6.1f} MB, {len(engine.store.incidents(limit=100_000)):,} incidents")
        dog.close()
    grown = sizes[-1] - sizes[min(6, days - 1)]
    return _line("  growth from the 7th day to the last", grown, GROWTH_MB, "MB")


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 1e9


if __name__ == "__main__":
    sys.exit(main())
