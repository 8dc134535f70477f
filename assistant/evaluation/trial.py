"""A GPU trial: evaluate some pieces with the model in this node's memory: `python -m assistant.evaluation.trial JOB`.

A piece is done when its output lies under its name, which happens at once and as a whole. A piece that is done is never done
again, one that failed does not keep the others from being tried, and one that the coordinator took away is left to another trial.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from assistant.evaluation.commands import argv
from assistant.evaluation.files import claim, write_json
from assistant.evaluation.records import Piece
from assistant.evaluation.sandbox import Limits, run
from assistant.evaluation.serving import Server, ServerError
from assistant.evaluation.staging import StagingError, staged_for
from assistant.evaluation.work import FAILED, NOT_OURS, Work
from assistant.private_files import private_folder

TAKEN = "taken away"
"""What the coordinator writes where the trial would say that it begins a piece."""


class PieceFailed(Exception):
    """One piece could not be evaluated; the others may be."""


class Runner:
    """Evaluates the pieces of a trial, one after the other."""

    def __init__(self, work: Work, model: Path) -> None:
        """Evaluate with a model."""
        self.work = work
        self.model = model
        self._server: Server | None = None

    def close(self) -> None:
        """End what still runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def evaluate(self, asked: dict[str, Any], piece: Piece) -> None:
        """Make the output of a piece.

        Raises:
            PieceFailed: It could not be made.
        """
        final = self.work.run.out(piece)
        part = final.with_name(f".{final.name}.{self.work.number}.part")
        _remove(part)
        private_folder(part.parent)
        values = self._values(asked, piece, part)
        begun = time.monotonic()
        more = self._served(asked, values) if "{pieces}" in asked["infer"] else self._run_alone(asked, values)
        if not part.exists():
            raise PieceFailed("the command ended well and wrote nothing to {out}")
        seconds = time.monotonic() - begun - more.get("load_s", 0.0)
        made = {"seconds": seconds, "node": self.work.node, "number": self.work.number, "at": time.time(), **more}
        if final.is_dir() and part.is_dir():
            shutil.rmtree(final)  # a folder cannot replace another one that holds something
        part.replace(final)
        write_json(self.work.run.made(piece), made, durable=False)

    def _values(self, asked: dict[str, Any], piece: Piece, part: Path) -> dict[str, str]:
        return {
            "model": str(self.model),
            "python": sys.executable,
            "cache": str(self.work.cache),
            "pieces": "-",
            "dataset": piece.dataset,
            "data": asked["data"],
            "first": str(piece.first),
            "last": str(piece.last),
            "count": str(piece.items),
            "out": str(part),
        }

    def _run_alone(self, asked: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
        scratch = self.work.folder / "scratch"
        private_folder(scratch)
        private_folder(self.work.cache)
        words = argv(asked["infer"], values, f"infer of {values['dataset']}")
        ended = run(words, Limits(wall_s=asked["timeout_s"], closed=False), folder=scratch)
        sys.stdout.write(ended.tail)
        if not ended.ok:
            raise PieceFailed(ended.why)
        return {}

    def _served(self, asked: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
        private_folder(self.work.cache)
        words = tuple(argv(asked["infer"], values, f"infer of {values['dataset']}"))
        told: dict[str, Any] = {}
        try:
            if self._server is None or self._server.words != words:
                self.close()
                self._server = Server(words, timeout_s=asked["timeout_s"], environment=os.environ)
                told["load_s"] = self._server.load_s
            piece: dict[str, Any] = {name: values[name] for name in ("dataset", "data", "out", "cache")}
            piece |= {"first": int(values["first"]), "last": int(values["last"])}
            answer = self._server.ask(piece, asked["timeout_s"])
        except ServerError as error:
            self.close()
            raise PieceFailed(str(error)) from error
        if not answer["ok"]:
            raise PieceFailed(str(answer.get("error", "it did not say why")))
        return told | {name: answer[name] for name in ("prepare_s",) if name in answer}


def main(folder: Path) -> int:
    """Evaluate what the job's folder says and return the exit status."""
    work = Work(folder)
    if not work.is_mine():
        return NOT_OURS
    work.tell("waits for the model")
    try:
        with ExitStack() as stack:
            if work.asked["from_storage"]:
                model = Path(work.model.source)
            else:
                model, staged = stack.enter_context(staged_for(work.model, work.shelf, work.run.id))
                if staged.fetched:
                    print(f"{work.node}: the model was not here: copied in {staged.seconds:.1f} s", flush=True)  # noqa: T201
            runner = Runner(work, model)
            stack.callback(runner.close)
            return _evaluate_all(work, runner)
    except StagingError as error:
        write_json(work.run.node(work.node), {"node": work.node, "ok": False, "kind": error.kind, "why": str(error)})
        work.tell("failed", why=str(error), staging=error.kind)
        print(f"{work.node}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return FAILED


def _evaluate_all(work: Work, runner: Runner) -> int:
    failed = 0
    for place, asked in enumerate(work.asked["pieces"]):
        piece = Piece(*asked["piece"])
        if work.run.out(piece).exists() or claim(work.run.begun(work.number, piece), work.job_id) == TAKEN:
            continue
        work.tell("runs", piece=asked["piece"], place=place, since=time.time())
        try:
            runner.evaluate(asked, piece)
        except (PieceFailed, OSError, subprocess.SubprocessError, ValueError) as error:
            failed += 1
            why = str(error) or type(error).__name__
            write_json(work.run.failed(work.number, piece), {"why": why, "node": work.node, "at": time.time()})
            print(f"{piece.id} failed: {why}", file=sys.stderr, flush=True)  # noqa: T201
    work.tell("ended", failed=failed)
    return FAILED if failed else 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
