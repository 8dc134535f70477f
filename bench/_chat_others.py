"""How soon the chat shows what other processes write to the store, for bench/chat.py. Not a benchmark by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from assistant.ports import SystemClock
from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.store import Store
from bench._terminal import Terminal

LIMIT_S = 2.0
FIRST_JOB = 99_001
OPENS = """
import sys
from pathlib import Path
from assistant.ports import SystemClock
from assistant.records import Event, EventKind
from assistant.store import Store
clock = SystemClock()
with Store(Path(sys.argv[1]), clock) as store:
    store.open_incident(Event(EventKind.JOB_ENDED, sys.argv[2], None, clock.now()))
"""


def ask(store: Store, times: int) -> list[int]:
    """Let cordons wait for a person; return their approvals."""
    now = SystemClock().now()
    asked = []
    for number in range(1, times + 1):
        preview = f"scontrol update NodeName=node{number:04} State=DRAIN"
        arguments = {"node": f"node{number:04}", "reason": "broken"}
        call = Call(0, None, "cordon_node", arguments, "it is broken", "engine", now, CallStatus.PENDING, preview=preview)
        decided = Decision(Verdict.ASK, "mode.propose", "policy", now)
        asked.append(store.park(store.write_call(call, kind="cordon").id, decided, now + timedelta(hours=12)))
    return asked


def incidents_shown(terminal: Terminal, store: Store, times: int) -> list[float]:
    """Let another process open incidents; return the seconds from each one's moment to the screen, ascending."""
    found = []
    for job in range(FIRST_JOB, FIRST_JOB + times):
        seen = _seen(terminal, [sys.executable, "-c", OPENS, str(store.path), str(job)], f"job {job}")
        (incident,) = store.incidents(job=str(job))
        found.append(seen - incident.opened.timestamp())
    return sorted(found)


def answers_shown(terminal: Terminal, store: Store, approvals: Sequence[int]) -> list[float]:
    """Let `nightshift deny` answer approvals; return the seconds from each answer to the screen, ascending."""
    found = []
    for left, approval in zip(range(len(approvals) - 1, -1, -1), approvals, strict=True):
        sees = f"{left} wait{'s' * (left == 1)} for you" if left else "Nothing waits for you"
        seen = _seen(terminal, [sys.executable, "-m", "assistant", "--store", str(store.path), "deny", str(approval)], sees)
        answered = store.approval(approval).answered
        assert answered is not None
        found.append(seen - answered.timestamp())
    return sorted(found)


def _seen(terminal: Terminal, command: Sequence[str], text: str) -> float:
    """Run another process and return the moment at which the screen shows a text, in seconds since the epoch."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path.cwd()) as other:
        at = terminal.until(lambda shown: text in shown, text)
        moment = time.time() - (time.perf_counter() - at)
        if other.wait():
            raise SystemExit(f"{command} ended with {other.returncode}")
    return moment
