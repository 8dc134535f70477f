"""The program of a metric job: score the outputs of some datasets, on CPUs: `python -m assistant.evaluation.metric JOB`.

The command gets the outputs of all pieces in the order of the items, as one file, and writes JSON with `score` in it. Where a
dataset has no metric, its outputs are such JSON themselves, and their mean by items is its score.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assistant.evaluation.files import write_json
from assistant.evaluation.jail import NOBODY
from assistant.evaluation.layout import RunFolder, name_of
from assistant.evaluation.records import Piece
from assistant.evaluation.sandbox import Limits, run
from assistant.evaluation.staging import argv
from assistant.evaluation.work import FAILED, NOT_OURS, Work
from assistant.untrusted import read_json

MOST_DATA_BYTES = 2 << 30
"""Data up to this size is copied to where a closed program can read it."""


class MetricFailed(Exception):
    """A dataset could not be scored; `final` where another try would end the same."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


def cover(pieces: Sequence[Piece], items: int) -> list[Piece] | None:
    """Return pieces that hold each of a dataset's items once, in order; None where some items are missing."""
    found, at = list[Piece](), 0
    while at < items:
        fitting = [one for one in pieces if one.first == at and one.last > at]
        if not fitting:
            return None
        found.append(max(fitting, key=lambda one: one.last))
        at = found[-1].last
    return found


def joined(paths: Sequence[Path], target: Path) -> Path:
    """Return one file with the outputs in order; the first path's folder where outputs are folders."""
    if any(path.is_dir() for path in paths):
        target.mkdir()
        for path in paths:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target / path.name)
        return target
    with target.open("wb") as whole:
        for path in paths:
            block = path.read_bytes()
            whole.write(block if not block or block.endswith(b"\n") else block + b"\n")
    return target


def main(folder: Path) -> int:
    """Score what the job's folder says and return the exit status."""
    work = Work(folder)
    if not work.is_mine():
        return NOT_OURS
    failed = 0
    for asked in work.asked["datasets"]:
        if work.run.score(asked["name"]).exists():
            continue
        work.tell("scores", dataset=asked["name"], since=time.time())
        begun = time.monotonic()
        try:
            found = scored(work.run, asked)
        except (MetricFailed, OSError, ValueError) as error:
            failed += 1
            why = {"why": str(error), "final": getattr(error, "final", False), "node": work.node}
            write_json(folder / "failed" / f"{name_of(asked['name'])}.json", why)
            print(f"{asked['name']}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            continue
        told = {"metric_s": time.monotonic() - begun, "node": work.node, "number": work.number, "at": time.time()}
        write_json(work.run.score(asked["name"]), {**found, **told})
    work.tell("ended", failed=failed)
    return FAILED if failed else 0


def scored(folder: RunFolder, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the score of a dataset and what else its metric says.

    Raises:
        MetricFailed: There is none.
    """
    pieces = cover([one for one in folder.pieces() if one.dataset == asked["name"]], asked["items"])
    if pieces is None:
        raise MetricFailed("outputs are missing")
    if not asked["metric"]:
        return _mean([(folder.out(piece), piece.items) for piece in pieces])
    # not in the run's folder: a closed program's user may not get there
    scratch = Path(tempfile.mkdtemp(prefix="nightshift-metric-"))
    try:
        return _by_command(folder, asked, pieces, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _by_command(folder: RunFolder, asked: dict[str, Any], pieces: Sequence[Piece], scratch: Path) -> dict[str, Any]:
    closed = asked["sandbox"]
    if closed and os.geteuid() == 0:
        os.chown(scratch, NOBODY, NOBODY)  # a closed program gets there as nobody, and no other user does
    out = joined([folder.out(piece) for piece in pieces], scratch / "outputs")
    score, data = scratch / "work" / "score.json", asked["data"]
    score.parent.mkdir()
    if closed and data and Path(data).exists() and _size(Path(data)) <= MOST_DATA_BYTES:
        copy = scratch / Path(data).name
        data = str((shutil.copytree if Path(data).is_dir() else shutil.copy)(data, copy))
    values = {"python": sys.executable, "dataset": asked["name"], "data": data, "out": str(out), "score": str(score)}
    words = argv(asked["metric"], values, f"metric of {asked['name']}")
    ended = run(words, Limits(wall_s=asked["timeout_s"], closed=closed), folder=score.parent)
    if not ended.ok:
        raise MetricFailed(f"the metric failed: {ended.why}", final=ended.timed_out)
    found = _score(score)
    return {**found, **({"unprotected": list(ended.missing)} if ended.missing else {})}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def _score(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.is_symlink():
        raise MetricFailed("the metric ended well and wrote no {score}", final=True)
    try:
        found = read_json(path)
    except ValueError as error:
        raise MetricFailed(f"what the metric wrote is no JSON: {error}", final=True) from error
    score = found.get("score") if isinstance(found, dict) else None
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise MetricFailed(f"what the metric wrote has no number as `score`: {str(found)[:200]}", final=True)
    return dict(found)


def _mean(outputs: Sequence[tuple[Path, int]]) -> dict[str, Any]:
    scores = [(_score(path)["score"], items) for path, items in outputs]
    return {"score": sum(score * items for score, items in scores) / sum(items for _, items in scores)}


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
