"""Names in the place where an intent needs them, the question for one that is missing, and what else could have been meant.

Where a question names no job, the likeliest one is taken and said: the only one that runs, the newest that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.agent.answer import Answer, AnswerKind, one_line
from assistant.agent.chooser import IntentChoice, QuestionIntent
from assistant.agent.dialogue import Dialogue, QuestionRequest, completed
from assistant.agent.moods import CHANGING
from assistant.agent.restart_wishes import restart_wish
from assistant.agent.tellers import READINGS
from assistant.agent.words import NameInventory, Names

MODE = "semantic"
SURE = 0.42
"""Below this share of the best reading, and with a second one near, the answer says what else could have been meant."""
FAIR = 0.2
"""Below this it asks back: a wrong answer to a question costs a look, and the right one came first far more often."""
NEAR = 0.4
"""How near the second reading must be; a lonely one is taken, but for a change."""
SAYS_LITTLE = frozenset({"approve", "out_of_scope"})
"""Where words that nothing knows end up: never offered, and taken only when it is sure."""


def filled_request(request: QuestionRequest, dialogue: Dialogue, intents_by_name: Mapping[str, QuestionIntent]) -> QuestionRequest:
    """Return what is asked with its names; a bare number goes where the intent needs one."""
    names, intent = request.names, intents_by_name[request.intent]
    jobs, incidents = list(names.jobs), list(names.incidents)
    for number in names.numbers:
        if "job" in intent.needs and len(jobs) < intent.needs.count("job"):
            jobs.append(number)
        else:
            incidents.append(int(number))
    filled = replace(
        request,
        job=jobs[0] if jobs else "",
        other_job=jobs[1] if len(jobs) > 1 else "",
        nodes=names.nodes,
        incident=incidents[0] if incidents else None,
    )
    if intent.needs.count("job") > 1 and len(jobs) == 1 and dialogue.jobs:
        return replace(filled, other_job=next((job for job in dialogue.jobs if job != jobs[0]), ""))
    kinds = {*intent.needs, *intent.takes}
    if names.candidates or not kinds or (intent.takes and (filled.job or filled.incident is not None or filled.nodes)):
        return filled
    if request.intent in ("incidents", "node_history", "meaning") and not _points_back(request.question):
        return filled
    added = completed(filled, names, dialogue)
    if request.intent in ("plan", "seen_before") and not filled.job and dialogue.intent in ("explain_incident", "incidents"):
        return replace(filled, incident=added.incident)
    return replace(
        filled,
        job=added.job if "job" in kinds else filled.job,
        nodes=added.nodes if "node" in kinds else filled.nodes,
        incident=added.incident if "incident" in kinds and not ("job" in kinds and added.job) else filled.incident,
    )


def _points_back(question: str) -> bool:
    return bool(re.search(r"\b(?:it|its|that|this|there|them|those)\b", question.lower()))


def missing_name(request: QuestionRequest, intent: QuestionIntent, inventory: NameInventory) -> Answer | None:
    """Return the question for a name that is missing, None when all is there."""
    if request.names.strangers:
        return None
    if request.intent in ("plan", "seen_before") and not request.job and request.incident is None:
        return question_back(request, f"Which job or incident?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if "job" in intent.needs and not request.job:
        return question_back(request, f"Which job?{_fitting_jobs(request, inventory)}", tuple(list(inventory.jobs)[-3:]))
    if intent.needs.count("job") > 1 and not request.other_job:
        return question_back(
            request, f"Job {request.job} and which other one?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:])
        )
    if "node" in intent.needs and not request.nodes:
        hint = f" For instance {inventory.nodes[0]}." if inventory.nodes else " The scheduler names no nodes."
        return question_back(request, f"Which node?{hint}", inventory.nodes[:3])
    if "incident" in intent.needs and request.incident is None:
        hint = f" The newest is {max(inventory.incidents)}." if inventory.incidents else " There are none yet."
        return question_back(request, f"Which incident?{hint}", tuple(str(number) for number in sorted(inventory.incidents)[-3:]))
    return None


def _some_jobs(inventory: NameInventory) -> str:
    newest = list(inventory.jobs.items())[-3:]
    if inventory.unknown and not newest:
        return f" Which ones there are is not known now: {inventory.unknown[0]}"
    return (
        f" The newest: {', '.join(f'{job} ({one_line(name, 30)})' for job, name in newest)}."
        if newest
        else " The scheduler knows none."
    )


def _fitting_jobs(request: QuestionRequest, inventory: NameInventory) -> str:
    """Return the jobs that an order without a name may be about: those at work for an end, those that failed for a restart."""
    users, states = request.names.users, inventory.states
    if request.intent not in ("cancel", "recover") or not inventory.jobs:
        return _some_jobs(inventory)
    if request.intent == "cancel":
        jobs, kind = [job for job in reversed(list(states)) if states[job] in ("running", "pending")], "Running or pending"
    else:
        jobs, kind = list(inventory.failed), "Failed, the newest first"
    jobs = [job for job in request.names.candidates or jobs if not users or inventory.owners.get(job) in users]
    rows = [f"{job} ({one_line(inventory.jobs[job], 30)}{_awaited(job, inventory)})" for job in jobs[:MOST_JOBS]]
    return f" {kind}: {', '.join(rows)}. Nothing is proposed." if rows else _some_jobs(inventory)


def _awaited(job: str, inventory: NameInventory) -> str:
    return f", about which approval {inventory.awaited[job]} waits already" if job in inventory.awaited else ""


def question_back(request: QuestionRequest, text: str, options: tuple[str, ...]) -> Answer:
    """Return a question for what is missing, with what may be said to it."""
    return Answer(text, AnswerKind.ASKS_BACK, MODE, request.intent, round(request.confidence, 3), options=options)


def reading_text(intent: str, request: QuestionRequest) -> str:
    """Return how an intent would be asked about the names of a request."""
    job = request.job or (request.names.numbers[0] if request.names.numbers else "JOB")
    node = request.nodes[0] if request.nodes else "NODE"
    incident = request.incident if request.incident is not None else "ID"
    return READINGS[intent].replace("{job}", job).replace("{node}", node).replace("{incident}", str(incident))


def other_reading(request: QuestionRequest, choices: Sequence[IntentChoice]) -> Iterator[str]:
    """Say what else could have been meant, where that is near."""
    alternatives = [choice for choice in choices[1:] if choice.intent not in SAYS_LITTLE | CHANGING]
    if choices[0].probability < SURE and alternatives and alternatives[0].probability > choices[0].probability * NEAR:
        nearest = reading_text(alternatives[0].intent, request)
        yield f"(I took this for: {reading_text(request.intent, request)}. If not, ask for instance: {nearest})"


def left_out_of_order(request: QuestionRequest, besides: Sequence[str]) -> Iterator[str]:
    """Say what of an order was not taken: another change in the same sentence, more than one job."""
    for clause in besides:
        yield f'Not taken: "{one_line(clause, 120)}". One change at a time; say it by itself.'
    jobs = request.names.jobs
    if request.intent in ("cancel", "recover") and len(jobs) > 1 and several_jobs(request) != jobs:
        yield f"Taken is job {request.job} alone; not taken: {', '.join(job for job in jobs if job != request.job)}."


MOST_JOBS = 4
"""Jobs that one sentence may propose a change for, each with its own yes or no."""


def several_jobs(request: QuestionRequest) -> tuple[str, ...]:
    """Return the jobs that an order is about, each by itself; of another request the one that it is about."""
    jobs = request.names.jobs
    is_plain = request.intent == "cancel" or (
        request.intent == "recover" and restart_wish(request.names.sketch, request.names).is_plain
    )
    return jobs if 1 < len(jobs) <= MOST_JOBS and is_plain else (request.job,)


def is_unsure(choices: Sequence[IntentChoice]) -> bool:
    """Tell whether a question has no reading that would be answered without asking back."""
    first, second = choices[0], choices[1].probability if len(choices) > 1 else 0.0
    if first.intent in CHANGING:
        return False
    return first.intent in SAYS_LITTLE or (first.probability < FAIR and second > first.probability * NEAR)


def number_without_thing(names: Names) -> str:
    """Return a number in an order that no name, count, step or time explains, where the order names no thing; else nothing."""
    if names.jobs or names.nodes or names.incidents or names.approvals or names.numbers or names.strangers or names.candidates:
        return ""
    if names.bare_numbers and not names.quantities.steps:
        return str(names.bare_numbers[0])
    match = re.search(r"(?<![\w{.:-])\d{1,6}(?![\w}.:%-])", names.sketch)
    return match.group() if match is not None else ""


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
