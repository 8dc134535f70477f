"""A job that a call queued again under its own id is released under that id, and one that it submitted as the new job."""

from __future__ import annotations

from typing import Any, cast

import pytest

from assistant.errors import ToolError
from assistant.gate.running import FrozenCommands, guarded
from assistant.ports import Scheduler
from assistant.rendering import NEW_JOB
from assistant.store.calls import command_digest

TAG = "nightshift:teststore:3:17"


class Recording:
    """A scheduler that notes its commands; each job that is looked at carries the tag of the call."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def command_lines(self, method: str, *arguments: Any, **named: Any) -> list[str]:
        return [f"{method} {arguments[0]}"]

    def job(self, job_id: str) -> Any:
        return type("Job", (), {"comment": f"run 7 {TAG}"})

    def requeue(self, job_id: str, **named: Any) -> None:
        self.given.append(f"requeue {job_id}")

    def release(self, job_id: str) -> None:
        self.given.append(f"release {job_id}")


@pytest.mark.parametrize(
    ("frozen", "given"),
    [
        (["requeue 7", "release 7"], ["requeue 7", "release 7"]),
        ([f"release {NEW_JOB}"], ["release 7"]),  # submitted before the process was interrupted
    ],
)
def test_a_release_is_compared_with_the_form_in_which_it_was_frozen(frozen: list[str], given: list[str]) -> None:
    scheduler = Recording()
    guard: Any = guarded(
        cast("Scheduler", scheduler), lambda: None, FrozenCommands([command_digest(line) for line in frozen], "shown"), tag=TAG
    )
    if "requeue 7" in frozen:
        guard.requeue("7", hold=True)
    guard.release("7")
    assert scheduler.given == given
    with pytest.raises(ToolError, match="not the one that was allowed"):
        guard.release("7")
    assert scheduler.given == given
