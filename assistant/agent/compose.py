"""One answer from its parts: what it cannot tell, the sentence that the form of the question asks for, and why.

The lines themselves come by the intent of the request (`request_lines`), with what of it was left out and for which of several
jobs; a source of the last answer is shown with all that it holds (`show 1`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, cut_text
from assistant.agent.chooser import intents
from assistant.agent.coverage import attributes_of, figures_told, uncovered, uncovered_told
from assistant.agent.dialogue import QuestionRequest, QuestionTurn
from assistant.agent.forms import MOST_WHYS, first_sentence
from assistant.agent.moods import CHANGING
from assistant.agent.queries import RecordQuery, read_query
from assistant.agent.request_names import MODE, several_jobs
from assistant.agent.tell_comparison import comparison_told
from assistant.agent.tell_counsel import aspect_told
from assistant.agent.tell_orders import later_told, until_told
from assistant.agent.tell_queries import query_told
from assistant.agent.tellers import TELLERS, tell_unknown

_COUNTABLE = frozenset(
    {
        "failed_jobs",
        "list_jobs",
        "incidents",
        "overview",
        "out_of_scope",
        "node_history",
        "changes",
        "job_status",
        "progress",
        "bad_nodes",
    }
)
"""Intents of questions about all jobs or incidents; of one job only where a figure of all of them is asked for."""
_OF_ONE_JOB = frozenset({"job_status", "progress", "newest_checkpoint", "explain_job", "compare_jobs", "plan"})
_TOLD_BY_ASPECTS = (
    "the last",
    "what will happen",
    "who acknowledged",
    "only of",
    "temperatures",
    "the memory of GPUs",
    "priorities",
)
"""Attributes that an aspect tells itself, or that its words only seem to name."""
_FIGURES = frozenset({"progress", "job_status", "explain_job", "gpu_use", "show_log", "log_errors"})


def of_two_jobs(request: QuestionRequest) -> QuestionRequest:
    """Return a question about one job as one that compares, where it names two."""
    jobs = request.names.jobs
    if request.intent not in _OF_ONE_JOB or len(jobs) != 2:
        return request
    return replace(request, intent="compare_jobs", job=jobs[0], other_job=jobs[1])


def query_of(turn: QuestionTurn) -> RecordQuery | None:
    """Return what is asked of all jobs or incidents; None where the question is about one of them."""
    intent = turn.request.intent
    query = read_query(turn.request.names) if intent not in CHANGING and not turn.request.aspect else None
    if query is None or turn.request.names.strangers:
        return None
    if query.measure in ("steps_lost", "node_hours"):
        return query if intent in _COUNTABLE | _OF_ONE_JOB and not (turn.request.job and query.measure == "steps_lost") else None
    if query.measure == "age" and intent not in ("failed_jobs", "list_jobs", "incidents", "overview", "out_of_scope"):
        return None
    if query.bounds and intent == "approvals":
        return query
    return query if intent in _COUNTABLE or (query.group and intent in _OF_ONE_JOB) else None


def query_lines(turn: QuestionTurn, query: RecordQuery) -> list[str]:
    """Return the answer to a question about all jobs or incidents."""
    view = "incidents" if query.view == "incidents" else "failed_jobs" if query.state == "failed" else "list_jobs"
    turn.request = replace(turn.request, intent=view)
    lines = list(query_told(turn, query))
    absent = uncovered(turn.request.names, view)
    covered = query.covers | ({"the number of GPUs"} if query.measure == "node_hours" else set())
    missing = [part for part in absent if part.partition(" (")[0] not in covered and part not in covered]
    return [uncovered_told(missing), *lines] if missing else lines


def composed_lines(turn: QuestionTurn, tell: Callable[[QuestionTurn], Iterator[str]]) -> list[str]:
    """Return an answer with what the question asks first before it, and at most three whys behind that."""
    lines = list(tell(turn))
    intent = turn.request.intent
    if turn.kind is not AnswerKind.ANSWER or intent in CHANGING:
        return lines
    aspect = aspect_told(turn) if turn.request.aspect else ""
    if aspect:
        missing = [part for part in uncovered(turn.request.names, intent) if not part.startswith(_TOLD_BY_ASPECTS)]
        return [*([uncovered_told(missing)] if missing else []), aspect, *_whys(lines, [aspect])]
    figures = list(comparison_told(turn)) if intent == "compare_jobs" else []
    figures_asked = [row for row in attributes_of(turn.request.names) if row.line is not None and intent not in row.intents]
    if not figures and intent in _FIGURES and (figures_asked or intent == "progress"):
        figures = list(figures_told(turn))
    covered = {row.name for row in figures_asked} if figures else set()
    missing = [part for part in uncovered(turn.request.names, intent) if part.partition(" (")[0] not in covered]
    lead = "" if figures else first_sentence(turn)
    heads = [*([uncovered_told(missing)] if missing else []), *figures, *([lead] if lead else [])]
    return [*heads, *(_whys(lines, heads) if heads else lines)]


def _whys(lines: Sequence[str], heads: Sequence[str]) -> list[str]:
    """Return the first lines behind those that answer, each with the rows of its list."""
    whys: list[str] = []
    sentences = 0
    for line in lines:
        sentences += not line.startswith("  ")
        if sentences > MOST_WHYS:
            break
        whys += [line] if line not in heads else []
    return whys


MOST_SHOWN = 60_000


def source_shown(sources: Sequence[AnswerSource], number: int) -> Answer:
    """Return a source of the last answer with all that it holds."""
    cited = next((source for source in sources if source.number == number), None)
    if cited is None:
        numbers = ", ".join(str(source.number) for source in sources)
        return Answer(f"The last answer has no source {number}; it has {numbers}.", AnswerKind.UNKNOWN, MODE, "show")
    text = cited.value if isinstance(cited.value, str) else json.dumps(cited.value, ensure_ascii=False, indent=2)
    body = cut_text(cited.error or text, MOST_SHOWN)
    return Answer(f"[{number}] {cited.call}\n{body}", AnswerKind.ANSWER, MODE, "show", sources=(cited,))


def request_lines(turn: QuestionTurn) -> Iterator[str]:
    """Tell what was asked, or which name of it is unknown."""
    strangers = turn.request.names.strangers
    needs = intents()[turn.request.intent].needs
    lacks = ("job" in needs and not turn.request.job) or ("node" in needs and not turn.request.nodes)
    lacks = lacks or ("incident" in needs and turn.request.incident is None)
    if needs.count("job") > 1:
        lacks = lacks or not turn.request.other_job
    if strangers and (lacks or turn.request.intent in CHANGING or turn.request.intent in ("plan", "seen_before", "node_history")):
        for stranger in strangers:
            yield from tell_unknown(turn, stranger)
        return
    for stranger in strangers:
        yield f"(Left out: {stranger}.)"
    if turn.request.intent in CHANGING:
        if later := later_told(turn):
            yield later
            return
        yield from filter(None, [until_told(turn)])
    for job in several_jobs(turn.request):
        turn.request = replace(turn.request, job=job)
        yield from TELLERS[turn.request.intent](turn)
    if turn.request.intent in CHANGING and any(proposal.approval is not None for proposal in turn.proposals):
        turn.kind = AnswerKind.PROPOSAL
