"""What the ranks of a job must agree on: the run they are, what a save does, when to save at the operator's word.

The ranks of torch.distributed agree over a group of gloo of their own, so that a stuck NCCL
collective stops no checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from assistant.training.checkpoints.files import CheckpointError

logger = logging.getLogger(__name__)


FOLDER = ".ranks"
POLL_S = 0.05


class Ranks(Protocol):
    """The ranks that save together."""

    rank: int
    world: int
    agrees: bool
    """Whether `highest` reaches the others."""

    def run(self, error: str, patience_s: float) -> str:
        """Return a name for this run that is the same on all ranks and was never used; all call it once.

        Args:
            error: On rank 0 why it cannot begin; the others then raise it.
            patience_s: How long to wait for the others.
        """

    def highest(self, number: int) -> int:
        """Return the highest of the numbers that all ranks pass; all call it together."""


class Alone:
    """A job of one rank."""

    rank, world, agrees = 0, 1, True

    def run(self, error: str, patience_s: float) -> str:
        """Return a new name for this run."""
        return secrets.token_hex(5)

    def highest(self, number: int) -> int:
        """Return the number: there are no other ranks."""
        return number


class ByFiles:
    """Ranks that share nothing but the checkpoint folder; they meet there once."""

    def __init__(self, root: Path, rank: int, world: int, agree: Callable[[int], int] | None) -> None:
        """Name the folder where the ranks meet.

        Args:
            root: The checkpoint folder.
            rank: Ours, 0 to `world` - 1.
            world: How many there are.
            agree: Returns the highest number over all ranks; None where there is no way to.
        """
        self.rank, self.world, self.agrees, self._agree = rank, world, agree is not None, agree
        self._folder = root / FOLDER

    def highest(self, number: int) -> int:
        """Return the highest number, or our own where there is no way to agree."""
        return self._agree(number) if self._agree else number

    def run(self, error: str, patience_s: float) -> str:
        """Meet in the folder: each leaves a word that only it knows, rank 0 answers all of them."""
        until = time.monotonic() + patience_s
        try:
            return self._lead(error, until) if self.rank == 0 else self._follow(until)
        except OSError as problem:
            raise CheckpointError(f"the ranks cannot meet in {self._folder}: {problem}") from problem

    def _lead(self, error: str, until: float) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob("*.json"):
            leftover.unlink(missing_ok=True)
        run, words = secrets.token_hex(5), dict[str, Any]()
        while len(words) < self.world - 1:
            _pause(until, f"{self.world - 1 - len(words)} of {self.world} ranks did not come to {self._folder}")
            paths = {rank: self._folder / f"{rank}.json" for rank in range(1, self.world)}
            words = {str(rank): record for rank, path in paths.items() if (record := _read(path))}
        _put(self._folder / "run.json", {"run": run, "error": error, "words": words})
        return run

    def _follow(self, until: float) -> str:
        word, own = secrets.token_hex(8), self._folder / f"{self.rank}.json"
        while True:
            record = _read(self._folder / "run.json")
            if record and record["words"].get(str(self.rank), {}).get("word") == word:
                if record["error"]:
                    raise CheckpointError(record["error"])
                return str(record["run"])
            if self._folder.is_dir() and not own.exists():
                _put(own, {"word": word})
            _pause(until, f"rank 0 did not come to {self._folder}")


def ranks_of(root: Path, rank: int | None, world: int | None, agree: Callable[[int], int] | None) -> Ranks:
    """Return the ranks of this job: of torch.distributed where it is initialised, as given, else as torchrun or Slurm says."""
    if world is None and is_there():
        return ByTorch()
    own, size = _of_environment(os.environ)
    own, size = own if rank is None else rank, size if world is None else world
    if not 0 <= own < size:
        raise ValueError(f"rank {own} is none of a world of {size}")
    return Alone() if size == 1 else ByFiles(root, own, size, agree)


def _of_environment(environment: Mapping[str, str]) -> tuple[int, int]:
    for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        if environment.get(rank, "").isdecimal() and environment.get(world, "").isdecimal():
            return int(environment[rank]), int(environment[world])
    return 0, 1


def _pause(until: float, otherwise: str) -> None:
    if time.monotonic() > until:
        raise CheckpointError(f"{otherwise} in time; did all of them start?")
    time.sleep(POLL_S)


def _put(path: Path, record: Mapping[str, Any]) -> None:
    part_path = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    part_path.write_text(json.dumps(record), encoding="utf-8")
    part_path.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


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
