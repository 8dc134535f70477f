"""One job of a run, as it finds itself on a node: what it is to do, where it is, what it tells the coordinator."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from assistant.evaluation.files import claim, read_json, write_json
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.model_cache import Shelf
from assistant.evaluation.staging import Model

FAILED, NOT_OURS = 1, 0
"""Exit statuses; a job that finds its work done by another leaves well."""


class JobContext:
    """A job's folder and what stands in it."""

    def __init__(self, folder: Path) -> None:
        """Read what is to be done.

        Raises:
            SystemExit: The folder holds nothing of the kind.
        """
        spec = read_json(folder / "job.json")
        if spec is None:
            raise SystemExit(f"{folder} holds no job.json: it must be started by nightshift evaluate")
        self.folder = folder
        self.spec: dict[str, Any] = spec
        self.number: int = spec["number"]
        self.run = RunFolder(folder.parent.parent)
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.job_id = os.environ.get("SLURM_JOB_ID", str(os.getpid()))
        self.began_at = time.time()

    def is_mine(self) -> bool:
        """Whether this job, and no other that was submitted for the same, does the work. The same job may begin again."""
        return claim(self.folder / "owner", self.job_id) == self.job_id

    def tell(self, phase: str, **more: object) -> None:
        """Write how it stands."""
        status = {"phase": phase, "node": self.node, "job": self.job_id, "begun": self.began_at, "at": time.time(), **more}
        write_json(self.folder / "status.json", status, durable=False)

    @property
    def model(self) -> Model:
        """The model."""
        return Model(**self.spec["model"])

    @property
    def shelf(self) -> Shelf:
        """The models in this node's memory."""
        return Shelf(self.memory)

    @property
    def memory(self) -> Path:
        """The folder in this node's memory that is ours."""
        return Path(self.spec["memory"].replace("{node}", self.node))

    @property
    def cache(self) -> Path:
        """A folder on this node for prepared data of the run; it goes with the run."""
        return self.memory / "prepared" / self.run.id
