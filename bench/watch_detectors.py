"""Measure the watch's detectors on generated runs: false alarms per 1,000 job-hours, and how long each fault stays unnoticed.

    python -m bench.watch_detectors [--healthy 160] [--faulty 160]

Nobody is asked a second time here (no GPUs, no stacks): the figures are those of the logs alone. Exit status 1 when there is a
false alarm, or a fault is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median

from assistant.ports import JumpingClock
from assistant.watch.hang import HangLimits
from assistant.watch.progress import SpikeLimits
from assistant.watch.watcher import Watcher
from bench._training_runs import START, Plan, Queue, Replay, faulty, healthy


def watcher_of(queue: Queue, clock: JumpingClock) -> Watcher:
    """Return a watcher with the limits that the settings have by default."""
    from assistant.config import WatchSettings

    known = WatchSettings()
    hang, spike = HangLimits(known.hang_after_s, known.hang_factor), SpikeLimits(known.spike_patience_steps)
    return Watcher(queue, clock, hang=hang, spike=spike, since=START)


def false_alarms(plans: list[Plan]) -> list[str]:
    """Return what was said about healthy runs, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        events = Replay(Path(folder), plans, watcher_of).run()
    return [f"{event.kind} of run {event.job} ({plan.program}): {dict(event.detail)} {plan}" for event, plan in events]


def delays(plans: list[Plan]) -> tuple[dict[str, list[float]], list[str], list[str]]:
    """Return for each fault the seconds until it was noticed, what was missed, and what else was said."""
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder), plans, watcher_of)
        events = replay.run()
        at = {(event.job, str(event.kind)): seen for seen, event in replay.seen}
    found: dict[str, list[float]] = {}
    missed = []
    for number, plan in enumerate(plans):
        seen = at.get((str(number), plan.fault))
        if seen is None or not replay.began[number]:
            missed.append(f"{plan.fault} of run {number}: {plan}")
        else:
            found.setdefault(_named(plan), []).append(seen - replay.began[number][0])
    wrong = [
        f"{event.kind} in place of {plan.fault}: {dict(event.detail)} {plan}" for event, plan in events if event.kind != plan.fault
    ]
    return found, missed, wrong


def _named(plan: Plan) -> str:
    more = {"chatter": plan.chatters, "heartbeat": plan.beats and bool(plan.hangs_at), "NaN": plan.not_a_number}
    said = [name for name, holds in more.items() if holds]
    return f"{plan.fault} ({', '.join(said)})" if said else plan.fault


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=160, help="runs in which nothing is wrong")
    parser.add_argument("--faulty", type=int, default=160, help="runs with one fault each")
    options = parser.parse_args()
    well = healthy(options.healthy)
    hours = sum(plan.hours for plan in well)
    alarms = false_alarms(well)
    rate = 1000 * len(alarms) / hours
    print(f"{len(well)} healthy runs, {hours:.0f} job-hours: {len(alarms)} false alarms, {rate:.2f} per 1,000 job-hours")
    for alarm in alarms:
        print(f"  {alarm}")
    ill = faulty(options.faulty)
    found, missed, wrong = delays(ill)
    asked = Counter(plan.fault for plan in ill)
    print(f"{len(ill)} runs with a fault ({', '.join(f'{n} {kind}' for kind, n in sorted(asked.items()))}): {len(missed)} missed")
    for kind, those in sorted(found.items()):
        usual, most = median(those) / 60, max(those) / 60
        print(f"  {kind:26} noticed {len(those):3} times, after {usual:6.1f} min (median), {most:6.1f} min at most")
    for line in (*missed, *wrong):
        print(f"  {line}")
    return int(bool(alarms or missed or wrong))


if __name__ == "__main__":
    sys.exit(main())
