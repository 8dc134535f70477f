"""The same approval answered from the chat and from the command line at once: exactly one wins, and only what it said happens."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from textual.message import Message

from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.tui.backend import ChatBackend
from assistant.tui.messages import ApprovalSettled
from tests.scenarios.scene import Scene
from tests.tui.conftest import OnScene

TIMES = 100
COMMAND_LINE = """
import sys
from assistant.cli.main import main
print("code ready", flush=True)
for line in sys.stdin:
    approval, verdict = line.split()
    code = main(["--store", sys.argv[1], verdict, approval, *(["--later"] if verdict == "approve" else [])])
    print("code", int(code), flush=True)
"""


@pytest.fixture
def shell(scene: Scene, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs `nightshift approve|deny` as often as it is told to."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND_LINE, str(scene.engine.store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "NIGHTSHIFT_STATE_FOLDER": str(tmp_path / "state")},
    ) as process:
        assert _code(process) == "ready"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _code(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return next(line.split()[1] for line in process.stdout if line.startswith("code "))


def _asked(scene: Scene, number: int) -> int:
    """Let a cordon wait for a person, and return its approval."""
    store = scene.engine.store
    now = scene.clock.now()
    arguments = {"node": f"node{number % 8 + 1:02}", "reason": f"race {number}"}
    call = store.write_call(
        Call(0, None, "cordon_node", arguments, "a race", "agent", now, CallStatus.PENDING, preview=f"cordon {number}"),
        kind="cordon",
    )
    return store.park(call.id, Decision(Verdict.ASK, "a rule", "policy", now), now + timedelta(days=3650))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_exactly_one_of_two_doors_wins(scene: Scene, shell: subprocess.Popen[str]) -> None:
    told: queue.Queue[Message] = queue.Queue()
    backend = ChatBackend(OnScene(scene), told.put, by="chat:alice", owner="chat:alice@here:1.1", clock=scene.clock)
    winners: Counter[str] = Counter()
    assert shell.stdin is not None
    for number in range(TIMES):
        approval = _asked(scene, number)
        in_shell, here = ("deny", Verdict.ALLOW) if number % 2 else ("approve", Verdict.DENY)
        if number % 4 < 2:
            backend.settle(approval, here)
        shell.stdin.write(f"{approval} {in_shell}\n")
        shell.stdin.flush()
        if number % 4 >= 2:
            # now the one is ahead and now the other
            time.sleep(number % 7 * 0.003)
            backend.settle(approval, here)
        shell_won = _code(shell) == "0"
        first = _settled(told, approval)
        assert first.won != shell_won
        answered = scene.engine.store.approval(approval)
        assert answered.verdict is (here if first.won else Verdict.ALLOW if in_shell == "approve" else Verdict.DENY)
        winners["chat" if first.won else "shell"] += 1
    backend.close()
    rows = [row for row in scene.engine.store.audit() if row.what == "approval.answered"]
    assert len(rows) == TIMES
    assert sum(winners.values()) == TIMES
    assert scene.engine.store.verify() is None


def _settled(told: queue.Queue[Message], approval: int) -> ApprovalSettled:
    while True:
        message = told.get(timeout=20)
        if isinstance(message, ApprovalSettled) and message.approval == approval:
            return message
