"""A process that is asked and answers in JSON, one object a line; whoever asks never waits longer than it said."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from assistant import processes

logger = logging.getLogger(__name__)


class Gone(Exception):
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
        """Tell whether it runs."""
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
            raise Gone(self._how()) from error
        finally:
            timer.cancel()

    def _next(self, until: float) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=max(until - time.monotonic(), 0.01))
        except queue.Empty:
            raise Gone("its process did not answer in time and was ended") from None
        if line is None:
            raise Gone(self._how())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ({"piece", "done", "error"} & set(answer)):
            raise Gone(f"its process said {line[:40]!r}, which is no answer")
        return answer

    def _how(self) -> str:
        """Return how the process ended, with the last line that it left."""
        try:
            status = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "its process closed the line"
        how = f"ended with status {status}"
        if status < 0:
            name = signal.Signals(-status).name if -status in {one.value for one in signal.Signals} else str(-status)
            how = f"was ended by {name}" + (" (the kernel does that when memory runs out)" if name == "SIGKILL" else "")
        last = self._last_words()
        return f"its process {how}" + (f": {last}" if last else "")

    def _last_words(self) -> str:
        try:
            self.errors.seek(max(self.errors.seek(0, os.SEEK_END) - 2000, 0))
            lines = self.errors.read().decode("utf-8", "replace").split("\n")
        except (OSError, ValueError):
            return ""
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def stop_answer(self) -> None:
        """Ask for an early end of the answer that is under way; what still comes of it is passed over."""
        if self.alive():
            self.process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.reader.join(timeout=2)
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                logger.debug("model's line was closed by the other side")
        self.errors.close()
