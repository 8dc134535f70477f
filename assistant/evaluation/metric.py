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

from assistant.evaluation.files import RunFolder, name_of, write_json
from assistant.evaluation.jail import NOBODY_ID
from assistant.evaluation.sandbox import ProgramLimits, run
from assistant.evaluation.stage import FAILED, NOT_OURS, JobContext, argv
from assistant.evaluation.work import Piece
from assistant.redact import head_of
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
    covering, at = list[Piece](), 0
    while at < items:
        fitting = [piece for piece in pieces if piece.first == at and piece.last > at]
        if not fitting:
            return None
        covering.append(max(fitting, key=lambda piece: piece.last))
        at = covering[-1].last
    return covering


def joined(paths: Sequence[Path], target: Path) -> Path:
    """Return one file with the outputs in order; the first path's folder where outputs are folders."""
    if any(path.is_dir() for path in paths):
        target.mkdir()
        for path in paths:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target / path.name)
        return target
    with target.open("wb") as outputs:
        for path in paths:
            block = path.read_bytes()
            outputs.write(block if not block or block.endswith(b"\n") else block + b"\n")
    return target


def main(folder: Path) -> int:
    """Score what the job's folder says and return the exit status."""
    work = JobContext(folder)
    if not work.is_mine():
        return NOT_OURS
    failed = 0
    for entry in work.spec["datasets"]:
        if work.run.score(entry["name"]).exists():
            continue
        work.tell("scores", dataset=entry["name"], since=time.time())
        start = time.monotonic()
        try:
            score_record = scored(work.run, entry)
        except (MetricFailed, OSError, ValueError) as error:
            failed += 1
            why = {"why": str(error), "final": getattr(error, "final", False), "node": work.node}
            write_json(folder / "failed" / f"{name_of(entry['name'])}.json", why)
            print(f"{entry['name']}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            continue
        measured = {"metric_s": time.monotonic() - start, "node": work.node, "number": work.number, "at": time.time()}
        write_json(work.run.score(entry["name"]), {**score_record, **measured})
    work.tell("ended", failed=failed)
    return FAILED if failed else 0


def scored(folder: RunFolder, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the score of a dataset and what else its metric says.

    Raises:
        MetricFailed: There is none.
    """
    pieces = cover([piece for piece in folder.pieces() if piece.dataset == entry["name"]], entry["items"])
    if pieces is None:
        raise MetricFailed("outputs are missing")
    if not entry["metric"]:
        return _mean([(folder.out(piece), piece.items) for piece in pieces])
    # not in the run's folder: a closed program's user may not get there
    scratch = Path(tempfile.mkdtemp(prefix="nightshift-metric-"))
    try:
        return _by_command(folder, entry, pieces, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _by_command(folder: RunFolder, entry: dict[str, Any], pieces: Sequence[Piece], scratch: Path) -> dict[str, Any]:
    closed = entry["sandbox"]
    if closed and os.geteuid() == 0:
        os.chown(scratch, NOBODY_ID, NOBODY_ID)  # a closed program gets there as nobody, and no other user does
    out = joined([folder.out(piece) for piece in pieces], scratch / "outputs")
    score, data = scratch / "work" / "score.json", entry["data"]
    score.parent.mkdir()
    if closed and data and Path(data).exists() and _size(Path(data)) <= MOST_DATA_BYTES:
        copy = scratch / Path(data).name
        data = str((shutil.copytree if Path(data).is_dir() else shutil.copy)(data, copy))
    values = {"python": sys.executable, "dataset": entry["name"], "data": data, "out": str(out), "score": str(score)}
    words = argv(entry["metric"], values, f"metric of {entry['name']}")
    ended = run(words, ProgramLimits(wall_s=entry["timeout_s"], closed=closed), folder=score.parent)
    if not ended.ok:
        raise MetricFailed(f"the metric failed: {ended.why}", final=ended.timed_out)
    score_record = _score(score)
    return {**score_record, **({"unprotected": list(ended.missing)} if ended.missing else {})}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(child.stat().st_size for child in path.rglob("*") if child.is_file())


def _score(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.is_symlink():
        raise MetricFailed("the metric ended well and wrote no {score}", final=True)
    try:
        score_record = read_json(path)
    except ValueError as error:
        raise MetricFailed(f"what the metric wrote is no JSON: {error}", final=True) from error
    score = score_record.get("score") if isinstance(score_record, dict) else None
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
        raise MetricFailed(f"what the metric wrote has no number as `score`: {head_of(str(score_record), 200)}", final=True)
    return dict(score_record)


def _mean(outputs: Sequence[tuple[Path, int]]) -> dict[str, Any]:
    scores = [(_score(path)["score"], items) for path, items in outputs]
    return {"score": sum(score * items for score, items in scores) / sum(items for _, items in scores)}


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
