"""Load a checkpoint of PyTorch with DCP: into the tensors that are there, cut anew for this number of ranks."""

from __future__ import annotations

import io
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.stateful import Stateful

from assistant.training.checkpoints import torch_state
from assistant.training.checkpoints.errors import OtherLayout
from assistant.training.checkpoints.tensors import METADATA, plain_state
from assistant.training.checkpoints.torch_state import HELD_TYPES, loadable

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
