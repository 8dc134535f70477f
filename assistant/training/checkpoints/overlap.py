"""Copy what only an optimiser's step changes while training goes on to the next one, which then waits for the copy.

Parameters and the optimiser's own tensors are such; all else is copied before `save` returns. A tensor that was changed
meanwhile in another way gives itself away by its version, and the snapshot is thrown away with an error.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from assistant.training.checkpoints.errors import SaveFailed

Pair = tuple[torch.Tensor, torch.Tensor]


def storages_of(optimizers: Sequence[torch.optim.Optimizer]) -> set[int]:
    """Return the addresses of the memory that only these optimisers' steps change."""
    tensors = [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
    tensors += [
        value for optimizer in optimizers for own in optimizer.state.values() for value in own.values() if torch.is_tensor(value)
    ]
    return {_local(tensor).untyped_storage().data_ptr() for tensor in tensors}


class BackgroundCopy:
    """One copy that may be under way."""

    def __init__(self) -> None:
        """Begin without a copy."""
        self.waited_s = 0.0
        """How long steps of optimisers have waited."""
        self._thread: threading.Thread | None = None
        self._problem: Exception | None = None
        self._waits_since: float | None = None
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def is_busy(self) -> bool:
        """Whether something is being copied."""
        return self._thread is not None and self._thread.is_alive()

    def hook(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Let their steps wait from now on."""
        for optimizer in optimizers:
            if optimizer not in self._hooked:
                self._hooked.add(optimizer)
                optimizer.register_step_pre_hook(lambda *_: self.wait())

    def start(self, step: int, pairs: Sequence[Pair], on_end: Callable[[float], None]) -> None:
        """Copy in a thread.

        Args:
            step: Of the snapshot.
            pairs: Where to, and what.
            on_end: Called in the thread with the seconds that a step of an optimiser has waited for it.
        """
        versions = [data._version for _, data in pairs]
        streams = {data.device: torch.cuda.current_stream(data.device) for _, data in pairs if data.is_cuda}

        def run() -> None:
            try:
                _copy(pairs, streams)
                changed = sum(data._version != version for (_, data), version in zip(pairs, versions, strict=True))
                if changed:
                    raise SaveFailed(
                        step, f"{changed} tensors were changed by something else than an optimiser's step: save with overlap=False"
                    )
                start = self._waits_since
                on_end(time.perf_counter() - start if start is not None else 0.0)
            except Exception as error:  # noqa: BLE001 - raised by the next call of the trainer
                self._problem = error

        self._thread = threading.Thread(target=run, name="checkpoint-copy", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is copied."""
        if self._thread is None:
            return
        self._waits_since = start = time.perf_counter()
        self._thread.join()
        self._thread, self._waits_since = None, None
        self.waited_s += time.perf_counter() - start

    def take_problem(self) -> Exception | None:
        """Return what went wrong since the last call."""
        problem, self._problem = self._problem, None
        return problem


def _copy(pairs: Sequence[Pair], streams: dict[Any, Any]) -> None:
    own = {device: torch.cuda.Stream(device) for device in streams}
    for device, stream in own.items():
        stream.wait_stream(streams[device])
    with torch.no_grad():
        for view, data in pairs:
            if data.device in own:
                with torch.cuda.stream(own[data.device]):
                    view.copy_(data, non_blocking=True)
            else:
                view.copy_(data)
    for stream in own.values():
        stream.synchronize()


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
