"""What an evaluation is asked to do: the suite that a person writes, and the run spec that is kept in the run's folder.

title = "nightly"
model = "/ckpt/7b-step4000"

[defaults]
infer = "{python} infer.py --model {model} --data {data} --range {first}:{last} --out {out}"
metric = "{python} exact.py {out} {score}"

[[dataset]]
name = "gsm8k"
data = "data/gsm8k.jsonl"

Whatever is wrong with a suite is found before anything runs. A run goes on with nothing but its run spec.
"""

from __future__ import annotations

import difflib
import io
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from assistant.content.reading import build, line_of, read_toml, wrong
from assistant.errors import ContentError, InputError, UsageError
from assistant.evaluation.files import RunFolder, read_json, write_json
from assistant.evaluation.stage import Model
from assistant.evaluation.work import Dataset, Estimate
from assistant.untrusted import open_regular

__all__ = ["PLACEHOLDERS", "RunSpec", "Suite", "load_asked", "load_suite"]

PLACEHOLDERS = frozenset({"model", "data", "dataset", "first", "last", "count", "out", "score", "python", "pieces", "cache"})
"""What a command may hold in braces."""
_PLACEHOLDER = re.compile(r"\{\{\w+\}\}|\{([a-z_]+)\}")
# braces around anything but a name, as in JSON, stay as they are
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")
_MOST_ITEMS = 1_000_000_000
_RANGES: Mapping[str, tuple[float, float]] = {
    "items": (1, _MOST_ITEMS),
    "gpus": (1, 1024),
    "metric_timeout_s": (1, 604_800),
    "infer_s": (0, 1e9),
    "metric_s": (0, 1e9),
    "prepare_s": (0, 1e9),
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A model and what it is evaluated on."""

    title: str
    model: str
    """Path; empty where the command line names it."""
    datasets: tuple[Dataset, ...]
    """In the order of the file; names are unique and safe in a path."""
    path: Path


@dataclass(frozen=True, slots=True)
class _Defaults:
    infer: str = ""
    metric: str = ""
    gpus: int = 1
    split: bool | None = None
    metric_timeout_s: float = 1800.0
    sandbox: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    items: int | None = None
    infer: str | None = None
    metric: str | None = None
    data: str = ""
    gpus: int | None = None
    split: bool | None = None
    metric_timeout_s: float | None = None
    sandbox: bool | None = None
    infer_s: float | None = None
    metric_s: float | None = None
    prepare_s: float | None = None


@dataclass(frozen=True, slots=True)
class _File:
    dataset: tuple[_Entry, ...]
    title: str = ""
    model: str = ""
    defaults: _Defaults = _Defaults()


def load_suite(path: Path, items: Mapping[str, int] | None = None) -> Suite:
    """Return the suite of a file.

    Args:
        path: The file; paths in it are relative to its folder.
        items: How many items datasets of a name have, for those that say neither that nor where their data lies.

    Raises:
        ContentError: A key, a name, a number or a template is wrong; the message says on which line.
        InputError: Data of datasets is missing; the message names all of it.
    """
    document = build(_File, read_toml(path), path)
    if not document.dataset:
        raise ContentError(f"{path}: has no [[dataset]]: nothing to evaluate")
    _check_numbers(path, document.defaults, (("defaults", 0),))
    numbers_by_name: dict[str, int] = {}
    for number, entry in enumerate(document.dataset):
        _check_entry(path, entry, number, numbers_by_name)
    _check_data(path, document.dataset)
    sets = tuple(_dataset(path, entry, n, document.defaults, items or {}) for n, entry in enumerate(document.dataset))
    model = str(path.parent / Path(document.model).expanduser()) if document.model else ""
    return Suite(document.title or path.stem, model, sets, path)


def _check_entry(path: Path, entry: _Entry, number: int, numbers_by_name: dict[str, int]) -> None:
    trail = (("dataset", number),)
    if not _NAME.fullmatch(entry.name):
        wants = "letters, digits and . _ + -, a letter or digit first, at most 120, for it names files"
        raise wrong(path, "name", f"{entry.name!r} is no safe name: {wants}", trail=trail)
    if entry.name in numbers_by_name:
        raise wrong(
            path, "name", f"{entry.name!r} is there twice, as dataset {numbers_by_name[entry.name] + 1} already", trail=trail
        )
    numbers_by_name[entry.name] = number
    _check_numbers(path, entry, trail)


def _check_numbers(path: Path, table: _Entry | _Defaults, trail: tuple[tuple[str, int], ...]) -> None:
    for setting in fields(table):
        value = getattr(table, setting.name)
        if setting.name not in _RANGES or value is None:
            continue
        least, most = _RANGES[setting.name]
        if not (math.isfinite(value) and least <= value <= most):
            raise wrong(path, setting.name, f"must be {least:g} to {most:g}, not {value!r}", trail=trail)


def _check_data(path: Path, entries: Sequence[_Entry]) -> None:
    missing = [(n, entry) for n, entry in enumerate(entries) if entry.data and not _data_path(path, entry.data).exists()]
    if missing:
        missing_text = "; ".join(f"{entry.data} of {entry.name} (line {_line(path, n)})" for n, entry in missing)
        many = (
            f"{len(missing)} of {len(entries)} datasets: data is missing"
            if len(missing) > 1
            else "the data of a dataset is missing"
        )
        raise InputError(f"{path}: {many}: {missing_text}; paths are relative to {path.parent}")


def _line(path: Path, number: int) -> int:
    # the n-th `data` key need not be that of the n-th dataset, so it is sought behind its table's head
    return line_of(path, "data", 0, line_of(path, "dataset", number))


def _data_path(path: Path, data: str) -> Path:
    return path.parent / Path(data).expanduser()


def _dataset(path: Path, entry: _Entry, number: int, defaults: _Defaults, items: Mapping[str, int]) -> Dataset:
    trail = (("dataset", number),)

    def pick(name: str) -> Any:
        own = getattr(entry, name)
        return getattr(defaults, name) if own is None else own

    dataset = Dataset(entry.name, 0, pick("infer"), pick("metric"), str(_data_path(path, entry.data)) if entry.data else "")
    if not dataset.infer:
        raise ContentError(f"{path}:{line_of(path, 'dataset', number)}: {entry.name} has no `infer` command, nor has [defaults]")
    for key, command in (("infer", dataset.infer), ("metric", dataset.metric)):
        placeholders = _placeholders(path, key, command, trail if getattr(entry, key) is not None else (("defaults", 0),))
        if key == "infer" and not {"out", "pieces"} & placeholders:
            raise wrong(path, key, "has no {out}: where would its output go?", trail=trail)
        if key == "infer":
            # a program that is told its pieces one by one is told their ranges and outputs as well
            ranged = {"first", "last"} <= placeholders or "pieces" in placeholders
    if pick("split") and not ranged:
        raise wrong(path, "split", f"{entry.name} cannot be split: its `infer` has no {{first}} and {{last}}", trail=trail)
    return replace(
        dataset,
        items=_items(path, entry, number, items),
        gpus=pick("gpus"),
        split=ranged if pick("split") is None else pick("split"),
        metric_timeout_s=pick("metric_timeout_s"),
        sandbox=pick("sandbox"),
        infer_s=entry.infer_s,
        metric_s=entry.metric_s,
        prepare_s=entry.prepare_s,
    )


def _placeholders(path: Path, key: str, command: str, trail: tuple[tuple[str, int], ...]) -> set[str]:
    try:
        shlex.split(command)
    except ValueError as error:
        raise wrong(path, key, f"{command!r} is no command line: {error}", trail=trail) from None
    placeholders = {match.group(1) for match in _PLACEHOLDER.finditer(command)} - {None}
    for name in sorted(placeholders - PLACEHOLDERS):
        near = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
        hint = f"; did you mean {{{near[0]}}}?" if near else ""
        known_text = ", ".join(sorted(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS))
        raise wrong(
            path, key, f"{{{name}}} is unknown{hint}; known: {known_text}; {{{{{name}}}}} stands for {{{name}}} itself", trail=trail
        )
    return placeholders


def _items(path: Path, entry: _Entry, number: int, known_items: Mapping[str, int]) -> int:
    if entry.items is not None:
        return entry.items
    data = _data_path(path, entry.data)
    if entry.data and data.suffix == ".jsonl" and data.is_file():
        with open_regular(data) as raw, io.BufferedReader(raw) as lines:
            counted = sum(1 for line in lines if line.strip())
        if not counted:
            raise InputError(f"{data}: the data of {entry.name} is empty")
        return counted
    if entry.name in known_items:
        return known_items[entry.name]
    hint = "say it, or give its data as .jsonl, of which the lines are counted"
    raise ContentError(f"{path}:{line_of(path, 'dataset', number)}: {entry.name}: how many `items` it has is not known; {hint}")


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
    """Return the run spec of a run.

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
