"""Put a diagnosis into words for a person woken at night: one sentence, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.records import Action, Citation, NodeFinding

DEEDS = {
    Action.RESTART_SAME_NODES: "Restart from the last healthy checkpoint on the same nodes.",
    Action.CORDON_AND_RESTART: "Set the node aside and restart from the last healthy checkpoint without it.",
    Action.ROLLBACK_AND_SKIP_DATA: "Go back to a checkpoint before the spike and skip the data in between.",
    Action.WAIT_AND_RETRY: "Wait until what it needs is there again, then restart from the last healthy checkpoint.",
    Action.FIX_AND_RESUBMIT: "Do not restart: the owner has to change something first.",
    Action.NONE: "",
}
NO_HELP = "A restart alone does not help."
"""Behind what has to be changed, in place of the deed in front of it."""


def summary(
    reason: Reason, why: str, nodes: Sequence[NodeFinding], cited: Sequence[Citation], facts: Facts, step: int | None
) -> str:
    """Return one sentence, and a second where the log could be read only in part."""
    where = f" on {', '.join(node.node for node in nodes)}" if nodes else ""
    quoted = f": {cited[0].text.strip()[:180]} ({cited[0].file}:{cited[0].line})" if cited and cited[0].text.strip() else ""
    after = f" after step {step}" if step is not None and reason.category != "none" else ""
    sentence = f"{reason.title}{where}{after}{quoted}"
    if why and not quoted:
        sentence += f": {why}"
    if facts.truncated:
        sentence += f". The log is a gzip that ends early, or longer than can be read: {facts.lines_total} lines of it were"
    decides = f". This would decide it: {reason.tests[0]}" if reason.undecided and reason.tests else ""
    return f"{sentence.rstrip('.')}{decides}".rstrip(".") + "."


def advice(reason: Reason, action: Action, nodes: Sequence[NodeFinding]) -> str:
    """Return what to do: the deed with its nodes, then the reason's remedy."""
    deed = DEEDS[action]
    if action is Action.CORDON_AND_RESTART:
        names = ", ".join(node.node for node in nodes)
        deed = (
            f"Set {names} aside and restart from the last healthy checkpoint without {'it' if len(nodes) == 1 else 'them'}."
            if nodes
            else "Find the node by test first (pairwise collective test, GPU diagnostics), set it aside, then restart."
        )
    return f"{deed} {reason.remedy}".strip()


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters: the middle is left out, for the end of a message often says what to do."""
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[: most - 3 - half].rstrip()} … {text[-half:].lstrip()}"
