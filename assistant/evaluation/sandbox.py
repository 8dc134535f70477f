"""Run a program that is not trusted, or not trusted to end: nothing of it is left when this returns.

A small process of ours (`assistant.evaluation.jail`) stands between: it enters name spaces without network, with process ids of
their own, and ends with everything inside. Where the kernel does not let us, it says so and goes on with what there is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.private_files import create_private
from assistant.redact import tail_of

TAIL_BYTES = 4000
GRACE_S = 5.0
"""How long the jail may take beyond the limit, to start and to clear up."""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What a program may use; it is ended, or its calls fail, beyond that."""

    wall_s: float
    cpu_s: int = 3600
    """Of each process."""
    memory_bytes: int = 4 << 30
    """Address space of each process."""
    processes: int = 64
    file_bytes: int = 1 << 30
    closed: bool = True
    """Whether network, other processes and other users' files are out of reach; False only ends it in time and as a whole."""


@dataclass(frozen=True, slots=True)
class EndedProgram:
    """How a program ended."""

    status: int
    """Exit status; negative for a signal."""
    seconds: float
    timed_out: bool
    tail: str
    """The end of what it said."""
    missing: tuple[str, ...] = ()
    """Protections that this machine did not give."""

    @property
    def ok(self) -> bool:
        """Whether it ended well and in time."""
        return self.status == 0 and not self.timed_out

    @property
    def why(self) -> str:
        """Why the program did not end well, for people."""
        if self.timed_out:
            return f"it did not end within {self.seconds:.0f} s and was killed with everything it had started"
        how = f"was ended by {signal.Signals(-self.status).name}" if self.status < 0 else f"ended with exit status {self.status}"
        return f"it {how}: {tail_of(self.tail.strip(), 500) or 'it said nothing'}"


class SandboxedProgram:
    """A program that was started; it ends with the process that started it, and with all that it has started itself."""

    def __init__(
        self, words: Sequence[str], limits: ProgramLimits, *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a program.

        Args:
            words: Program and arguments.
            limits: What it may use.
            folder: Where it works; of a closed one the only place it may write to. Its output is kept there in `said`.
            environment: All that it sees; default: ours.
        """
        self._began_at, self._folder, self._limits = time.monotonic(), folder, limits
        self._report, self._message_file = folder / ".jail.json", folder / "said"
        spec = {"words": list(words), "limits": asdict(limits), "folder": str(folder), "report": str(self._report)}
        with create_private(self._message_file, "wb") as output:
            self._jail = processes.start(
                [sys.executable, "-m", "assistant.evaluation.jail", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                environment={**(processes.own_environment() if environment is None else environment), "PYTHONPATH": _source()},
                start_new_session=True,
            )
        assert self._jail.stdin is not None
        with suppress(BrokenPipeError), self._jail.stdin as words_in:
            words_in.write(json.dumps(spec).encode())

    def wait(self, seconds: float) -> EndedProgram | None:
        """Return how it ended; None when it has not within so many seconds."""
        try:
            self._jail.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return self._ended()

    def kill(self) -> EndedProgram:
        """End it with everything it has started."""
        self._jail.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._jail.wait(timeout=GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(self._jail.pid, signal.SIGKILL)
        self._jail.wait()
        return self._ended()

    def _ended(self) -> EndedProgram:
        report: dict[str, Any] = json.loads(self._report.read_text(encoding="utf-8")) if self._report.exists() else {}
        self._report.unlink(missing_ok=True)
        return EndedProgram(
            status=int(report["status"]) if report else int(self._jail.returncode or 0),
            seconds=time.monotonic() - self._began_at,
            timed_out=report.get("timed_out", not report),
            tail=_tail(self._message_file),
            missing=tuple(report.get("missing", ())),
        )


def run(words: Sequence[str], limits: ProgramLimits, *, folder: Path, environment: Mapping[str, str] | None = None) -> EndedProgram:
    """Run a program to its end, or to the end of its time; arguments as for `Program`."""
    program = SandboxedProgram(words, limits, folder=folder, environment=environment)
    # the jail keeps the time itself; should it hang, the kernel ends with it all that is in its name space
    return program.wait(limits.wall_s + GRACE_S) or program.kill()


def _source() -> str:
    own = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
