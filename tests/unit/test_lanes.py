"""The threads of the chat: one thing after the other, the newest request of a kind, and an end."""

from __future__ import annotations

import threading
import time

from assistant.tui.messages import Lane


def gone(name: str) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(thread.name == f"chat-{name}" for thread in threading.enumerate()):
            return True
        time.sleep(0.01)
    return False


def test_a_closed_lane_does_what_was_asked_before_and_ends_its_thread() -> None:
    done, may = list[str](), threading.Event()
    lane = Lane("closing", lambda name, error: done.append(f"{name}: {error}"))
    lane.ask("first", lambda: may.wait(10))
    lane.ask("fails", lambda: 1 // 0)
    lane.ask("last", lambda: done.append("old"))
    lane.ask("last", lambda: done.append("last"))
    lane.close()
    lane.close()
    lane.ask("late", lambda: done.append("late"))
    may.set()
    assert gone("closing")
    assert done == ["closing: integer division or modulo by zero", "last"]


def test_a_lane_that_was_asked_nothing_has_no_thread_to_end() -> None:
    lane = Lane("idle", lambda name, error: None)
    lane.close()
    lane.ask("late", lambda: None)
    assert gone("idle")
