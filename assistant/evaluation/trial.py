"""A GPU trial: evaluate some pieces with the model in this node's memory: `python -m assistant.evaluation.trial JOB`.

A piece is done when its output lies under its name, which happens at once and as a whole. A piece that is done is never done
again, one that failed does not keep the others from being tried, and one that the coordinator took away is left to another trial.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.evaluation.files import claim, write_json
from assistant.evaluation.sandbox import ProgramLimits, run
from assistant.evaluation.stage import FAILED, NOT_OURS, JobContext, StagingError, argv, staged_for
from assistant.evaluation.work import Piece
from assistant.private_files import private_folder

WITHDRAWN = "taken away"
"""What the coordinator writes where the trial would say that it begins a piece."""


class PieceFailed(Exception):
    """One piece could not be evaluated; the others may be."""


class TrialRunner:
    """Evaluates the pieces of a trial, one after the other."""

    def __init__(self, work: JobContext, model: Path) -> None:
        """Evaluate with a model."""
        self.work = work
        self.model = model
        self._server: Server | None = None

    def close(self) -> None:
        """End what still runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def evaluate(self, entry: dict[str, Any], piece: Piece) -> None:
        """Make the output of a piece.

        Raises:
            PieceFailed: It could not be made.
        """
        final = self.work.run.out(piece)
        part = final.with_name(f".{final.name}.{self.work.number}.part")
        _remove(part)
        private_folder(part.parent)
        values = self._values(entry, piece, part)
        start = time.monotonic()
        more = self._served(entry, values) if "{pieces}" in entry["infer"] else self._run_alone(entry, values)
        if not part.exists():
            raise PieceFailed("the command ended well and wrote nothing to {out}")
        seconds = time.monotonic() - start - more.get("load_s", 0.0)
        piece_record = {"seconds": seconds, "node": self.work.node, "number": self.work.number, "at": time.time(), **more}
        if final.is_dir() and part.is_dir():
            shutil.rmtree(final)  # a folder cannot replace another one that holds something
        part.replace(final)
        write_json(self.work.run.timing_file(piece), piece_record, durable=False)

    def _values(self, entry: dict[str, Any], piece: Piece, part: Path) -> dict[str, str]:
        return {
            "model": str(self.model),
            "python": sys.executable,
            "cache": str(self.work.cache),
            "pieces": "-",
            "dataset": piece.dataset,
            "data": entry["data"],
            "first": str(piece.first),
            "last": str(piece.last),
            "count": str(piece.items),
            "out": str(part),
        }

    def _run_alone(self, entry: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
        scratch = self.work.folder / "scratch"
        private_folder(scratch)
        private_folder(self.work.cache)
        words = argv(entry["infer"], values, f"infer of {values['dataset']}")
        ended = run(words, ProgramLimits(wall_s=entry["timeout_s"], closed=False), folder=scratch)
        sys.stdout.write(ended.tail)
        if not ended.ok:
            raise PieceFailed(ended.why)
        return {}

    def _served(self, entry: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
        private_folder(self.work.cache)
        words = tuple(argv(entry["infer"], values, f"infer of {values['dataset']}"))
        measured: dict[str, Any] = {}
        try:
            if self._server is None or self._server.words != words:
                self.close()
                self._server = Server(words, timeout_s=entry["timeout_s"], environment=os.environ)
                measured["load_s"] = self._server.load_s
            piece: dict[str, Any] = {name: values[name] for name in ("dataset", "data", "out", "cache")}
            piece |= {"first": int(values["first"]), "last": int(values["last"])}
            answer = self._server.ask(piece, entry["timeout_s"])
        except ServerError as error:
            self.close()
            raise PieceFailed(str(error)) from error
        if not answer["ok"]:
            raise PieceFailed(str(answer.get("error", "it did not say why")))
        return measured | {name: answer[name] for name in ("prepare_s",) if name in answer}


def main(folder: Path) -> int:
    """Evaluate what the job's folder says and return the exit status."""
    work = JobContext(folder)
    if not work.is_mine():
        return NOT_OURS
    work.tell("waits for the model")
    try:
        with ExitStack() as stack:
            if work.spec["from_storage"]:
                model = Path(work.model.source)
            else:
                model, staged = stack.enter_context(staged_for(work.model, work.shelf, work.run.id))
                if staged.fetched:
                    print(f"{work.node}: the model was not here: copied in {staged.seconds:.1f} s", flush=True)  # noqa: T201
            runner = TrialRunner(work, model)
            stack.callback(runner.close)
            return _evaluate_all(work, runner)
    except StagingError as error:
        write_json(work.run.node(work.node), {"node": work.node, "ok": False, "kind": error.kind, "why": str(error)})
        work.tell("failed", why=str(error), staging=error.kind)
        print(f"{work.node}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return FAILED


def _evaluate_all(work: JobContext, runner: TrialRunner) -> int:
    failed = 0
    for place, entry in enumerate(work.spec["pieces"]):
        piece = Piece(*entry["piece"])
        if work.run.out(piece).exists() or claim(work.run.claim_file(work.number, piece), work.job_id) == WITHDRAWN:
            continue
        work.tell("runs", piece=entry["piece"], place=place, since=time.time())
        try:
            runner.evaluate(entry, piece)
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


# A program that loads the model once and then evaluates piece after piece, told by lines on its standard input.
#
#     we:   starts it with {pieces} filled in as `-`
#     it:   {"ready": true}                                  when the model is loaded
#     we:   {"dataset": …, "data": …, "first": …, "last": …, "out": …}
#     it:   {"ok": true} or {"ok": false, "error": …}        when `out` is written
#
# Other lines on its standard output are passed on to the log.


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies; for a child, before it becomes its program."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class ServerError(Exception):
    """An inference program ended, or did not answer in time."""


class Server:
    """An inference program that loads the model once and answers for each piece; `close` ends it with everything it started."""

    def __init__(self, words: Sequence[str], *, timeout_s: float, environment: Mapping[str, str]) -> None:
        """Start it and wait until the model is loaded.

        Raises:
            ServerError: It could not be started, or did not get there.
        """
        self.words = tuple(words)
        start = time.monotonic()
        try:
            self._process = processes.start(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                environment=environment,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            raise ServerError(f"{words[0]} cannot be started: {error}") from error
        self._buffer = b""
        try:
            self._answer("ready", timeout_s)
        except ServerError:
            self.close()
            raise
        self.load_s = time.monotonic() - start

    def ask(self, piece: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Let it evaluate a piece and return its answer.

        Raises:
            ServerError: It ended or did not answer in time; it must be closed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(piece).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerError(self._ended()) from None
        return self._answer("ok", timeout_s)

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0 if self._process.poll() is None else 0.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self, key: str, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, remaining = self._buffer.partition(b"\n")
            if newline:
                self._buffer = remaining
                record = _record(line)
                if key in record:
                    return record
                sys.stdout.write(line.decode(errors="replace") + "\n")
                continue
            self._read(deadline, timeout_s)

    def _read(self, deadline: float, timeout_s: float) -> None:
        assert self._process.stdout is not None
        left_s = deadline - time.monotonic()
        with selectors.DefaultSelector() as waiting:  # select() itself fails where many files are open
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if left_s <= 0 or not waiting.select(left_s):
                raise ServerError(f"it did not answer within {timeout_s:.0f} s")
        block = os.read(self._process.stdout.fileno(), 1 << 16)
        if not block:
            raise ServerError(self._ended())
        self._buffer += block

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)
        status = self._process.poll()
        if status is not None and status < 0:
            return f"it was ended by {signal.Signals(-status).name}"
        return f"it ended with exit status {status}"


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
