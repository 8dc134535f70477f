"""What was asked of a run, kept in its folder so that it can go on with nothing but that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from assistant.errors import UsageError
from assistant.evaluation.files import read_json, write_json
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.records import Dataset, Estimate
from assistant.evaluation.staging import Model


@dataclass(frozen=True)
class RunSpec:
    """An evaluation as it was asked for."""

    model: Model
    datasets: tuple[Dataset, ...]
    estimates: Mapping[str, Estimate]
    """By dataset."""
    memory: str
    """Folder in a node's memory; {node} is its name."""
    nodes: int = 1
    gpus_per_node: int = 1
    cpus_per_node: int = 4
    title: str = ""
    from_storage: bool = False
    """Read the model where it lies, copy it nowhere."""
    python: str = sys.executable
    """On the nodes."""
    partition: str = ""
    metric_partition: str = ""
    """Empty: the same."""
    gpu_option: str = "--gres=gpu:{gpus}"
    no_gpu_option: str = "--gres=none"
    options: tuple[str, ...] = field(default_factory=tuple)
    """More options of the scheduler, for all jobs."""
    retries: int = 2
    """How often a piece or a metric that failed is tried again."""
    infer_timeout_s: float = 4 * 3600.0
    """For one piece."""
    stage_timeout_s: int = 3600
    """For a precursor: a storage that hangs must not hold a run for ever."""
    load_s: float = 30.0
    fetch_s: float = 120.0

    def dataset(self, name: str) -> Dataset:
        """Return a dataset of the suite."""
        return next(dataset for dataset in self.datasets if dataset.name == name)

    def save(self, folder: RunFolder) -> None:
        """Write it into the folder of its run."""
        write_json(folder.spec_file, asdict(self))


def load_asked(folder: RunFolder) -> RunSpec:
    """Return what was asked of a run.

    Raises:
        UsageError: There is no such run.
    """
    document = read_json(folder.spec_file)
    if document is None:
        raise UsageError(
            f"there is no evaluation {folder.id!r}: {folder.spec_file} is missing; nightshift evaluate --runs lists them"
        )
    fields: dict[str, Any] = {
        **document,
        "model": Model(**document["model"]),
        "datasets": tuple(Dataset(**dataset_fields) for dataset_fields in document["datasets"]),
        "estimates": {name: Estimate(**estimate_fields) for name, estimate_fields in document["estimates"].items()},
        "options": tuple(document["options"]),
    }
    return RunSpec(**fields)
