"""Answers about words and about Nightshift itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.agent.answer import AnswerKind
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import QuestionTurn
from assistant.agent.wording import one_line

_FILLERS = re.compile(
    r"\b(?:what|does|do|is|an?|the|mean|means|meaning|of|explain|define|describe|reason|which|playbook|handles?|for|how|you|"
    r"about|when|restart|on|and|it|serious|causes?|in|general|tell|me|please|failure|stand|stands)\b|[?.!,]",
    re.IGNORECASE,
)
EXAMPLES = (
    "what is wrong now?",
    "why did 4821 die?",
    "explain incident 3",
    "what waits for me?",
    "which nodes are cordoned, and why?",
    "show the errors in 4821",
    "newest healthy checkpoint of 4821",
    "was the failure of 4821 seen before?",
    "compare 4821 and 4790",
    "which jobs failed today?",
    "which node fails most?",
    "what would you do about 4821?",
    "restart 4821 (a proposal; a person says yes or no)",
    "what does Xid 79 mean?",
    "what did you change today?",
)


def meaning(turn: QuestionTurn) -> Iterator[str]:
    """Tell what a reason or an Xid means."""
    texts = turn.request.names.texts
    word = texts[0] if texts else " ".join(_FILLERS.sub(" ", turn.request.question).split())
    if re.search(r"\breasons\b", turn.request.question.lower()):
        word = ""
    source = turn.look("look_up", word=word)
    if source.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"{source.error} [{source.number}]"
        return
    entry, mark = source.value, f"[{source.number}]"
    if "reasons" in entry:
        yield f"{len(entry['reasons'])} reasons are known {mark}: {', '.join(entry['reasons'])}."
    elif "xid" in entry:
        node = "the node is to blame" if entry["blames_node"] else "the node is not blamed for it alone"
        yield f"Xid {entry['xid']}: {entry['meaning']} {mark}. Reason {entry['reason']}, action {entry['action']}; {node}."
        yield f"NVIDIA: {entry['nvidia']} ({entry['source']})."
    else:
        yield f"{entry['title']} ({entry['reason']}, {entry['category']}) {mark}: {one_line(entry['meaning'], 400)}"
        yield f"Action: {entry['action']}; playbooks: {', '.join(entry['playbooks']) or 'none'} {mark}."
        yield f"What to do: {one_line(entry['advice'], 400)}"


def mode(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be done here."""
    policy = turn.gate.policy
    yield "Mode semantic: no language model is used. Your words choose what is looked up; only names that exist are taken."
    yield f"The policy is in mode {policy.mode}: " + {
        "observe": "nothing is changed, and I may not even propose it; a person still can, for instance nightshift recover JOB.",
        "propose": "every change is put before a person: nightshift approvals.",
        "act": "the watch changes things within the limits of the policy; what is asked of me here is still put before a person.",
    }.get(str(policy.mode), "")
    switches = ", ".join(str(path) for path in policy.kill_switch)
    yield (
        f"While one of these files exists nothing is changed by anybody: {switches}"
        if switches
        else "No kill switch is configured."
    )
    if (breaker := turn.gate.breaker) is not None:
        yield f"The breaker is open {breaker}. Nightshift changes nothing by itself before: nightshift breaker reset"


def help_(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be asked."""
    yield "I answer questions about jobs, nodes, logs, checkpoints and incidents, and propose changes. For instance:"
    yield "\n".join(f"  {example}" for example in _examples(turn))
    yield "An answer names its sources, [1]; `show 1` prints one of them whole."


def _examples(turn: QuestionTurn) -> Iterator[str]:
    """Yield the examples with what exists here, so that each of them works."""
    failed_ones = [job for job in turn.inventory.incidents.values() if job in turn.inventory.jobs]
    jobs = list(dict.fromkeys([*failed_ones, *reversed(list(turn.inventory.jobs)), "4821", "4790"]))
    incident = max(turn.inventory.incidents, default=3)
    for example in EXAMPLES:
        yield (
            example.replace("4821", "JOB")
            .replace("4790", jobs[1])
            .replace("JOB", jobs[0])
            .replace("incident 3", f"incident {incident}")
        )


def out_of_scope(turn: QuestionTurn) -> Iterator[str]:
    """Say that nothing here answers that."""
    turn.kind = AnswerKind.UNKNOWN
    yield "Nothing that is known here answers that: I know the jobs, nodes, logs and incidents of this cluster. Ask: help"


def tell_unknown(turn: QuestionTurn, complaint: str) -> Iterator[str]:
    """Tell that names are unknown."""
    turn.kind = AnswerKind.UNKNOWN
    yield f"{complaint[:1].upper()}{complaint[1:]}."


__all__ = ["EXAMPLES", "failed", "help_", "meaning", "mode", "out_of_scope", "tell_unknown"]
