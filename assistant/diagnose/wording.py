"""Put a diagnosis into words for a person woken at night: one sentence, what to do, and what else it could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.diagnose.findings import Finding
from assistant.diagnose.reasoning import symptomatic
from assistant.diagnose.weighing import by_reason
from assistant.records import Action, Citation, NodeFinding, Rival

_FALLBACKS = {
    "nccl_timeout_error": "hang", "hang": "nccl_timeout_error", "ecc_error": "cuda_error", "cuda_error": "runtime_error",
    "nvlink_error": "network_error",
    "node_failure": "network_error", "network_error": "node_failure", "connection_error": "network_error",
    "nccl_remote_error": "node_failure",
    "s3_storage_error": "network_error", "os_error": "s3_storage_error", "out_of_memory_error": "dataloader_killed",
    "dataloader_killed": "out_of_memory_error",
    "loss_spike": "runtime_error", "time_limit": "hang", "cancelled": "hang", "preempted": "node_failure",
    "unknown": "node_failure",
    "file_not_found_error": "s3_storage_error", "permission_error": "s3_storage_error", "model_loading_error": "s3_storage_error",
    "dataset_loading_error": "file_not_found_error",
}  # fmt: skip
_DEEDS = {
    Action.RESTART_SAME_NODES: "Restart from the last healthy checkpoint on the same nodes.",
    Action.CORDON_AND_RESTART: "Set the node aside and restart from the last healthy checkpoint without it.",
    Action.ROLLBACK_AND_SKIP_DATA: "Go back to a checkpoint before the spike and skip the data in between.",
    Action.WAIT_AND_RETRY: "Wait until the service answers, then restart from the last healthy checkpoint.",
    Action.FIX_AND_RESUBMIT: "Do not restart: the owner has to change something first.",
    Action.NONE: "Nothing has to be done.",
}


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
        sentence += f". The log is a gzip that ends early: only its first {facts.lines_total} lines could be read"
    return sentence.rstrip(".") + "."


def advice(reason: Reason, action: Action, nodes: Sequence[NodeFinding]) -> str:
    """Return what to do: the deed with its nodes, then the reason's remedy."""
    # nothing is restarted for an unknown reason, but somebody has to look
    deed = _DEEDS[action] if reason.name != "unknown" else ""
    if action is Action.CORDON_AND_RESTART:
        names = ", ".join(node.node for node in nodes)
        deed = (
            f"Set {names} aside and restart from the last healthy checkpoint without {'it' if len(nodes) == 1 else 'them'}."
            if nodes
            else "Find the node by test first (pairwise collective test, GPU diagnostics), set it aside, then restart."
        )
    return f"{deed} {reason.remedy}".strip()


def rivals(
    chosen: str, strength: float, findings: Sequence[Finding], known: Mapping[str, Reason], confidence: float
) -> tuple[Rival, ...]:
    """Return the two best other explanations: what was found for them, else what the chosen one is most often confused with."""
    found: list[Rival] = []
    for reason, finding in by_reason(findings).items():
        if reason == chosen or reason not in known or len(found) == 2:
            continue
        share = min(finding.strength / max(strength, 0.01), 0.95)
        against = finding.note or (
            "it only follows from something else" if symptomatic(finding) else "it stands later, or weighs less"
        )
        found.append(
            Rival(
                reason,
                round(min((1 - confidence) * share + 0.02, 0.6), 2),
                f"{finding.file}:{finding.line}: {finding.text.strip()[:140]}",
                against,
                next(iter(known[reason].tests), "Look at the lines cited for both."),
            )
        )
    for name in (_FALLBACKS.get(chosen), "node_failure", "unknown"):
        if len(found) < 2 and name and name != chosen and name in known and all(rival.reason != name for rival in found):
            test = next(iter(known[name].tests), "Ask the owner of the job.")
            found.append(
                Rival(name, round((1 - confidence) * 0.3, 2), "is often taken for it", "nothing in the case speaks for it", test)
            )
    return tuple(found)
