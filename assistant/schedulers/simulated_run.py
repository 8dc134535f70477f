"""What a simulated job does: its log, metrics and checkpoints as a function of time, nothing more."""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from assistant.records import JobSpec, JobState
from assistant.training.heartbeat import StepReport, iteration_line, loaded_line, saved_line, saving_line

BATCH_SIZE = 32


@dataclass(frozen=True)
class SimulatedRun:
    """One attempt of a job, told in advance."""

    steps: int = 100
    """Last step of the whole training."""
    step_s: float = 1.0
    launch_s: float = 5.0
    """Until the first step begins."""
    fails_at: int | None = None
    """The step after which it ends badly."""
    lines: tuple[str, ...] = ()
    """What the log says then, or at `says_at`."""
    state: JobState = JobState.FAILED
    exit_code: int | None = 1
    signal: int | None = None
    only_on: str | None = None
    """Fails only when this node is among its own."""
    opens_output: bool = True
    """Whether its log can be opened where it fails: else no line of its script runs, and there is no log."""
    kernel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines for the kernel logs of nodes when it fails, without time."""
    downs: str | None = None
    """The node that dies when it fails."""
    hangs_at: int | None = None
    """The step after which nothing happens any more."""
    slow_at: int | None = None
    """The step after which steps take `slow_by` times as long, until `slow_until`, on the node `slow_on` or on any."""
    slow_by: float = 5.0
    slow_until: int = 10**9
    slow_on: str | None = None
    spikes_at: int | None = None
    """The step from which the loss is high, unless its samples are skipped."""
    spikes_anyway: bool = False
    """Whether it is no matter of samples: skipping does not help."""
    nan_at: int | None = None
    """The step from which the loss is no number."""
    nan_steps: int = 1_000_000
    """For how many steps."""
    says_at: int | None = None
    """The step after which the log says the lines while training goes on."""
    own_log: Path | None = None
    """Log that its program opens by itself: the steps stand there and not in its standard output."""
    checkpoints: Path | None = None
    save_every: int = 20
    keeps: int | None = None
    """How many of its newest checkpoints it keeps: a save removes the older ones; None: all."""
    cut: tuple[int, ...] = ()
    """Steps whose checkpoints are left without a manifest."""


@dataclass
class SimulatedProgress:
    """A run in time; `advance` writes what has become true."""

    run: SimulatedRun
    spec: JobSpec
    nodes: tuple[str, ...]
    log: Path
    started: datetime
    step: int = 0
    """Last step that was made."""

    def __post_init__(self) -> None:
        environment = self.spec.environment
        source = environment.get("NIGHTSHIFT_RESUME_FROM", "")
        digits = environment.get("NIGHTSHIFT_STEP") or "".join(letter for letter in Path(source).name if letter.isdigit())
        self.first = self.step = int(digits or 0)
        self.skips = "NIGHTSHIFT_SKIP_FROM" in environment
        if self.fails and not self.run.opens_output:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.run.own_log is not None:
            self.log.touch()
            self.log = self.run.own_log
            self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{loaded_line(self.first, source)}\n" if source else "training ...\n")

    @property
    def stops_at(self) -> int:
        """The last step that this run will make."""
        ends = [self.run.steps, self.run.hangs_at if self.run.hangs_at is not None else self.run.steps]
        if self.fails:
            ends.append(self.run.fails_at or 0)
        return max(self.first, min(ends))

    @property
    def fails(self) -> bool:
        """Whether it will end badly, on these nodes."""
        run = self.run
        return run.fails_at is not None and run.fails_at >= self.first and (run.only_on is None or run.only_on in self.nodes)

    @property
    def _will_hang(self) -> bool:
        return self.run.hangs_at is not None and self.stops_at == self.run.hangs_at and not self.fails

    @property
    def hangs(self) -> bool:
        """Whether it stands still now."""
        return self._will_hang and self.step >= self.stops_at

    def time_of(self, step: int) -> datetime:
        """Return when a step is made."""
        return self.started + timedelta(seconds=self.run.launch_s + (step - self.first + self._lost_steps(step)) * self.run.step_s)

    def step_s(self, step: int) -> float:
        """Return what a step takes."""
        slow = self._lost_steps(step) > self._lost_steps(step - 1)
        return self.run.step_s * (self.run.slow_by if slow else 1)

    def _lost_steps(self, step: int) -> float:
        """Return how many steps more could have been made by then at the usual pace."""
        run = self.run
        if run.slow_at is None or (run.slow_on is not None and run.slow_on not in self.nodes):
            return 0.0
        return max(0, min(step, run.slow_until) - max(run.slow_at, self.first)) * (run.slow_by - 1)

    def advance(self, now: datetime) -> bool:
        """Write all steps up to now; return whether the run is over."""
        passed_s = (now - self.started).total_seconds() - self.run.launch_s
        reached = min(self.stops_at, self.first + math.floor(passed_s / self.run.step_s + 1e-9)) if passed_s >= 0 else self.first
        while self.run.slow_at is not None and reached > self.step and self.time_of(reached) > now:
            reached -= 1
        if reached > self.step:
            with self.log.open("a", encoding="utf-8") as file:
                for step in range(self.step + 1, reached + 1):
                    file.writelines(f"{line}\n" for line in self._lines(step))
            self.step = reached
        return passed_s >= 0 and self.step >= self.stops_at and not self._will_hang

    def loss(self, step: int) -> float:
        """Return the loss of a step: it falls, is six times higher after a spike, and may be no number."""
        if self.run.nan_at is not None and 0 <= step - self.run.nan_at < self.run.nan_steps:
            return math.nan
        usual = 0.4 + 3.0 * math.exp(-step / 60) + 0.01 * math.sin(step * 1.7)
        spiked = self.run.spikes_at is not None and step >= self.run.spikes_at and (self.run.spikes_anyway or not self.skips)
        return usual * 6 if spiked else usual

    def _lines(self, step: int) -> list[str]:
        run, loss = self.run, self.loss(step)
        report = StepReport(step, run.steps, step * BATCH_SIZE, self.step_s(step), 1e-3, BATCH_SIZE, loss, loss / 10)
        lines = [iteration_line(report, self.time_of(step)), *(run.lines if step == run.says_at else ())]
        if run.checkpoints is not None and step % run.save_every == 0:
            lines.append(saving_line(step, run.checkpoints))
            write_checkpoint(run.checkpoints, step, whole=step not in run.cut)
            if run.keeps is not None:
                for old in sorted(run.checkpoints.glob("iter_*"))[: -run.keeps]:
                    shutil.rmtree(old)
            if step not in run.cut:
                lines.append(saved_line(step, run.checkpoints))
        return lines


def process_answer(progress: SimulatedProgress, work_dir: Path, pid: int) -> str:
    """Return what the tool `job_processes` reads from a node: one process, with its working folder and its own log open."""
    folder, own = f"/proc/{pid}", progress.run.own_log
    words = ["link", f"{folder}/cwd", str(work_dir), f"{folder}/ns/mnt", "mnt:[1]"]
    if own is not None and own.exists():
        status = own.stat()
        words += [f"{folder}/fd/3", str(own), "file", f"{folder}/fd/3", f"{status.st_size} {status.st_ino} 1 -1.-000000010"]
        words += ["position", f"{folder}/fdinfo/3", f"pos:\t{status.st_size}\nflags:\t0100001\n"]
    return "\n" + "\0".join(["#nightshift processes", "", "mnt:[1]", *words, "end", ""])


def write_checkpoint(root: Path, step: int, *, whole: bool = True) -> Path:
    """Write a small checkpoint in the layout of `assistant.training`; one that is not whole has no manifest."""
    folder = root / f"iter_{step:07d}"
    folder.mkdir(parents=True, exist_ok=True)
    content = f"parameters of step {step}\n".encode()
    (folder / "model.bin").write_bytes(content if whole else b"")
    if whole:
        files = {"model.bin": {"size": len(content), "crc32": zlib.crc32(content)}}
        about = {"format": "nightshift", "version": 1, "step": step, "world": 1, "next_sample": step * BATCH_SIZE, "files": files}
        (folder / "manifest.json").write_text(json.dumps(about), encoding="utf-8")
        (root / "latest_checkpointed_iteration.txt").write_text(str(step), encoding="utf-8")
    return folder
