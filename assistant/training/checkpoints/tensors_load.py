"""Load a checkpoint of PyTorch with DCP: into the tensors that are there, cut anew for this number of ranks."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.stateful import Stateful

from assistant.training.checkpoints import structure
from assistant.training.checkpoints.errors import OtherLayout
from assistant.training.checkpoints.tensors import plain_state

SHOWN = 3


def load_state(shards: Path, state: dict[str, Any] | None, group: Any) -> dict[str, Any]:
    """Return the state that is saved; tensors that `state` has are filled in place, and what has a load_state_dict gets it.

    Args:
        shards: Folder of the attempt, verified before.
        state: As it was given to `save`; None: everything comes as new tensors in host memory.
        group: A process group that all ranks load in together; None for a job of one process.

    Raises:
        OtherLayout: The state does not fit; nothing of it was changed.
    """
    reader = dcp.FileSystemReader(shards)
    metadata = reader.read_metadata()
    have = flatten_state_dict(plain_state(state))[0] if state is not None else {}
    _check(shards, have, metadata)
    wanted = {name: _place(have.get(name), about) for name, about in metadata.state_dict_metadata.items()}
    planner = _Planner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(
            wanted,
            storage_reader=reader,
            planner=planner,
            **({"no_dist": True} if group is None else {"process_group": group}),
        )
    loaded: dict[str, Any] = {}
    for name, path in metadata.planner_data.items():
        set_element(loaded, path, planner.values.get(name, wanted[name]))
    if text := loaded.pop(structure.KEY, ""):
        structure.restore(loaded, text)
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
        self.values[read_item.dest_index.fqn] = torch.load(value, weights_only=False)


def _place(value: object, about: object) -> object:
    if not isinstance(about, TensorStorageMetadata):
        return None
    return value if isinstance(value, torch.Tensor) else torch.empty(about.size, dtype=about.properties.dtype)


def _check(shards: Path, have: dict[str, Any], metadata: Metadata) -> None:
    saved = metadata.state_dict_metadata
    tops = {str(path[0]) for path in metadata.planner_data.values()}
    problems = []
    for name, value in have.items():
        if name == structure.KEY:
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
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise OtherLayout(f"{shards} is of another model: it {'; it '.join(problems[:SHOWN])}{more}")
