"""A GGUF model in a process of its own, seen from ours: started when first asked, ended when it hangs, started again after that.

Whatever happens to the model, its caller gets an answer or one of our errors within the time-out. One call at a time has the
model; the process keeps what it has read, so a prompt that begins like the last one is cheap.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from assistant import processes
from assistant.errors import InputError, ModelError, Unavailable
from assistant.llm.gguf import Gguf, available_bytes, digest_of, parts_of, read_gguf
from assistant.llm.worker import check_grammar
from assistant.redact import head_of

logger = logging.getLogger(__name__)

GRACE_S = 3.0
"""Longer than the time-out by this the process may take to end an answer by itself; then it is ended."""
LOAD_S = 180.0
MOST_FAILURES = 3
PAUSE_S = 300.0
"""After so many crashes in a row it is not started for this long."""
LARGEST_QUESTION = 4 << 20
"""Characters of all messages; no model has room for more."""
SPARE_BYTES = 256 << 20
"""What llama.cpp and Python need besides weights and cache."""
MISSING = (
    "a GGUF model was wanted, but llama-cpp-python is not installed here; rules, memory and the embedded answers work without it. "
    "Install it with: make deps (it needs a C++ compiler and cmake), or set model.url to an endpoint"
)


class AnswerPiece(NamedTuple):
    """A part of an answer."""

    text: str


@dataclass(frozen=True)
class AnswerSummary:
    """How an answer ended."""

    finish: str
    """stop, length, timeout or cancelled."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """Of the input, those that were read for the call before."""
    limit: int = 0
    """Tokens that the answer could have: what was wanted, or what the input left."""


@dataclass(frozen=True)
class Ask:
    """A request for one turn of a model."""

    messages: Sequence[Mapping[str, str]]
    """Each with `role` (system, user, assistant) and `content`."""
    gbnf: str = ""
    """What may be said; empty for anything."""
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    stop: Sequence[str] = ()
    opening: str = ""
    """What this model is given to say first: that it has thought, or which channel it speaks on."""


class ModelProcess:
    """One model in one process; safe to use from several threads, who wait for one another."""

    def __init__(
        self,
        path: Path,
        *,
        context: int = 8192,
        threads: int = 0,
        timeout_s: float = 120.0,
        sha256: str = "",
        architectures: Sequence[str] = (),
        available: Callable[[], int] = available_bytes,
        command: Sequence[str] = (),
    ) -> None:
        """Remember what is wanted; nothing is started or read yet.

        Args:
            path: The GGUF file.
            context: Tokens of one conversation, at most what the model was trained on.
            threads: 0 for half of the processors.
            timeout_s: Seconds that one answer may take; loading has its own limit.
            sha256: Of the file; empty to believe it.
            architectures: Those that can hold a conversation; empty for any.
            available: Tells how much memory is left.
            command: Another worker, for tests.
        """
        self.path, self.context, self.timeout_s, self.sha256 = path, context, timeout_s, sha256
        self.threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._architectures, self._available, self._command = architectures, available, command
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._failures, self._paused_until = 0, 0.0
        self._checked: Gguf | None = None

    def check(self) -> Gguf:
        """Return the header of a file that may be loaded.

        Raises:
            InputError: It is missing, cut, of an architecture that does not converse, too large, or not the file that was meant.
        """
        header = read_gguf(self.path)
        if self._architectures and header.architecture not in self._architectures:
            raise InputError(
                f"{self.path}: wanted a model that converses, found the architecture {header.architecture!r}; "
                "take a model of a known one: nightshift model list"
            )
        if not header.template:
            raise InputError(
                f"{self.path}: the file has no chat template: it goes on with text and does not answer; take its instruct variant"
            )
        weights = sum(part.stat().st_size for part in parts_of(self.path))
        needed_bytes, free = weights + header.cache_bytes(self.room(header)) + SPARE_BYTES, self._available()
        if needed_bytes > free:
            raise InputError(
                f"{self.path}: it needs about {needed_bytes / 1e9:.1f} GB with a context of {self.room(header):,}, "
                f"{free / 1e9:.1f} GB are free; take a smaller model or quantisation, or a smaller model.context"
            )
        if self.sha256 and digest_of(self.path) != self.sha256.lower():
            raise InputError(
                f"{self.path}: its sha256 is {digest_of(self.path)}, model.sha256 says {self.sha256}: it is not the "
                "file that was meant; get it again, or correct the setting"
            )
        self._checked = header
        return header

    def room(self, header: Gguf) -> int:
        """Return the tokens of one conversation: what is wanted, at most what the model was trained on."""
        return min(self.context, header.context or self.context)

    def say(self, ask: Ask) -> Iterator[AnswerPiece | AnswerSummary]:
        """Yield the pieces of an answer as they come, then how it ended; leaving early ends the answer.

        Raises:
            ModelError: The messages do not fit, the grammar or template is refused, llama_cpp is missing.
            InputError: The file cannot be used.
            Unavailable: The process crashed, hung or took too long; the next call starts it anew.
        """
        size = sum(len(message["content"]) for message in ask.messages)
        if size > LARGEST_QUESTION:
            raise ModelError(f"{size:,} characters were to be read, {LARGEST_QUESTION:,} are the limit; ask about less")
        if ask.gbnf:
            check_grammar(ask.gbnf)
        with self._model_lock():
            child = self._ready()
            request = {**ask.__dict__, "do": "say", "timeout_s": self.timeout_s}
            yield from self._answers(child, request, self.timeout_s + GRACE_S)

    def load(self) -> Mapping[str, Any]:
        """Load the model now and return what the process says about itself: `room` in tokens, `pid`."""
        with self._model_lock():
            return self._ready().about

    def close(self) -> None:
        """End the process; the next call starts it again."""
        with self._lock:
            self._end()

    @contextmanager
    def _model_lock(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self.timeout_s):
            raise Unavailable(f"{self.path.name}: another call has had the model for {self.timeout_s:g} s; try again later")
        try:
            yield
        finally:
            self._lock.release()

    def _ready(self) -> Child:
        if self._child is not None and self._child.alive():
            return self._child
        if time.monotonic() < self._paused_until:
            raise Unavailable(f"{self.path.name}: its process ended {MOST_FAILURES} times in a row; it rests for {PAUSE_S:g} s")
        if not self._command and importlib.util.find_spec("llama_cpp") is None:
            raise ModelError(MISSING)
        header = self._checked or self.check()
        self._end()
        self._child = child = Child(self._command or (sys.executable, "-P", "-m", "assistant.llm.worker"))
        load = {"do": "load", "path": str(self.path), "context": self.room(header), "threads": self.threads}
        (child.about,) = [value for value in self._answers(child, load, LOAD_S, whole=True) if isinstance(value, dict)]
        logger.info("model=%s loaded room=%s", self.path, child.about.get("room"))
        return child

    def _answers(self, child: Child, request: Mapping[str, Any], limit_s: float, *, whole: bool = False) -> Iterator[Any]:
        """Send a request and yield what comes back; a process that does not answer is ended."""
        ended = False
        try:
            for answer in child.ask(request, time.monotonic() + limit_s):
                if "piece" in answer:
                    yield AnswerPiece(answer["piece"])
                    continue
                ended = True
                self._failures = 0
                if "error" in answer:
                    raise self._refused(answer["kind"], answer["error"])
                yield answer["done"] if whole else self._summary(answer["done"])
        except ChildGone as error:
            ended = True
            self._failed()
            raise Unavailable(f"{self.path.name}: {error}; it is started anew with the next call") from error
        finally:
            if not ended:
                child.stop_answer()

    def _summary(self, values: Mapping[str, Any]) -> AnswerSummary:
        if values["finish"] == "timeout":
            raise Unavailable(
                f"{self.path.name}: no whole answer within {self.timeout_s:g} s (model.timeout_s); "
                "take a smaller model, ask about less, or wait longer"
            )
        return AnswerSummary(**values)

    def _refused(self, kind: str, why: str) -> Exception:
        if kind == "missing":
            return ModelError(f"{MISSING} ({why})")
        if kind == "load":
            self._end()
            return InputError(f"{self.path}: llama.cpp cannot load it: {why}; see nightshift model info {self.path}")
        if kind == "room":
            return ModelError(f"{self.path.name}: {why}; ask about less, or raise model.context")
        return ModelError(f"{self.path.name}: {why}")

    def _failed(self) -> None:
        self._end()
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self._failures, self._paused_until = 0, time.monotonic() + PAUSE_S

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


# A process that is asked and answers in JSON, one object a line; whoever asks never waits longer than it said.


class ChildGone(Exception):
    """The process ended, hangs, or speaks no JSON."""


class Child:
    """The process and the thread that reads from it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.about: Mapping[str, Any] = {}
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        root = str(Path(__file__).parents[2])
        environment = processes.own_environment({"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))})
        self.process = processes.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            environment=environment,
            # Ctrl-C in a terminal ends the question, not the model
            start_new_session=True,
        )
        self.answers: queue.Queue[bytes | None] = queue.Queue()
        self.number = 0
        self.reader = threading.Thread(target=self._read, name="model", daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.answers.put(line)
        self.answers.put(None)

    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self.process.poll() is None

    def ask(self, request: Mapping[str, Any], until: float) -> Iterator[dict[str, Any]]:
        """Send a request and yield its answers, the last one without `piece`.

        Args:
            request: What is asked.
            until: When there must be the last answer, by time.monotonic().

        Raises:
            Gone: There is none by then, or never will be.
        """
        self.number += 1
        self._send({**request, "id": self.number}, until)
        while True:
            answer = self._next(until)
            if answer.get("id") != self.number:
                # the rest of an answer that nobody waits for any more
                continue
            yield answer
            if "piece" not in answer:
                return

    def _send(self, request: Mapping[str, Any], until: float) -> None:
        assert self.process.stdin is not None
        # a process that hangs does not read: whoever writes would hang with it
        timer = threading.Timer(max(until - time.monotonic(), 0.1), self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ChildGone(self._how()) from error
        finally:
            timer.cancel()

    def _next(self, until: float) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=max(until - time.monotonic(), 0.01))
        except queue.Empty:
            raise ChildGone("its process did not answer in time and was ended") from None
        if line is None:
            raise ChildGone(self._how())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ({"piece", "done", "error"} & set(answer)):
            raise ChildGone(f"its process said {line[:40]!r}, which is no answer")
        return answer

    def _how(self) -> str:
        """Return how the process ended, with the last line that it left."""
        try:
            status = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "its process closed the line"
        how = f"ended with status {status}"
        if status < 0:
            name = signal.Signals(-status).name if -status in {member.value for member in signal.Signals} else str(-status)
            how = f"was ended by {name}" + (" (the kernel does that when memory runs out)" if name == "SIGKILL" else "")
        last = self._last_words()
        return f"its process {how}" + (f": {last}" if last else "")

    def _last_words(self) -> str:
        try:
            self.errors.seek(max(self.errors.seek(0, os.SEEK_END) - 2000, 0))
            lines = self.errors.read().decode("utf-8", "replace").split("\n")
        except (OSError, ValueError):
            return ""
        return next((head_of(line.strip(), 200) for line in reversed(lines) if line.strip()), "")

    def stop_answer(self) -> None:
        """Ask for an early end of the answer that is under way; what still comes of it is passed over."""
        if self.alive():
            self.process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()
        self.reader.join(timeout=2)
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                logger.debug("model's line was closed by the other side")
        self.errors.close()
