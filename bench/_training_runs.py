"""Training runs as their logs show them, minute by minute: healthy ones with all that looks like trouble, and ones with one fault.

Eight frameworks' ways to log; slow first steps, silent and announced evaluations, checkpoint stalls, bursts of lines, spikes that
come back, batches that grow. Drawn by a seed, so that the same number gives the same run.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.ports import JumpingClock
from assistant.records import Event, Job, JobSpec, JobState, Node
from assistant.rendering import method_lines
from assistant.training.heartbeat import StepReport, iteration_line, saved_line, saving_line, validation_line
from assistant.watch.watcher import Watcher

BEAT = "\0"
"""Begins a line that is not for the log: step and phase for the heartbeat."""
START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    """One run, told in advance. Seconds and steps."""

    program: str
    step_s: float
    log_every: int
    start_s: float
    first_step_s: float
    hours: float
    eval_every: int = 0
    eval_s: float = 0.0
    eval_told: bool = True
    save_every: int = 0
    save_s: float = 0.0
    noise: float = 0.02
    """Of the loss, and of step times."""
    beats: bool = False
    """Whether it has a heartbeat."""
    burst_every: int = 0
    """Steps between bursts of lines that say nothing."""
    spikes_back: int = 0
    """Step of a spike that comes back within `back_steps`."""
    back_steps: int = 150
    ramp: bool = False
    """The batch doubles twice, and with it the time of a step."""
    other_data: int = 0
    """Step from which other data lifts the loss by a tenth."""
    hangs_at: int = 0
    chatters: bool = False
    """Once it hangs, the log goes on to say the same."""
    spikes_at: int = 0
    height: float = 3.0
    not_a_number: bool = False
    slow_at: int = 0
    slow_by: float = 2.0
    no_saves_after: int = 0

    @property
    def fault(self) -> str:
        """Which event should come; empty for a healthy run."""
        told = {
            "hang": self.hangs_at,
            "loss_spike": self.spikes_at,
            "slow_job": self.slow_at,
            "checkpoints_late": self.no_saves_after,
        }
        return next((name for name, at in told.items() if at), "")

    @property
    def fault_step(self) -> int:
        """The step at which it begins."""
        return self.hangs_at or self.spikes_at or self.slow_at or self.no_saves_after


Words = Callable[[Plan, int, float, float, float, datetime], list[str]]


def _megatron(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    batch = _batch(plan, step)
    return [iteration_line(StepReport(step, 500_000, step * batch, spent, 1e-4, batch, loss, norm), at)]


def _deepspeed(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    clock = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}]"
    return [
        f"{clock} [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]",
        f"steps: {step} loss: {loss:.4f} iter time (s): {spent:.3f} samples/sec: {32 / spent:.3f}",
    ]


def _internevo(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    clock = f"{at:%Y-%m-%d %H:%M:%S},486"
    return [
        f"{clock}\tINFO trainer.py:64 in record_current_batch_training_metrics -- tflops=181.2 step={step} loss={loss:.6f} tgs "
        f"(tokens/gpu/second)=3730.93 lr=1.333e-05 loss_scale=65536.0 grad_norm={{'0_default': {norm:.5f}}} micro_num=4 "
        f"fwd_bwd_time={spent:.3f}"
    ]


def _transformers(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    share = min(99, step * 100 // 50_000)
    return [
        f"{{'loss': {loss:.4f}, 'grad_norm': {norm:.4f}, 'learning_rate': 1e-05, 'epoch': {step / 9000:.2f}}}",
        f" {share}%|#         | {step}/50000 [1:00:00<20:00:00,  {spent:.2f}s/it]",
    ]


def _nemo(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    return [
        f"Training epoch 0, iteration {step}/99999 | lr: 1.2e-05 | global_batch_size: {_batch(plan, step)} | global_step: {step} | "
        f"reduced_train_loss: {loss:.4f} | train_step_timing in s: {spent:.2f} | consumed_samples: {step * 512}"
    ]


def _torchtitan(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    clock = f"{at:%Y-%m-%d %H:%M:%S},354"
    line = (
        f"[titan] {clock} - root - INFO - step: {step:5}  loss: {loss:8.4f}  grad_norm: {norm:8.4f}  memory: 58.21GiB  tps: 3,635"
    )
    return [f"[rank{rank}]:{line}" for rank in range(2)]


def _lightning(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    return [f"Epoch 0:  {min(99, step // 500)}%|x| {step}/50000 [30:30<16:00,  {spent:.2f}s/it, loss={loss:.3f}, v_num=3]"]


def _json_lines(plan: Plan, step: int, loss: float, norm: float, spent: float, at: datetime) -> list[str]:
    return [json.dumps({"step": step, "loss": round(loss, 5), "grad_norm": round(norm, 4), "lr": 1e-4})]


PROGRAMS: dict[str, Words] = {
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "internevo": _internevo,
    "transformers": _transformers,
    "nemo": _nemo,
    "torchtitan": _torchtitan,
    "lightning": _lightning,
    "metrics.jsonl": _json_lines,
}
_EVALUATES = {
    "megatron": "Evaluating on 32 samples",
    "transformers": "***** Running Evaluation *****",
    "lightning": "Validation DataLoader 0:   0%|          | 0/40 [00:00<?, ?it/s]",
}
_START = (
    "Loading cuda/12.4",
    "using world size: 64, data-parallel size: 8",
    "NCCL version 2.21.5+cuda12.4",
    "building datasets ...",
)


def _batch(plan: Plan, step: int) -> int:
    return 256 * (1 if not plan.ramp else 1 if step < 600 else 2 if step < 1200 else 4)


def told(plan: Plan, seed: int, began: list[float]) -> Iterator[tuple[float, list[str]]]:
    """Yield what the log says and after how many seconds, in order; the run goes on for `plan.hours`, or hangs.

    Args:
        plan: The run.
        seed: Of its noise.
        began: Gets the second at which the fault begins, once it has.
    """
    rng = random.Random(f"{plan} {seed}")
    words, at, end = PROGRAMS[plan.program], 0.0, plan.hours * 3600
    for place, line in enumerate(_START):
        yield plan.start_s * place / len(_START), [line]
    at, step = plan.start_s + plan.first_step_s, 0
    since = at
    while at < end:
        step += 1
        spent = plan.step_s * (1 + plan.noise * abs(rng.gauss(0, 1))) * _batch(plan, step) / 256
        spent *= 8 if rng.random() < 0.002 else 1
        spent *= plan.slow_by if plan.slow_at and step >= plan.slow_at else 1
        at += spent
        loss, norm = _loss(plan, step, rng), _norm(plan, step, rng)
        if plan.fault and step > plan.fault_step and not began:
            began.append(at - spent)
        if plan.hangs_at and step > plan.hangs_at:
            yield from _after_the_end(plan, at, end)
            return
        if plan.beats:
            yield at, [f"{BEAT}{step} training"]
        if step % plan.log_every == 0:
            yield at, words(plan, step, loss, norm, (at - since) / plan.log_every, START + timedelta(seconds=at))
            since = at
        if plan.save_every and step % plan.save_every == 0 and not (plan.no_saves_after and step > plan.no_saves_after):
            yield at, [saving_line(step, "/ckpt/run"), *([f"{BEAT}{step} checkpoint"] if plan.beats else [])]
            at += plan.save_s * rng.uniform(0.7, 1.5)
            yield at, [saved_line(step, "/ckpt/run")]
            since = at
        if plan.eval_every and step % plan.eval_every == 0:
            if plan.eval_told:
                yield at, [_EVALUATES.get(plan.program, "Evaluating ...")]
            yield at, [f"{BEAT}{step} evaluation"] if plan.beats else []
            at += plan.eval_s * rng.uniform(0.8, 1.4)
            yield at, [validation_line(step, loss)]
            since = at
        if plan.burst_every and step % plan.burst_every == 0:
            yield at, [f"[W Warning {n}] tensor {n} is not contiguous, copying" for n in range(2_000)]


def _loss(plan: Plan, step: int, rng: random.Random) -> float:
    usual = 1.8 + 6 * math.exp(-step / 300) + 2 * math.exp(-step / 6000)
    usual *= 1.1 if plan.other_data and step >= plan.other_data else 1
    if plan.spikes_back and plan.spikes_back <= step < plan.spikes_back + 4 * plan.back_steps:
        usual *= 1 + 1.5 * math.exp(-3 * (step - plan.spikes_back) / plan.back_steps)
    if plan.spikes_at and step >= plan.spikes_at:
        usual = math.nan if plan.not_a_number else usual * min(plan.height, 1 + (step - plan.spikes_at + 1) * plan.height / 10)
    return usual * (1 + plan.noise * rng.gauss(0, 1))


def _norm(plan: Plan, step: int, rng: random.Random) -> float:
    up = plan.spikes_at and step >= plan.spikes_at
    return abs(0.4 * (1 + 0.2 * rng.gauss(0, 1))) * (20 if up else 1)


def _after_the_end(plan: Plan, at: float, end: float) -> Iterator[tuple[float, list[str]]]:
    while plan.chatters and at < end:
        at += 30
        yield at, ["[rank0]:[W ProcessGroupNCCL.cpp:1538] Process group watchdog heartbeat: waiting for a collective to end"]


def healthy(count: int, seed: int = 1) -> list[Plan]:
    """Return runs in which nothing is wrong and much looks as if."""
    rng = random.Random(seed)
    plans = []
    for number in range(count):
        log_every = rng.choice((1, 1, 1, 10))
        step_s = rng.choice((0.8, 2.0, 6.0, 20.0))
        plans.append(
            Plan(
                program=list(PROGRAMS)[number % len(PROGRAMS)],
                step_s=step_s,
                log_every=log_every,
                start_s=rng.choice((30.0, 240.0, 900.0)),
                first_step_s=rng.choice((20.0, 300.0, 1500.0)),
                hours=rng.choice((3.0, 6.0, 10.0)),
                eval_every=rng.choice((0, 500, 1000)),
                eval_s=rng.choice((20.0, 240.0, 900.0)),
                eval_told=rng.random() < 0.6,
                save_every=rng.choice((200, 500, 1000)),
                save_s=rng.choice((5.0, 60.0, 420.0)),
                noise=rng.choice((0.01, 0.05)),
                beats=rng.random() < 0.25,
                burst_every=rng.choice((0, 700)),
                spikes_back=rng.choice((0, 400, 900)),
                back_steps=rng.choice((20, 150)) * log_every,
                ramp=list(PROGRAMS)[number % len(PROGRAMS)] in ("megatron", "nemo") and rng.random() < 0.5,
                other_data=rng.choice((0, 800)),
            )
        )
    return plans


def faulty(count: int, seed: int = 2) -> list[Plan]:
    """Return runs with one fault each: the healthy ones, and then it happens."""
    rng = random.Random(seed)
    plans = []
    for number, plan in enumerate(healthy(count, seed)):
        calm_log = plan.log_every
        calm = replace(
            plan, spikes_back=0, other_data=0, ramp=False, step_s=min(plan.step_s, 6.0), hours=10.0 if calm_log == 1 else 20.0
        )
        at = 200 * calm.log_every + rng.randrange(300) * calm.log_every
        fault = number // len(PROGRAMS) % 5
        if fault == 0:
            calm = replace(calm, hangs_at=at)
        elif fault == 1:
            calm = replace(calm, hangs_at=at, chatters=True)
        elif fault == 2:
            calm = replace(calm, spikes_at=at, not_a_number=rng.random() < 0.3, height=rng.choice((1.5, 3.0)))
        elif fault == 3:
            calm = replace(calm, slow_at=at, slow_by=rng.choice((1.6, 2.5)))
        else:
            calm = replace(calm, save_every=50 * calm.log_every, no_saves_after=200 * calm.log_every)
        plans.append(calm)
    return plans


@dataclass
class Queue:
    """A scheduler that shows running jobs and does nothing else."""

    shown: list[Job] = field(default_factory=list)
    name: str = "queue"

    def jobs(self) -> Sequence[Job]:
        """Return them."""
        return list(self.shown)

    def job(self, job_id: str) -> Job:
        """Return one."""
        return next(job for job in self.shown if job.id == job_id)

    def nodes(self) -> Sequence[Node]:
        """Return none."""
        return []

    def command_lines(self, method: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words."""
        return method_lines(method, arguments, named)

    def submit(self, spec: JobSpec) -> str:
        """Refuse."""
        raise ToolError("nothing is submitted here")

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return those of a user."""
        return [job for job in self.shown if job.user == user]

    def release(self, job_id: str) -> None:
        """Refuse."""
        raise ToolError("nothing is released here")

    def withdraw(self, job_id: str) -> None:
        """Refuse."""
        raise ToolError("nothing is withdrawn here")

    def cancel(self, job_id: str) -> None:
        """Refuse."""
        raise ToolError("nothing is cancelled here")

    def cordon(self, node: str, reason: str) -> None:
        """Refuse."""
        raise ToolError("nothing is cordoned here")

    def uncordon(self, node: str) -> None:
        """Refuse."""
        raise ToolError("nothing is uncordoned here")


@dataclass
class Replay:
    """Runs that a watcher sees side by side."""

    folder: Path
    plans: Sequence[Plan]
    watcher_of: Callable[[Queue, JumpingClock], Watcher]
    poll_s: float = 30.0
    began: list[list[float]] = field(default_factory=list)
    """After how many seconds each run's fault began; empty for one without."""
    seen: list[tuple[float, Event]] = field(default_factory=list)
    """Every event, and after how many seconds it came."""

    def run(self) -> list[tuple[Event, Plan]]:
        """Return every event with the run it is about."""
        clock, queue = JumpingClock(START), Queue()
        self.began = [[] for _ in self.plans]
        logs = [told(plan, number, self.began[number]) for number, plan in enumerate(self.plans)]
        ahead = [next(log, None) for log in logs]
        for number, plan in enumerate(self.plans):
            queue.shown.append(self._job(number, plan))
        watcher = self.watcher_of(queue, clock)
        for _ in range(int(max(plan.hours for plan in self.plans) * 3600 / self.poll_s)):
            clock.sleep(self.poll_s)
            passed = (clock.now() - START).total_seconds()
            for number, log in enumerate(logs):
                lines: list[str] = []
                while (one := ahead[number]) is not None and one[0] <= passed:
                    lines += one[1]
                    ahead[number] = next(log, None)
                if lines:
                    self._write(number, lines)
            over = [str(n) for n, plan in enumerate(self.plans) if plan.hours * 3600 <= passed]
            queue.shown = [replace(job, state=JobState.COMPLETED) if job.id in over else job for job in queue.shown]
            self.seen += [(passed, event) for event in watcher.look(known=())]
        return [(event, self.plans[int(event.job or 0)]) for _, event in self.seen]

    def _job(self, number: int, plan: Plan) -> Job:
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "job.log"
        log.write_text("")
        name, nodes = f"run-{'abcdefghij'[number % 10]}{number}x", (f"node{number}",)
        times = (START, START, None)
        return Job(str(number), name, "alice", JobState.RUNNING, "gpu", nodes, log, folder, *times, None, None)

    def _write(self, number: int, lines: Sequence[str]) -> None:
        plan = self.plans[number]
        beats, lines = [line for line in lines if line.startswith(BEAT)], [line for line in lines if not line.startswith(BEAT)]
        if beats:
            step, phase = beats[-1].removeprefix(BEAT).split()
            said = {"job": str(number), "attempt": 0, "step": int(step), "phase": phase, "at": step}
            (self.folder / str(number) / f"heartbeat-{number}.json").write_text(json.dumps(said))
        named = [line for line in lines if plan.program == "metrics.jsonl" and line.startswith("{")]
        folder = self.folder / str(number)
        for name, those in (
            ("metrics.jsonl", named),
            ("job.log", [line for line in lines if line not in named] if named else lines),
        ):
            if those:
                with (folder / name).open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in those)
