"""A precursor job: put the model into this node's memory, or clean up there: `python -m assistant.evaluation.stage JOB`."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path

from assistant.evaluation.files import write_json
from assistant.evaluation.staging import StagingError, stage
from assistant.evaluation.work import FAILED, JobContext


def main(folder: Path) -> int:
    """Do what the job's folder says and return the exit status; how it went is in the run's folder."""
    work = JobContext(folder)
    if work.spec["kind"] == "clean":
        return _clean(work)
    work.tell("staging")
    report: dict[str, object] = {"node": work.node, "job": work.job_id}
    try:
        staged = stage(work.model, work.shelf, work.run.id)
    except StagingError as error:
        write_json(work.run.node(work.node), {**report, "ok": False, "kind": error.kind, "why": str(error)})
        print(f"{work.node}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return FAILED
    report |= {"ok": True, "seconds": staged.seconds, "size_bytes": staged.size_bytes, "fetched": staged.fetched}
    write_json(work.run.node(work.node), {**report, "path": str(staged.path)})
    work.tell("staged")
    return 0


def _clean(work: JobContext) -> int:
    """Give up what the run holds in this node's memory, and what crashed runs left."""
    shutil.rmtree(work.cache, ignore_errors=True)
    with suppress(OSError):
        work.cache.parent.rmdir()
    removed_models = work.shelf.give_up(work.run.id)
    if "{node}" in work.spec["memory"]:
        with suppress(OSError):
            work.memory.parent.rmdir()  # of nodes that share one memory the last one takes the folder of all
    work.run.node(work.node).unlink(missing_ok=True)
    work.tell("cleaned", gone=removed_models)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
