"""A job that became several times slower is noticed by our clock; what passes, what it chose and what it only prints is not."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from assistant.engine.outcomes.living_jobs import PaceNodeLook
from assistant.gate import Gate
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, Job, JobState, Outcome
from assistant.watch.hang import HangLimits
from assistant.watch.progress import SpikeLimits
from assistant.watch.slowdown import PaceSpan, SlowdownLimits, SlowdownTrack, SlowNodes, slowed_at_once
from assistant.watch.watcher import Watcher
from bench._training_runs import Queue

CASES = Path(__file__).parents[1] / "cases" / "slow_jobs"
START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
HEALTHY = tomllib.loads((CASES / "healthy.toml").read_text())["case"]
SLOW = tomllib.loads((CASES / "slow.toml").read_text())["case"]


@dataclass
class Nodes:
    """A `PaceLook` with a ready answer."""

    words: Mapping[str, str] = field(default_factory=dict)
    threaded: bool = False
    asked: int = 0

    def ask(self, job: Job, since: datetime, lasted_s: float) -> SlowNodes | None:
        self.asked += 1
        return SlowNodes(self.words)


def written(case: Mapping[str, Any]) -> Iterator[tuple[float, list[str]]]:
    """Yield the lines of a run, each time with the seconds after which they come; the slow part's begin is a time without lines."""
    at, step, every = 60.0, 0, case["every"]
    yield 1.0, ["building datasets ..."]
    for part in case["parts"]:
        yield at, list(part.get("before", ()))
        at += part.get("pause_s", 0)
        for _ in range(part["steps"]):
            step, at = step + 1, at + part["step_s"]
            if step % every:
                continue
            stamp = START + timedelta(seconds=at + part.get("stamps_by_s", 0))
            values = {"step": step, "loss": 2 + 50 / (step + 9), "more": part.get("more", ""), "ms": 1000 * part["step_s"]}
            values |= {"batch": (step - 1) % case.get("epoch_steps", 1) + 1}
            values |= {"rate": 1 / part["step_s"], "stamp": f"{stamp:%Y-%m-%d %H:%M:%S}", "clock": f"{stamp:%H:%M:%S.%f}"}
            yield at, [case["line"].format(**values)]
            if part.get("before_each"):
                yield at, list(part["before_each"])
                at += part["pause_each_s"]
    yield at + case.get("then_s", 0), []


def seen(folder: Path, case: Mapping[str, Any], nodes: Nodes) -> list[tuple[float, Event]]:
    """Return the events about the pace of a run, and after how many seconds each came."""
    clock, queue, log = JumpingClock(START), Queue(), folder / "job.log"
    log.write_text("")
    queue.shown = [Job("7", "run", "ada", JobState.RUNNING, "gpu", ("node1",), log, folder, START, START, None, None, None)]
    limits = HangLimits(silent_s=1800, factor=5)
    watcher = Watcher(queue, clock, hang=limits, spike=SpikeLimits(30), since=START, paces=nodes)
    found: list[tuple[float, Event]] = []
    lines = list(written(case))
    poll_s, passed, place = case.get("poll_s", 10), 0.0, 0
    while passed < lines[-1][0] + poll_s:
        clock.sleep(poll_s)
        passed += poll_s
        with log.open("a") as file:
            while place < len(lines) and lines[place][0] <= passed:
                file.writelines(f"{text}\n" for text in lines[place][1])
                place += 1
        found += [(passed, event) for event in watcher.look(known=()) if event.kind is EventKind.SLOW_JOB]
    return found


@pytest.mark.parametrize("case", HEALTHY, ids=[case["name"] for case in HEALTHY])
def test_nobody_is_told_of_a_job_that_is_well(tmp_path: Path, case: Mapping[str, Any]) -> None:
    assert seen(tmp_path, case, Nodes()) == []


@pytest.mark.parametrize("case", SLOW, ids=[case["name"] for case in SLOW])
def test_a_job_that_stays_several_times_slower_is_noticed_once(tmp_path: Path, case: Mapping[str, Any]) -> None:
    ((at, event),) = seen(tmp_path, case, Nodes(case.get("nodes", {})))
    first, second = case["parts"]
    began = 60 + first["steps"] * first["step_s"]
    assert at - began <= case["within_s"]
    assert abs(event.detail["ratio"] - second["step_s"] / first["step_s"]) < 0.2 * second["step_s"] / first["step_s"]
    assert abs(event.detail["from_step"] - first["steps"]) <= 3 * case["every"] + 2 * case["poll_s"] / first["step_s"]
    assert event.detail["slowed"] == case.get("nodes", {})


def test_nodes_of_a_job_that_is_well_are_not_asked(tmp_path: Path) -> None:
    nodes = Nodes({"node1": "GPU 5: slowed down by heat (hardware)"})
    asked = {}
    for case in HEALTHY[:8]:
        seen(tmp_path, case, nodes)
        asked[case["name"]], nodes.asked = nodes.asked, 0
    assert [name for name, count in asked.items() if count] == [
        "a burst of two minutes that passes",
        "bursts that come back, and the next one is as long",
    ]


def test_a_job_that_stays_at_another_pace_has_a_new_usual_one() -> None:
    track, at = SlowdownTrack(SlowdownLimits()), START
    for number in range(400):
        seconds = 0.5 if number < 10 else 2.0
        at += timedelta(seconds=10)
        track.take(PaceSpan(at, number, seconds, None))
    assert track.current(at) is None
    for number in range(400, 425):
        at += timedelta(seconds=10)
        track.take(PaceSpan(at, number, 6.0, None))
    slow = track.current(at)
    assert slow is not None
    assert (slow.usual_s, slow.worth_telling) == (2.0, False)  # 300 s are not over


def test_a_clock_that_is_set_makes_no_job_slow() -> None:
    track, at = SlowdownTrack(SlowdownLimits()), START
    for number in range(100):
        at += timedelta(seconds=10)
        track.take(PaceSpan(at, number, 0.5, None))
        if number == 50:
            track.shift(timedelta(hours=-3))
            at -= timedelta(hours=3)
    assert track.current(at) is None


class Held:
    """A gate whose answers come once they are let go."""

    def __init__(self) -> None:
        self.released, self.asked = threading.Event(), 0

    def call(self, tool: str, arguments: Mapping[str, Any], *, why: str, by: str) -> Outcome:
        self.asked += 1
        self.released.wait(20)
        words = {arguments["nodes"][0]: "GPU 1: slowed down by heat (hardware)"}
        nodes = {node: {"status": "critical"} for node in arguments["nodes"]}
        return Outcome(1, True, {"nodes": nodes, "slowed_words": words, "link_words": {}}, "", START)


def test_of_many_slow_jobs_a_few_are_asked_at_once_and_the_watch_waits_for_none() -> None:
    clock, gate = JumpingClock(START), Held()
    look = PaceNodeLook(cast("Gate", gate), clock, threaded=True)
    jobs = [
        Job(str(n), "r", "ada", JobState.RUNNING, "gpu", (f"node{n}",), None, None, None, START, None, None, None)
        for n in range(40)
    ]
    assert [look.ask(job, START, 100) for job in jobs] == [None] * 40
    assert gate.asked <= 4
    clock.sleep(200)
    assert look.ask(jobs[0], START, 300) == SlowNodes(unanswered="its nodes did not answer in time")
    gate.released.set()
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("look at the pace")]:
        thread.join(20)
    answer = look.ask(jobs[0], START, 300)
    assert answer is not None
    assert answer.words_by_node == {"node0": "GPU 1: slowed down by heat (hardware)"}


def test_nodes_of_a_job_that_stays_slow_are_asked_a_few_times_and_no_more() -> None:
    clock, gate = JumpingClock(START), Held()
    gate.released.set()
    look = PaceNodeLook(cast("Gate", gate), clock)
    job = Job("7", "r", "ada", JobState.RUNNING, "gpu", ("node1",), None, None, None, START, None, None, None)
    for _ in range(1000):
        clock.sleep(30)
        assert look.ask(job, START, 100) is not None
    assert gate.asked == 3
    huge = replace(job, id="8", nodes=tuple(f"node{n}" for n in range(4000)))
    assert look.ask(huge, START, 100) == SlowNodes(unanswered="4000 nodes were not asked")
    assert gate.asked == 3


def test_jobs_that_slowed_down_together_are_named_for_one_another_only_on_other_nodes() -> None:
    jobs = [
        Job(str(n), "r", "ada", JobState.RUNNING, "gpu", (f"node{n // 2}",), None, None, None, START, None, None, None)
        for n in range(6)
    ]
    slow = [(job, START + timedelta(seconds=60 * (n == 3) + 900 * (n == 5))) for n, job in enumerate(jobs)]
    assert slowed_at_once(jobs[0], START, slow) == ["2", "3", "4"]
