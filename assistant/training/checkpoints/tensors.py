"""States of PyTorch: planned, laid out and loaded by torch.distributed.checkpoint, written by us.

The plan (which rank writes which part of which tensor) is made once by DCP's planner and kept while names, shapes and placements
stay the same; so are the bytes that torch.save puts around each tensor. A save then is one copy of each tensor into host memory,
pinned where CUDA is, and the files on disk are those that DCP's own writer makes: `torch.distributed.checkpoint.load` reads them,
on any number of ranks. Modules, optimisers and whatever else has a state_dict are taken as they are. A load goes into the tensors
that are there, cut anew for this number of ranks.

What only an optimiser's step changes (parameters and the optimiser's own tensors) is copied while training goes on to the next
step, which then waits for the copy; all else is copied before `save` returns. A tensor that was changed meanwhile in another way
gives itself away by its version, and the snapshot is thrown away with an error.
"""

from __future__ import annotations

import io
import pickle
import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.stateful import Stateful

from assistant.training.checkpoints import torch_state
from assistant.training.checkpoints.files import ByteSpan, OtherLayout, SaveFailed, UnsupportedState
from assistant.training.checkpoints.protocol import HostBuffer, Layout
from assistant.training.checkpoints.ranks import ByTorch
from assistant.training.checkpoints.torch_state import (
    HELD_TYPES,
    STRUCTURE_KEY,
    check_tensor,
    check_value,
    loadable,
    pickled,
    structure_text,
    wrapping,
)

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


MOST_SHOWN = 3
UNKNOWN_CLASS = re.compile(r"GLOBAL ([\w.]+)")
METADATA_MODULES = (
    "torch.distributed.checkpoint.metadata",
    "torch.distributed.checkpoint.filesystem",
    "torch.serialization",
    "torch",
    "collections",
    "pathlib",
)
METADATA_CLASSES = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
}
READ_ERRORS = (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError, ValueError)
"""What unpickling bytes that are no pickle of allowed classes ends with."""


def load_state(shards: Path, state: dict[str, Any] | None, group: Any) -> dict[str, Any]:
    """Return the state that is saved; tensors that `state` has are filled in place, and what has a load_state_dict gets it.

    Args:
        shards: Folder of the attempt, verified before.
        state: As it was given to `save`; None: everything comes as new tensors in host memory.
        group: A process group that all ranks load in together; None for a job of one process.

    Raises:
        OtherLayout: The state does not fit: nothing of it was changed. Or a value would need code to be run: tensors may be filled.
    """
    reader = _Reader(shards)
    metadata = reader.read_metadata()
    have = flatten_state_dict(plain_state(state))[0] if state is not None else {}
    _check(shards, have, metadata)
    targets = {name: _place(have.get(name), about) for name, about in metadata.state_dict_metadata.items()}
    planner = _Planner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dcp.load(
                targets,
                storage_reader=reader,
                planner=planner,
                **({"no_dist": True} if group is None else {"process_group": group}),
            )
        except dcp.CheckpointException as error:  # DCP wraps what the planner of any rank raised
            causes = [cause for cause, _ in error.failures.values() if isinstance(cause, OtherLayout)]
            raise causes[0] if causes else error from error
    loaded: dict[str, Any] = {}
    for name, path in metadata.planner_data.items():
        set_element(loaded, path, planner.values.get(name, targets[name]))
    if text := loaded.pop(torch_state.STRUCTURE_KEY, ""):
        torch_state.restore(loaded, text)
    for key, value in (state or {}).items():
        if isinstance(value, Stateful):
            value.load_state_dict(loaded[key])
            loaded[key] = value
    return loaded


class _Planner(DefaultLoadPlanner):  # type: ignore[misc]
    """Keeps what is no tensor."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False)
        self.values: dict[str, Any] = {}

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            allowed = torch.serialization.get_safe_globals()
            with torch.serialization.safe_globals([added for added in loadable() if added not in allowed]):
                self.values[name] = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            kind = UNKNOWN_CLASS.search(str(error))
            description = f"an object of {kind.group(1)}" if kind else "an object of an unknown class"
            raise OtherLayout(
                f"{name} holds {description}, which only running code could bring back: "
                f"wanted are {HELD_TYPES}. If you trust who wrote this "
                "checkpoint, call torch.serialization.add_safe_globals([CLASS]) before loading"
            ) from error


class _Reader(dcp.FileSystemReader):  # type: ignore[misc]
    """Reads `.metadata` without running what is in it: DCP's own reader unpickles whatever stands there."""

    def read_metadata(self) -> Metadata:
        path = Path(self.path) / METADATA
        try:
            with path.open("rb") as stream:
                metadata: Metadata = _MetadataUnpickler(stream).load()
        except READ_ERRORS as error:
            raise OtherLayout(f"{path}: {error}; wanted is the metadata of torch.distributed.checkpoint") from error
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _MetadataUnpickler(pickle.Unpickler):
    """Knows the classes that DCP's metadata is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        loaded = super().find_class(module, name) if "." not in name and module in METADATA_MODULES else None
        dtype = isinstance(loaded, torch.dtype) or loaded is torch.Size
        own = module == METADATA_MODULES[0] and getattr(loaded, "__module__", "") == module and isinstance(loaded, type)
        if dtype or own or (loaded is not None and (module, name) in METADATA_CLASSES):
            return loaded
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint's metadata")


def _place(value: object, about: object) -> object:
    if not isinstance(about, TensorStorageMetadata):
        return None
    return value if isinstance(value, torch.Tensor) else torch.empty(about.size, dtype=about.properties.dtype)


def _check(shards: Path, have: dict[str, Any], metadata: Metadata) -> None:
    saved = metadata.state_dict_metadata
    tops = {str(path[0]) for path in metadata.planner_data.values()}
    problems = []
    for name, value in have.items():
        if name == torch_state.STRUCTURE_KEY:
            continue
        about = saved.get(name)
        if not isinstance(value, torch.Tensor):
            if not any(name == top or name.startswith(f"{top}.") for top in tops):
                problems.append(f"has no {name}")
        elif about is None:
            problems.append(f"has no {name}")
        elif not isinstance(about, TensorStorageMetadata):
            problems.append(f"has {name}, but as no tensor")
        elif tuple(about.size) != tuple(value.shape):
            problems.append(f"has {name} of shape {tuple(about.size)}, this program of {tuple(value.shape)}")
    if problems:
        more = f" and {len(problems) - MOST_SHOWN} more" if len(problems) > MOST_SHOWN else ""
        raise OtherLayout(f"{shards} is of another model: it {'; it '.join(problems[:MOST_SHOWN])}{more}")
