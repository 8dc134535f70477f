"""The job that is meant where a question names none: the only one that runs, the newest that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from assistant.agent.dialogue import QuestionRequest
from assistant.agent.moods import CHANGING
from assistant.agent.words import NameInventory

_RUNS = frozenset({"progress", "gpu_use", "stacks", "show_log", "search_log", "job_status", "scheduler_log"})
"""Intents about a job that is at work."""
_FAILED = frozenset({"explain_job", "log_errors", "plan", "seen_before", "newest_checkpoint", "checkpoints"})
"""Intents about a job that failed."""
_ALIVE = ("running", "pending")
MOST_OTHERS = 3


class LikeliestJob(NamedTuple):
    """A question with the job that was taken for it."""

    request: QuestionRequest
    note: str
    """How that is told; empty where none was taken."""


def likeliest_job(request: QuestionRequest, inventory: NameInventory, needs: tuple[str, ...]) -> LikeliestJob:
    """Return a question with the one sensible job in it, where it names none and there is one.

    Args:
        request: As it was completed from what was said before.
        inventory: What exists.
        needs: Kinds of names that its intent needs.
    """
    alone = needs.count("job") == 1 or request.intent in ("plan", "seen_before")
    if not alone or request.job or request.incident is not None or request.names.strangers or request.names.numbers:
        return LikeliestJob(request, "")
    if request.names.candidates:
        return _of_candidates(request, inventory)
    states = inventory.states
    running = [job for job, state in states.items() if state == "running"]
    alive = [job for job, state in states.items() if state in _ALIVE]
    if request.intent in _RUNS and len(running) == 1:
        return _with_job(request, running[0], "the only one that runs")
    users = request.names.users
    failed = [job for job in inventory.failed if not users or inventory.owners.get(job) in users]
    if request.intent in _FAILED and failed:
        older = ", ".join(failed[1 : 1 + MOST_OTHERS])
        return _with_job(request, failed[0], f"the newest that failed{f'; before it: {older}' if older else ''}")
    if request.intent == "cancel" and len(alive) == 1:
        return _with_job(request, alive[0], f"the only one that is {states[alive[0]]}")
    if request.intent == "recover" and len(inventory.failed) == 1:
        return _with_job(request, inventory.failed[0], "the only one that failed")
    return LikeliestJob(request, "")


def _of_candidates(request: QuestionRequest, inventory: NameInventory) -> LikeliestJob:
    """Take the job at work for a question about work, else the newest that failed, else the newest."""
    candidates, states = request.names.candidates, inventory.states
    running = [job for job in candidates if states.get(job) == "running"]
    if request.intent == "cancel":
        running = [job for job in candidates if states.get(job) in _ALIVE]
    failed = [job for job in inventory.failed if job in candidates]
    if request.intent in CHANGING and len(failed if request.intent == "recover" else running) != 1:
        return LikeliestJob(request, "")
    fitting = running if request.intent in (_RUNS | {"cancel"}) else failed if request.intent in (_FAILED | {"recover"}) else ()
    job = (*fitting, *candidates)[0]
    remaining = ", ".join(candidate for candidate in candidates if candidate != job)
    return _with_job(request, job, f"of those that fit the description; the others: {remaining}")


def _with_job(request: QuestionRequest, job: str, why: str) -> LikeliestJob:
    return LikeliestJob(replace(request, job=job), f"(Taken: job {job}, {why}.)")
