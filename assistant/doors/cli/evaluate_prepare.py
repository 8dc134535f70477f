"""Make a run of what a person asked for: everything that can be checked before anything is submitted is checked here."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.errors import InputError, UsageError
from assistant.evaluation.asked import Asked
from assistant.evaluation.content import listing, total
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.staging import Model, mark_of
from assistant.evaluation.suite import load_suite

if TYPE_CHECKING:
    from assistant.config import Settings
    from assistant.engine import Engine


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for on the command line."""

    suite: Path
    model: str
    nodes: int
    from_storage: bool = False
    retries: int = 2


def runs_folder(settings: Settings) -> Path:
    """Return the folder of all runs."""
    return (settings.evaluation.folder or settings.state_folder / "evaluations").absolute()


def prepare(engine: Engine, settings: Settings, wish: Wish) -> RunFolder:
    """Check what was asked, write it into the folder of a new run, and return that.

    Raises:
        UsageError: Something is wrong with it.
    """
    priors = Priors.load(settings.content)
    suite = load_suite(wish.suite, {name: one.items for name, one in priors.known.items()})
    source = wish.model or suite.model
    if not source:
        raise UsageError(f"{wish.suite} names no model: name one with --model PATH")
    wanted = settings.evaluation
    size = None if wanted.fetch else _size(source)
    most = max(one.gpus for one in suite.datasets)
    if most > wanted.gpus_per_node:
        name = next(one.name for one in suite.datasets if one.gpus == most)
        raise UsageError(
            f"{name} needs {most} GPUs of one node; evaluation.gpus_per_node says that nodes have {wanted.gpus_per_node}"
        )
    known = [one for one in engine.scheduler.nodes() if wanted.partition in ("", one.partition)]
    if wish.nodes > len(known):
        raise UsageError(f"--nodes {wish.nodes}: the scheduler has {len(known)} that may be used; a run takes more when they come")
    folder = RunFolder(runs_folder(settings) / _name(suite.title, engine))
    limit = int(wanted.memory_limit_gib * (1 << 30)) or None
    # behind a fetch command nobody can tell whether it is still the same, so each run fetches its own
    mark = folder.id if wanted.fetch else mark_of(Path(source))
    place = source if wanted.fetch else str(Path(source).absolute())
    model = Model(place, wanted.fetch, size, limit, str(folder.digests), mark)
    learned = priors.learn(suite.datasets, past(engine), run=folder.id, model_bytes=size or 0)
    Asked(
        model,
        suite.datasets,
        learned.estimates(suite.datasets),
        memory=wanted.memory or _memory(engine, settings),
        nodes=wish.nodes,
        gpus_per_node=wanted.gpus_per_node,
        cpus_per_node=wanted.cpus_per_node,
        title=suite.title,
        from_storage=wish.from_storage,
        python=wanted.python or sys.executable,
        partition=wanted.partition,
        metric_partition=wanted.metric_partition,
        gpu_option=wanted.gpu_option,
        no_gpu_option=wanted.no_gpu_option,
        options=wanted.options,
        retries=wish.retries,
        load_s=wanted.load_s,
        fetch_s=wanted.fetch_s,
    ).save(folder)
    return folder


def past(engine: Engine) -> list[Measured]:
    """Return what datasets took in past evaluations."""
    return [
        Measured(one.run, one.dataset, one.items, one.infer_s, one.metric_s, one.prepare_s, one.model_bytes)
        for one in engine.store.evaluations()
    ]


def _size(source: str) -> int:
    try:
        return total(listing(Path(source)))
    except OSError as error:
        hint = "name a file or folder that all nodes see, or set evaluation.fetch to the command that brings it"
        raise InputError(f"model {source} cannot be read: {error}; {hint}") from error


def _name(title: str, engine: Engine) -> str:
    words = re.sub(r"[^A-Za-z0-9_+-]+", "-", title).strip("-")[:60] or "run"
    return f"{words}-{engine.clock.now():%Y%m%d-%H%M%S}-{os.getpid() % 1000:03}"


def _memory(engine: Engine, settings: Settings) -> str:
    """Return the folder in a node's memory; nodes of the embedded scheduler share one memory and get a folder each."""
    own = f"/dev/shm/nightshift-{os.getuid()}"
    if engine.scheduler.name != "local":
        return own
    cluster = hashlib.blake2b(str(settings.state_folder.absolute()).encode(), digest_size=4).hexdigest()
    return f"{own}-{cluster}/{{node}}"
