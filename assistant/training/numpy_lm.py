"""The trainer of `nightshift demo`: a small language model over several ranks that really learns, saves and resumes exactly.

    python -m assistant.training.numpy_lm --steps 120 --save-interval 20 --checkpoints DIR [--load DIR/iter_0000060]

Rank, world, meeting folder and own address come from RANK, WORLD_SIZE, LOCAL_RANK, NIGHTSHIFT_RENDEZVOUS and
NIGHTSHIFT_ADDRESS; alone it needs none of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from assistant.training import faults, model
from assistant.training.faults import Faults, Self, fault_folders
from assistant.training.heartbeat import (
    Heartbeat,
    StepReport,
    iteration_line,
    loaded_line,
    saved_line,
    saving_line,
    validation_line,
)
from assistant.training.model import (
    AdamW,
    Floats,
    Loader,
    SampleShare,
    StorageDown,
    TrainingPosition,
    batch,
    learning_rate,
    loss_and_gradient,
    new_parameters,
)
from assistant.training.ring import CollectiveTimeout, PeerGone, Ring

VALIDATION_SAMPLES = range(10_000_000, 10_000_064)
WATCHDOG_DUMP_S = 0.4
"""The watchdog writes its dump before it aborts, so every rank reports its own timeout before a neighbour is gone."""
THROTTLED = (
    "An error occurred (SlowDown) when calling the PutObject operation (reached max retries: 4): Please reduce your request rate."
)


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options; usage and exit on a wrong one."""
    parser = argparse.ArgumentParser(prog="numpy_lm", description="A small language model, trained for real.")
    parser.add_argument("--steps", type=int, default=120, help="optimiser steps in all")
    parser.add_argument("--save-interval", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--eval-interval", type=int, default=50, help="steps between evaluations")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of all checkpoints")
    parser.add_argument("--load", type=Path, help="checkpoint to go on from")
    parser.add_argument("--skip-samples", action="append", default=[], metavar="FROM:TO", help="samples to leave out; may repeat")
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a step over all ranks")
    parser.add_argument("--learning-rate", type=float, default=6e-3, help="its peak")
    parser.add_argument("--step-ms", type=float, default=50.0, help="shortest time of a step: a demo should be seen")
    parser.add_argument("--collective-timeout", type=float, default=4.0, metavar="S", help="seconds a collective may wait")
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args(words)
    ranges = [tuple(int(number) for number in text.split(":")) for text in options.skip_samples]
    if any(len(pair) != 2 or pair[0] > pair[1] for pair in ranges):
        parser.error("--skip-samples must be FROM:TO, the first not above the second")
    options.skip_samples = ranges
    return options


Result = TypeVar("Result")


def _print(text: str) -> None:
    """Write whole lines at once, so that ranks do not mix."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Trainer:
    """One rank of the job."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load or make the model, start the data worker, meet the other ranks."""
        self.options = options
        environment = os.environ
        self.rank, self.world = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
        self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        self.node = environment.get("SLURMD_NODENAME", "localhost")
        options.checkpoints.mkdir(parents=True, exist_ok=True)
        node_folder, job_folder = fault_folders(environment)
        self.process = Self(self.rank, self.local_rank, self.node, node_folder, job_folder, options.checkpoints)
        self.faults = Faults(self.process)
        self.heart = Heartbeat.of_environment(environment)
        self.position, self.flat, self.optimizer = self._begin()
        self.not_numbers = 0
        self.loader = self.process.loader = Loader(
            SampleShare(
                self.rank,
                self.world,
                options.batch_size,
                first=self.position.next_sample,
                steps=options.steps - self.position.step,
                skipped=options.skip_samples,
                bad=self.faults.bad_samples(),
            )
        )
        meeting = Path(environment.get("NIGHTSHIFT_RENDEZVOUS", "."))
        self.timeout_s = self.faults.collective_timeout_s(options.collective_timeout)
        address = environment.get("NIGHTSHIFT_ADDRESS", "127.0.0.1")
        self.ring = self.process.ring = Ring(self.rank, self.world, meeting, self.node, timeout_s=60.0, address=address)
        self.ring.barrier()
        self.ring.timeout_s = self.timeout_s

    def say(self, line: str) -> None:
        """Print a line once for the job."""
        if self.rank == 0:
            _print(line)

    def _begin(self) -> tuple[TrainingPosition, Floats, AdamW]:
        folder: Path | None = self.options.load
        if folder is None:
            flat = new_parameters(self.options.seed)
            return TrainingPosition(0, 0), flat, AdamW(len(flat))
        self.say(f" loading checkpoint from {folder}")
        self.heart.beat(0, "loading")
        try:
            loaded = model.load(folder)
        except StorageDown:
            raise faults.named_exception("botocore.exceptions.ClientError", THROTTLED.replace("PutObject", "GetObject")) from None
        self.say(loaded_line(loaded[0].step, folder))
        return loaded

    def run(self) -> None:
        """Train to the last step."""
        options, next_sample = self.options, self.position.next_sample
        self.say(f"training ... {len(self.flat)} parameters, {self.world} ranks, {options.steps} iterations")
        for step in range(self.position.step + 1, options.steps + 1):
            began = time.monotonic()
            self.faults.strike("step", step)
            samples = self.loader.next()
            next_sample = samples.next_sample
            loss, gradient = loss_and_gradient(self.flat, samples)
            total = self._collective(np.append(gradient, np.float32(loss)))
            gradient, loss = total[:-1] / np.float32(self.world), float(total[-1]) / self.world
            rate = learning_rate(step, options.steps, options.learning_rate)
            self.optimizer.update(self.flat, gradient, step=step, rate=rate)
            time.sleep(max(0.0, options.step_ms / 1000 - (time.monotonic() - began)))
            self.not_numbers += loss != loss
            norm, elapsed = float(np.linalg.norm(gradient.astype(np.float64))), time.monotonic() - began
            report = StepReport(step, options.steps, next_sample, elapsed, rate, options.batch_size, loss, norm, self.not_numbers)
            self.say(iteration_line(report, datetime.now(UTC)))
            self.heart.beat(step)
            if step % options.save_interval == 0 or step == options.steps:
                self._save(TrainingPosition(step, next_sample))
            if step % options.eval_interval == 0:
                self.heart.beat(step, "evaluation")
                self.say(validation_line(step, self.evaluate(step)))
        self.heart.beat(options.steps, "end")
        self.say(f"[after training is done] datetime: {datetime.now(UTC):%Y-%m-%d %H:%M:%S}")

    def _collective(self, values: Floats) -> Floats:
        return self._spoken(lambda: self.ring.all_reduce(values).astype(np.float32))

    def _spoken(self, collective: Callable[[], Result]) -> Result:
        """Run a collective; when it breaks, say it as NCCL and PyTorch do and go down as they do."""
        try:
            return collective()
        except PeerGone as error:
            warning, raised = faults.peer_gone_lines(error, node=self.node, local_rank=self.local_rank)
            _print(warning)
            raise faults.named_exception("torch.distributed.DistBackendError", raised) from None
        except CollectiveTimeout as late:
            _print("\n".join(faults.timeout_lines(late, self.rank, self.timeout_s)))
            self.loader.close()
            time.sleep(WATCHDOG_DUMP_S)
            os.abort()

    def _save(self, position: TrainingPosition) -> None:
        root: Path = self.options.checkpoints
        self.say(saving_line(position.step, root))
        self.heart.beat(position.step, "checkpoint")

        def halfway() -> None:
            self.faults.strike("save", position.step)

        try:
            self._spoken(lambda: model.save(root, position, (self.flat, self.optimizer), ring=self.ring, halfway=halfway))
        except StorageDown:
            raise faults.named_exception("botocore.exceptions.ClientError", THROTTLED) from None
        self.say(saved_line(position.step, root))

    def evaluate(self, step: int) -> float:
        """Return the loss over samples that training never sees."""
        is_broken = self.faults.strike("evaluation", step)
        total, count = 0.0, None if is_broken else len(VALIDATION_SAMPLES)
        for number in VALIDATION_SAMPLES:
            total += loss_and_gradient(self.flat, batch([number], 0, 1))[0]
        return total / count  # type: ignore[operator]  # the script bug of the demo: a count that nobody set


def main() -> None:
    """Train as the command line says."""
    faults.prefix_tracebacks(int(os.environ.get("RANK", "0")))
    trainer = Trainer(read_arguments())
    trainer.run()


if __name__ == "__main__":
    main()
