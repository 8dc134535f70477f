"""`AsyncCheckpointer`: checkpoints that cost the training one copy in memory, and that are whole or do not exist."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from assistant.training.checkpoints.files import CheckpointError, best
from assistant.training.checkpoints.loading import Loaded, load_newest
from assistant.training.checkpoints.protocol import Setup
from assistant.training.checkpoints.ranks import ranks_of
from assistant.training.checkpoints.saving import SaveCounters, Saver
from assistant.training.checkpoints.writer import Hand, ProcessHand, ThreadHand
from assistant.training.heartbeat import Heartbeat

WRITERS: dict[str, Callable[[Setup], Hand]] = {"process": ProcessHand, "thread": ThreadHand}


class AsyncCheckpointer:
    """Saves in the background.

    with AsyncCheckpointer("/ckpt/run7", every=200, keep=3) as checkpoints:
        loaded = checkpoints.load_latest({"model": model, "optimizer": optimizer})
        for step in range(loaded.step + 1 if loaded else 1, 10_001):
            loss = train(step)
            if checkpoints.step(step, {"model": model, "optimizer": optimizer}, loss=loss):
                break
    """

    def __init__(
        self,
        path: str | Path,
        *,
        every: int = 0,
        keep: int | None = 3,
        keep_every: int = 0,
        writer: str = "process",
        overlap: bool = False,
        patience_s: float = 600.0,
        rank: int | None = None,
        world: int | None = None,
        agree: Callable[[int], int] | None = None,
        metrics: str | Path | None = "metrics.jsonl",
        heartbeat: Heartbeat | None = None,
    ) -> None:
        """Take the folder; all ranks together.

        Args:
            path: The checkpoint folder; made when it is missing.
            every: Steps between two saves of `step`; 0: only when asked.
            keep: How many of the newest checkpoints stay, at least one; None: all.
            keep_every: Checkpoints of steps that this divides stay for ever; 0: none.
            writer: `process`, which outlives a trainer that is killed, or `thread`.
            overlap: Copy parameters and the tensors of optimisers while training goes on to the optimiser's next step, which
                waits for the copy. For states of PyTorch that hold optimisers as such; only their steps may change these tensors.
            patience_s: How long to wait for the storage, for other ranks, and for a writer that still persists for a dead run.
            rank: Ours; None: as torch.distributed, torchrun or Slurm says.
            world: How many ranks there are; None likewise.
            agree: Returns the highest number over all ranks, for jobs without torch.distributed.
            metrics: File for a line a step, written by rank 0; None: nowhere.
            heartbeat: Beats for the watchdog; None: as the environment says.

        Raises:
            FolderInUse: Another run saves there.
            CheckpointError: The folder cannot be written, or other ranks did not come.
            ValueError: An argument makes no sense.
        """
        if (keep is not None and keep < 1) or every < 0 or keep_every < 0 or writer not in WRITERS:
            raise ValueError(f"keep={keep}, every={every}, keep_every={keep_every}, writer={writer!r}: keep is 1 or more or None, "
                             f"every and keep_every are 0 or more, writer is one of {', '.join(WRITERS)}")  # fmt: skip
        self.root, self.every = Path(path).absolute(), every
        self._ranks = ranks_of(self.root, rank, world, agree)
        setup = Setup(str(self.root), self._ranks.rank, self._ranks.world, keep, keep_every, best(), patience_s)
        self._saver = Saver(self._ranks, setup, WRITERS[writer], overlap=overlap)
        leads = self._ranks.rank == 0
        self._metrics = Metrics(Path(metrics).absolute() if metrics is not None and leads else None)
        self._heartbeat = heartbeat if heartbeat is not None else Heartbeat.of_environment()
        self._controls = Controls(self.root, leads=leads)
        self._steps = False
        self._signals = Signals(self._on_signal)

    @property
    def blocked_s(self) -> float:
        """Seconds that training has waited: for saves, and with `overlap` in steps of optimisers as well."""
        return self._saver.blocked_s

    @property
    def saves(self) -> SaveCounters:
        """Counters: how many saves, how long they blocked training, how often and how long one waited for the one before."""
        return self._saver.saves

    def save(self, step: int, state: Any) -> float:
        """Take a snapshot and return; a writer persists it meanwhile. All ranks together.

        Waits first while the snapshot before is still being written: `saves.waits` counts that.

        Args:
            step: How many steps the state has seen.
            state: For PyTorch a dictionary with names of modules, optimisers, tensors and plain values; else NumPy arrays and plain
                values in dictionaries, lists and tuples.

        Returns:
            Seconds that the training was blocked.

        Raises:
            SaveFailed: An earlier save was not committed; says which. This one was not begun; the checkpointer can be used on.
            UnsupportedState: The state holds what cannot be saved; names the place.
        """
        return self._saver.save(step, state)

    def step(
        self,
        step: int,
        state: Any | Callable[[], Any],
        *,
        loss: float | None = None,
        tokens: int | None = None,
        **more: float,
    ) -> bool:
        """End a step: beat, write metrics, and save when it is time or somebody asks for it. All ranks together.

        Args:
            step: The step that is over.
            state: As for `save`, or a function that returns it.
            loss: Of this step, for metrics.jsonl.
            tokens: Of this step over all ranks, for metrics.jsonl.
            **more: Further numbers for metrics.jsonl, such as grad_norm.

        Returns:
            Whether the training is to stop; all that was asked to be saved is on the disk then.

        Raises:
            SaveFailed: An earlier save was not committed, or this one where it was waited for.
            UnsupportedState: The state holds what cannot be saved.
        """
        self._steps = True
        wish = max(self._controls.wish(step), Wish.SAVE if self.every and step % self.every == 0 else Wish.NOTHING)
        if self._ranks.agrees:
            wish = Wish(self._ranks.highest(wish))
        elif wish > Wish.SAVE or not (self.every and step % self.every == 0):
            wish = Wish.NOTHING  # the others would not come to this save
        self._heartbeat.beat(step, "checkpoint" if wish else "training")
        blocked_s = 0.0
        if wish:
            start = time.perf_counter()
            self.save(step, state() if callable(state) else state)
            if wish >= Wish.FLUSH:
                self.flush()
            self._controls.obeyed(wish, step)
            blocked_s = time.perf_counter() - start
            self._heartbeat.beat(step, "training")
        elif self._ranks.world == 1:
            self._saver.look()
        self._metrics.step(step, loss=loss, tokens=tokens, save_s=blocked_s, more=more)
        return wish is Wish.STOP

    def flush(self) -> None:
        """Wait until the last snapshot is committed.

        Raises:
            SaveFailed: It is not; says why.
        """
        self._saver.flush()

    def load_latest(self, state: Any = None, *, before: int | None = None) -> Loaded | None:
        """Load the newest checkpoint that is whole; one that is damaged is passed over, with the reason in `refused`.

        All ranks together. See `loading.load_newest` for arguments and errors.
        """
        self._saver.flush()
        return load_newest(self.root, self._ranks, state, before)

    def close(self) -> None:
        """Wait until the last snapshot is committed and end the writer.

        Raises:
            SaveFailed: The last snapshot was not committed.
        """
        self._signals.close()
        try:
            self._saver.flush()
        finally:
            self._saver.close()

    def __enter__(self) -> AsyncCheckpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        self._signals.close()
        try:
            self.close()
        except CheckpointError as problem:
            sys.stderr.write(f"checkpoint: {problem}\n")  # what the training died of counts more

    def _on_signal(self, number: int) -> bool:
        """Note a signal; without a step that will look, persist what is under way and let the signal end us."""
        if self._steps:
            self._controls.requested = max(self._controls.requested, Wish.STOP if number == signal.SIGTERM else Wish.FLUSH)
            return True
        return self._saver.drain_for_signal()


# What an operator or the scheduler asks of a running job: save now, save and stop; by files in its folder or by signals.
#
#     touch <checkpoints>/save-now         save at the next step and go on
#     touch <checkpoints>/stop             save at the next step, wait until it is on the disk, and stop
#     echo 1200 > <checkpoints>/stop       the same after step 1200
#     SIGUSR1, SIGUSR2                     save at the next step, wait until it is on the disk, and go on
#     SIGTERM                              the same, and stop
#
# The files are removed when they have been obeyed.

SAVE_NOW = "save-now"
STOP = "stop"
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
LOOK_S = 0.5
"""The files are looked for at most twice a second."""


class Wish(IntEnum):
    """What a training step ends with: nothing, a save, a save that is waited for, or the end; the greater one counts."""

    NOTHING = 0
    SAVE = 1
    FLUSH = 2
    """Save and wait until it is on the disk."""
    STOP = 3


class Controls:
    """Looks for saves and ends that the operator asks for."""

    def __init__(self, root: Path, *, leads: bool) -> None:
        """Watch a folder.

        Args:
            root: The checkpoint folder.
            leads: Whether this rank looks for the files; signals are every rank's.
        """
        self._root, self._leads, self._next = root, leads, 0.0
        self.requested = Wish.NOTHING
        """By signals since the last step."""

    def wish(self, step: int) -> Wish:
        """Return what this rank wishes after a step."""
        wish, self.requested = self.requested, Wish.NOTHING
        now = time.monotonic()
        if not self._leads or now < self._next:
            return wish
        self._next = now + LOOK_S
        for name, file_wish in ((SAVE_NOW, Wish.SAVE), (STOP, Wish.STOP)):
            at = _step_in(self._root / name)
            if at is not None and step >= at:
                wish = max(wish, file_wish)
            elif at is not None:
                self._next = now  # its step comes soon, and must not be missed
        return wish

    def obeyed(self, wish: Wish, step: int) -> None:
        """Remove the files of a wish that came true."""
        for name in ((SAVE_NOW, STOP) if wish is Wish.STOP else (SAVE_NOW,)) if self._leads else ():
            at = _step_in(self._root / name)
            if at is not None and step >= at:
                (self._root / name).unlink(missing_ok=True)


class Signals:
    """Hears the signals of schedulers; puts back what was there before."""

    def __init__(self, on_signal: Callable[[int], bool]) -> None:
        """Listen; nothing is heard outside the main thread.

        Args:
            on_signal: Called with the signal's number, in the main thread between two lines of Python; False: end as without us.
        """
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}

    def close(self) -> None:
        """Stop listening for signals."""
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._hear:
                    signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        goes_on = self._on_signal(number)
        if callable(before):
            before(number, frame)
        elif not goes_on and before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _step_in(path: Path) -> int | None:
    """Return the step that a file names, 0 when it is empty or holds anything else, None when there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else 0


# `metrics.jsonl`: one line a step, which Nightshift's watch reads where the log itself names no loss.
#
# {"step": 1200, "loss": 2.31, "tokens_per_s": 81000.0, "save_s": 0.14, "at": "2026-01-05T02:00:00+00:00"}


class Metrics:
    """Appends lines; a file that cannot be written never stops the training."""

    def __init__(self, path: Path | None) -> None:
        """Write into a file; None: nowhere."""
        self.path = path
        self._last = time.perf_counter()

    def step(self, step: int, *, loss: float | None, tokens: int | None, save_s: float, more: dict[str, float]) -> None:
        """Write the metrics of a step as one line.

        Args:
            step: The step that is over.
            loss: Its loss.
            tokens: Tokens of this step over all ranks; the speed is counted since the line before.
            save_s: How long a checkpoint has blocked this step.
            more: Further numbers, such as grad_norm.
        """
        now = time.perf_counter()
        spent, self._last = now - self._last, now
        if self.path is None:
            return
        record: dict[str, Any] = {"step": step}
        if loss is not None:
            record["loss"] = loss
        if tokens is not None and spent > 0:
            record["tokens_per_s"] = round(tokens / spent, 1)
        record |= {**more, "save_s": round(save_s, 4), "at": datetime.now(UTC).isoformat()}
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
        except OSError:
            return
