"""States of PyTorch: planned, laid out and loaded by torch.distributed.checkpoint, written by us.

The plan (which rank writes which part of which tensor) is made once by DCP's planner and kept while names, shapes and placements
stay the same; so are the bytes that torch.save puts around each tensor. A save then is one copy of each tensor into host memory,
pinned where CUDA is, and the files on disk are those that DCP's own writer makes: `torch.distributed.checkpoint.load` reads them,
on any number of ranks. Modules, optimisers and whatever else has a state_dict are taken as they are.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.stateful import Stateful

from assistant.training.checkpoints.errors import UnsupportedState
from assistant.training.checkpoints.overlap import storages_of
from assistant.training.checkpoints.protocol import HostBuffer, Layout
from assistant.training.checkpoints.ranks import ByTorch
from assistant.training.checkpoints.segments import ByteSpan
from assistant.training.checkpoints.torch_state import STRUCTURE_KEY, check_tensor, check_value, pickled, structure_text, wrapping

KIND = "dcp"
METADATA = ".metadata"
ALIGNED = 64


def plain_state(state: object) -> dict[str, Any]:
    """Return a state with the state_dict of whatever has one.

    Raises:
        UnsupportedState: It is no dictionary with names.
    """
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise UnsupportedState("the state must be a dictionary with names, such as {'model': model, 'optimizer': optimizer}")
    plain = {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state.items()}
    text = structure_text(plain)
    return {**plain, STRUCTURE_KEY: text} if text else plain


def shards_of(rank: int) -> str:
    """Return the name of the file with a rank's tensors, as DCP names it."""
    return f"__{rank}_0.distcp"


VALUES = "__0_1.distcp"
"""What is no tensor, as rank 0 has it."""


class TensorSketch:
    """How the state of one rank lies in the host buffer."""

    kind = KIND

    def __init__(self, rank: int, ranks: ByTorch | None, *, overlaps: bool = False) -> None:
        """Know the others; None for a job of one process."""
        self._rank, self._ranks, self._overlaps = rank, ranks, overlaps
        self._optimizers: list[torch.optim.Optimizer] = []
        self.later: list[tuple[torch.Tensor, torch.Tensor]] = []
        """What `copy` has left to be copied until an optimiser makes its next step."""
        self._planner = DefaultSavePlanner()
        self._signature: list[tuple[object, ...]] | None = None
        self._items: list[WriteItem] = []
        self._values: list[WriteItem] = []
        self._offsets: list[int] = []
        self._views: list[torch.Tensor | None] = []
        self._metadata: Metadata | None = None
        self._lengths: list[int] = []
        self.size_bytes = 0

    def inspect(self, state: Any) -> bool:
        """Take a state; True when it is not laid out as the one before.

        Raises:
            UnsupportedState: It holds what cannot be saved; names the place.
        """
        self._planner.set_up_planner(plain_state(state), is_coordinator=self._rank == 0)
        self._optimizers = [value for value in state.values() if isinstance(value, torch.optim.Optimizer)] if self._overlaps else []
        signature = [
            check_tensor(name, value) if isinstance(value, torch.Tensor) else check_value(name, value)
            for name, value in self._planner.state_dict.items()
        ]
        changed = signature != self._signature
        self._signature = signature
        return changed

    def lay_out(self) -> Layout:
        """Plan who writes what; all ranks together.

        Raises:
            UnsupportedState: The ranks' states do not fit together.
        """
        plans, metadata = self._planned()
        self._items = [item for item in plans[self._rank].items if item.type != WriteItemType.BYTE_IO]
        segments: list[bytes | ByteSpan] = []
        self._offsets, offset = [], 0
        for item in self._items:
            before, length, after = wrapping(item)
            segments += [before, ByteSpan(offset, length), after]
            self._offsets.append(offset)
            offset += length + -length % ALIGNED
        self.size_bytes, self._metadata, self._lengths = offset, metadata, []
        return Layout(KIND, {shards_of(self._rank): segments} if segments else {})

    def bind(self, buffer: HostBuffer) -> None:
        """Make ready to copy into a buffer; it is pinned where CUDA is."""
        pin(buffer)
        self._views = []
        for item, offset in zip(self._items, self._offsets, strict=True):
            data = self._planner.resolve_data(item)
            assert isinstance(data, torch.Tensor)
            if data.numel() == 0:
                self._views.append(None)
                continue
            raw = torch.frombuffer(buffer.view, dtype=torch.uint8, count=data.nbytes, offset=offset)
            self._views.append(raw.view(data.dtype).view(data.shape))

    def copy(self, attempt: str) -> dict[str, bytes]:
        """Copy the last state into the buffer and return what is saved beside it."""
        on_device = False
        later = storages_of(self._optimizers)
        self.later = []
        with torch.no_grad():
            for view, item in zip(self._views, self._items, strict=True):
                data = self._planner.resolve_data(item)
                if view is None:
                    continue
                if data.untyped_storage().data_ptr() in later:
                    self.later.append((view, data.detach()))
                    continue
                view.copy_(data.detach(), non_blocking=True)
                on_device = on_device or data.is_cuda
        if on_device:
            torch.cuda.current_stream().synchronize()
        fresh = self._side_files(attempt) if self._metadata is not None else {}
        self._planner.state_dict = {}  # it would keep the training's tensors alive
        return fresh

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of the last state, where their steps wait for copies."""
        return self._optimizers

    def release(self) -> None:
        """Drop the views of the buffer."""
        self._views, self.later = [], []

    def _planned(self) -> tuple[list[SavePlan], Metadata | None]:
        """Return the plans of all ranks; the metadata on rank 0 only."""
        own = self._planner.create_local_plan()
        gathered = self._ranks.gather(own) if self._ranks else [own]
        answer: tuple[list[SavePlan], str] = ([], "")
        if self._rank == 0:
            try:
                plans, metadata = self._planner.create_global_plan(gathered)
                answer = (plans, "")
                self._describe(plans, metadata)
            except (ValueError, AssertionError, UnsupportedState) as error:
                answer = ([], f"the states of the ranks do not fit together: {error}")
                metadata = None
        else:
            metadata = None
        plans, problem = self._ranks.scatter([answer] * self._ranks.world) if self._ranks else answer
        if problem:
            self._signature = None
            raise UnsupportedState(problem)
        return plans, metadata

    def _describe(self, plans: list[SavePlan], metadata: Metadata) -> None:
        """Write down in the metadata where each tensor will lie."""
        storage_by_index: dict[Any, Any] = {}
        self._values = []
        for rank, plan in enumerate(plans):
            offset = 0
            for item in plan.items:
                if item.type == WriteItemType.BYTE_IO:
                    if item.index.fqn not in self._planner.state_dict:
                        raise UnsupportedState(f"{item.index.fqn} is no tensor and is on rank {rank} only; rank 0 saves those")
                    self._values.append(item)
                    continue
                length = wrapping(item).size
                storage_by_index[item.index] = _StorageInfo(shards_of(rank), offset, length)
                offset += length
        metadata.storage_data, metadata.version = storage_by_index, CURRENT_DCP_VERSION

    def _side_files(self, attempt: str) -> dict[str, bytes]:
        assert self._metadata is not None
        contents = [pickled(self._planner.state_dict[item.index.fqn]) for item in self._values]
        offset = 0
        for item, content in zip(self._values, contents, strict=True):
            self._metadata.storage_data[item.index] = _StorageInfo(VALUES, offset, len(content))
            offset += len(content)
        self._metadata.storage_meta = StorageMeta(save_id=attempt)
        fresh = {VALUES: b"".join(contents)} if contents else {}
        return {**fresh, METADATA: pickle.dumps(self._metadata)}


def pin(buffer: HostBuffer) -> None:
    """Let the GPU copy straight into a buffer, where there is one."""
    if not torch.cuda.is_available():
        return
    address = torch.frombuffer(buffer.view, dtype=torch.uint8).data_ptr()
    runtime = torch.cuda.cudart()
    if int(runtime.cudaHostRegister(address, buffer.size, 0)) == 0:
        buffer.unpin = lambda: runtime.cudaHostUnregister(address)
