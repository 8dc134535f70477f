"""The lines that answer a request by its intent, with what of it was left out and for which of several jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assistant.agent.answer import AnswerKind
from assistant.agent.chooser import intents
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.moods import CHANGING
from assistant.agent.request_names import several_jobs
from assistant.agent.tell_orders import later_told, until_told
from assistant.agent.tellers import TELLERS, tell_unknown


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
