"""The ranks of torch.distributed, over a group of gloo of their own, so that a stuck NCCL collective stops no checkpoint."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import Any

from assistant.training.checkpoints.errors import CheckpointError


def is_there() -> bool:
    """Tell whether this process belongs to a process group; PyTorch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and bool(torch.distributed.is_initialized())


class ByTorch:
    """All ranks of the default process group; made by all of them together."""

    agrees = True

    def __init__(self) -> None:
        """Make the group."""
        import torch.distributed as dist

        self.rank, self.world = int(dist.get_rank()), int(dist.get_world_size())
        self.group: Any = dist.new_group(backend="gloo")

    def run(self, error: str, patience_s: float) -> str:
        """Return the name that rank 0 has made up."""
        import torch.distributed as dist

        lead_answer = [(secrets.token_hex(5), error)]
        dist.broadcast_object_list(lead_answer, src=0, group=self.group)
        if lead_answer[0][1] and self.rank:
            raise CheckpointError(lead_answer[0][1])
        return lead_answer[0][0]

    def highest(self, number: int) -> int:
        """Return the highest number of all ranks."""
        import torch
        import torch.distributed as dist

        highest = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=self.group)
        return int(highest[0])

    def gather(self, value: object) -> list[Any]:
        """Return what every rank says, on rank 0; elsewhere an empty list."""
        import torch.distributed as dist

        gathered: list[Any] | None = [None] * self.world if self.rank == 0 else None
        dist.gather_object(value, gathered, dst=0, group=self.group)
        return gathered or []

    def scatter(self, values: Sequence[object]) -> Any:
        """Return our part of what rank 0 says."""
        import torch.distributed as dist

        part: list[Any] = [None]
        dist.scatter_object_list(part, list(values) if self.rank == 0 else None, src=0, group=self.group)
        return part[0]
