"""One save after the other: wait for the last, see whether the state is laid out as before, copy, hand over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from assistant.training.checkpoints.files import CheckpointError, SaveFailed, UnsupportedState
from assistant.training.checkpoints.protocol import HostBuffer, Layout, Order, SaveSummary, Setup
from assistant.training.checkpoints.ranks import Ranks
from assistant.training.checkpoints.writer import Hand

if TYPE_CHECKING:
    from assistant.training.checkpoints.tensors import BackgroundCopy

UNCHANGED, CHANGED, UNSUPPORTED, FAILED = range(4)
"""What the ranks find before a save; the worst counts for all."""


class Saver:
    """Takes snapshots of one rank."""

    def __init__(self, ranks: Ranks, setup: Setup, hand: Callable[[Setup], Hand], *, overlap: bool = False) -> None:
        """Start the writer and agree on the run.

        Raises:
            CheckpointError: The folder cannot be had, or other ranks did not come.
        """
        self._ranks, self._setup, self._overlap = ranks, setup, overlap
        self._copying: BackgroundCopy | None = None
        problem: CheckpointError | None = None
        try:
            self._hand: Hand | None = hand(setup)
        except CheckpointError as error:
            problem, self._hand = error, None
        try:
            self._run = ranks.run(str(problem or ""), setup.patience_s)
        except CheckpointError as error:
            problem = problem or error
        if problem is not None:
            self.close()
            raise problem
        self._sketch: Sketch | None = None
        self._buffer: HostBuffer | None = None
        self._under_way: int | None = None
        self._number, self._busy, self._signalled = 0, False, False
        self.saves = SaveCounters()

    def save(self, step: int, state: Any) -> float:
        """Take a snapshot; see `AsyncCheckpointer.save`."""
        start = time.perf_counter()
        self._busy = True
        try:
            problem, waited_s = self._settle()
            finding = FAILED if problem else UNCHANGED
            if problem is None:
                problem, finding = self._inspect(state)
            agreed = self._ranks.highest(finding)
            if problem is not None:
                raise problem
            if agreed > CHANGED:
                raise SaveFailed(step, "another rank could not save; its log says why")
            self._number += 1
            attempt = f"{self._run}-{self._number}"
            if agreed == CHANGED:
                self._lay_out()
            fresh = self._sketch.copy(attempt)  # type: ignore[union-attr]
            blocked_s = time.perf_counter() - start
            cost = {"blocked_s": round(blocked_s, 4), "wait_s": round(waited_s, 4)}
            self._hand_over(Order(step, attempt, fresh, cost))
            self._under_way = step
        finally:
            self._busy = False
        blocked_s = time.perf_counter() - start
        self.saves.count += 1
        self.saves.blocked_s += blocked_s
        self.saves.last_blocked_s = blocked_s
        if self._signalled:
            self.drain_for_signal()
        return blocked_s

    def _hand_over(self, order: Order) -> None:
        """Give an order to the writer, at once or when what is copied beside the training is copied."""
        later, optimizers = getattr(self._sketch, "later", ()), getattr(self._sketch, "optimizers", ())
        if not later:
            self._writer().submit(order)
            return
        from assistant.training.checkpoints.tensors import BackgroundCopy

        if self._copying is None:
            self._copying = BackgroundCopy()
        blocked_s, writer = order.save["blocked_s"], self._writer()

        def submit(waited_s: float) -> None:
            writer.submit(replace(order, save={**order.save, "blocked_s": round(blocked_s + waited_s, 4)}))

        self._copying.hook(optimizers)
        self._copying.start(order.step, later, submit)

    def _await_copy(self) -> None:
        """Wait until nothing is copied beside the training.

        Raises:
            SaveFailed: The snapshot is worth nothing; says why.
        """
        if self._copying is None:
            return
        self._copying.wait()
        problem, step = self._copying.take_problem(), self._under_way
        if problem is not None:
            self._under_way = None
            if isinstance(problem, SaveFailed):
                raise problem
            raise SaveFailed(step if step is not None else -1, f"it could not be copied: {problem}") from problem

    @property
    def blocked_s(self) -> float:
        """Seconds that training has waited, by saves and by steps of optimisers."""
        return self.saves.blocked_s + (self._copying.waited_s if self._copying is not None else 0.0)

    def look(self) -> None:
        """Raise what became of the save under way, where that is known.

        Raises:
            SaveFailed: It was not committed.
        """
        if self._under_way is not None and (self._copying is None or not self._copying.is_busy):
            self._await_copy()
            self._take(self._wait(0.0), missing_is_fine=True)

    def flush(self) -> None:
        """Wait until nothing is under way.

        Raises:
            SaveFailed: It was not committed.
        """
        problem, _ = self._settle(counts=False)
        if problem is not None:
            raise problem

    def drain_for_signal(self) -> bool:
        """Wait for what is under way inside a signal's handler; True: a save was being begun, which goes on and then ends us."""
        if self._busy:
            self._signalled = True
            return True
        try:
            self.flush()
        except CheckpointError as error:
            sys.stderr.write(f"checkpoint: {error}\n")
        return False

    def close(self) -> None:
        """End the writer after what is under way."""
        if self._copying is not None:
            self._copying.wait()
        if self._hand is not None:
            self._hand.close()
            self._hand = None
        if getattr(self, "_sketch", None) is not None and self._sketch is not None:
            self._sketch.release()
        if getattr(self, "_buffer", None) is not None and self._buffer is not None:
            self._buffer.close()
            self._buffer = None

    def _settle(self, *, counts: bool = True) -> tuple[CheckpointError | None, float]:
        """Wait for the save under way; return its error, and how long that took."""
        if self._under_way is None:
            return None, 0.0
        start = time.perf_counter()
        try:
            self._await_copy()
            summary = self._wait(0.0)
            if summary is None:
                self.saves.waits += counts
                summary = self._wait(self._setup.patience_s)
            self._take(summary)
        except CheckpointError as error:
            return error, time.perf_counter() - start
        finally:
            waited_s = time.perf_counter() - start
            self.saves.waited_s += waited_s if counts else 0.0
        return None, waited_s

    def _wait(self, timeout_s: float) -> SaveSummary | None:
        try:
            return self._writer().wait(timeout_s)
        except CheckpointError as error:
            step, self._under_way = self._under_way, None
            raise SaveFailed(step if step is not None else -1, str(error)) from error

    def _take(self, summary: SaveSummary | None, *, missing_is_fine: bool = False) -> None:
        step = self._under_way
        if summary is None:
            if missing_is_fine:
                return
            raise SaveFailed(
                step if step is not None else -1,
                f"it is still being written after {self._setup.patience_s:.0f} seconds: the storage does not answer",
            )
        self._under_way = None
        if summary.error:
            raise SaveFailed(summary.step, summary.error)
        self.saves.committed += 1
        self.saves.persist_s, self.saves.size_bytes = summary.persist_s, summary.size_bytes

    def _inspect(self, state: Any) -> tuple[CheckpointError | None, int]:
        try:
            sketch = sketch_for(state, self._sketch, self._ranks, overlap=self._overlap)
            changed = sketch.inspect(state)
        except CheckpointError as error:
            return error, UNSUPPORTED
        changed = changed or sketch is not self._sketch or self._buffer is None
        if sketch is not self._sketch and self._sketch is not None:
            self._sketch.release()
        self._sketch = sketch
        return None, CHANGED if changed else UNCHANGED

    def _lay_out(self) -> None:
        assert self._sketch is not None
        layout = self._sketch.lay_out()
        if self._buffer is None or self._buffer.size < self._sketch.size_bytes:
            self._sketch.release()
            old, self._buffer = self._buffer, HostBuffer(self._sketch.size_bytes)
            if old is not None:
                old.close()
        self._sketch.bind(self._buffer)
        self._writer().lay_out(layout, self._buffer)

    def _writer(self) -> Hand:
        if self._hand is None:
            raise CheckpointError("this checkpointer is closed")
        return self._hand


# Which kind of sketch a state needs: tensors go through DCP, arrays do not.


class Sketch(Protocol):
    """How the state of one rank lies in the host buffer; `arrays` and `tensors` have one each."""

    kind: str
    size_bytes: int

    def inspect(self, state: object) -> bool:
        """Take a state; True when it is not laid out as the one before."""

    def lay_out(self) -> Layout:
        """Place the last state."""

    def bind(self, buffer: HostBuffer) -> None:
        """Make ready to copy into a buffer."""

    def copy(self, attempt: str) -> dict[str, bytes]:
        """Copy the last state into the buffer and return what is saved beside it."""

    def release(self) -> None:
        """Drop the views of the buffer."""


def sketch_for(state: Any, before: Sketch | None, ranks: Ranks, *, overlap: bool) -> Sketch:
    """Return the sketch for a state: the one from before where it is of the same kind.

    Raises:
        UnsupportedState: It holds tensors, and its ranks cannot plan together.
    """
    kind = "dcp" if "torch" in sys.modules and _has_tensors(state) else "arrays"
    if before is not None and before.kind == kind:
        return before
    if kind == "arrays":
        from assistant.training.checkpoints.arrays import ArraySketch

        return ArraySketch(ranks.rank)
    from assistant.training.checkpoints.ranks import ByTorch
    from assistant.training.checkpoints.tensors import TensorSketch

    if ranks.world > 1 and not isinstance(ranks, ByTorch):
        raise UnsupportedState("tensors of several ranks need torch.distributed: call init_process_group first")
    return TensorSketch(ranks.rank, ranks if isinstance(ranks, ByTorch) else None, overlaps=overlap)


def _has_tensors(value: object) -> bool:
    """Tell whether PyTorch has to save a state: it holds tensors, or something with a state_dict."""
    import torch

    if isinstance(value, torch.Tensor) or hasattr(value, "state_dict"):
        return True
    if isinstance(value, dict):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_tensors, value[:64]))


# What a run's saves have cost so far.


@dataclass
class SaveCounters:
    """Counters of a run; times in seconds."""

    count: int = 0
    """Snapshots taken."""
    committed: int = 0
    blocked_s: float = 0.0
    """Of the training, over all saves."""
    last_blocked_s: float = 0.0
    waits: int = 0
    """Saves that came while the one before was still being written: save less often, or on a faster disk."""
    waited_s: float = 0.0
    """Part of `blocked_s`."""
    persist_s: float = 0.0
    """Of the last one that was committed, in the background."""
    size_bytes: int = 0
    """Of the last one that was committed, this rank's part."""
