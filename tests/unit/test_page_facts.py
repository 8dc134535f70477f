"""What a page says of a diagnosis once something has been done about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.records import CallStatus, Incident, IncidentState
from assistant.recover.situation import PageFacts, advice_left, facts_of_page, summary_now

LIVES = "Job 2 is still running and holds 2 nodes (gpu001: bash, python3 x.py; gpu002: bash)."
SUMMARY = f"Network error on gpu003 after step 60. {LIVES}"
UPLOAD = "Wait until what it needs is there again, then restart from the last healthy checkpoint. Sync the offline run by hand."


def history(tool: str, value: dict[str, Any]) -> Any:
    call = SimpleNamespace(id=1, tool=tool, status=CallStatus.DONE, arguments={})
    outcome = SimpleNamespace(value=value, ok=True, error="")
    return SimpleNamespace(
        calls=lambda _: [call], outcome=lambda _: outcome, stages=lambda _: (), diagnosis=lambda _: None, decisions=lambda _: []
    )


def incident(state: IncidentState) -> Incident:
    return cast("Incident", SimpleNamespace(id=1, state=state))


@pytest.mark.parametrize("facts", [PageFacts(ended=True), PageFacts(restarted_as="3")])
def test_a_job_that_was_ended_is_not_said_to_run(facts: PageFacts) -> None:
    assert summary_now(SUMMARY, facts) == "Network error on gpu003 after step 60."
    left = advice_left(f"{LIVES} See to the port.", facts, incident(IncidentState.ESCALATED), history("x", {}))
    assert left == "See to the port."


def test_a_job_that_still_runs_is_said_to() -> None:
    assert summary_now(SUMMARY, PageFacts()) == SUMMARY


def test_nobody_is_told_to_restart_a_training_that_is_over() -> None:
    store = history("training_finished", {"finished": True, "note": "its training is over"})
    facts = facts_of_page(store, 1)
    assert advice_left(UPLOAD, facts, incident(IncidentState.ESCALATED), store) == "Sync the offline run by hand."
    goes_on = history("training_finished", {"finished": False})
    assert advice_left(UPLOAD, facts_of_page(goes_on, 1), incident(IncidentState.ESCALATED), goes_on) == UPLOAD
