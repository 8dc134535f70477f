"""A loss that goes off while a GPU of the job computes wrong: the machine explains it, and no setting and no data are to blame.

Such a GPU is known by uncorrected memory errors or an Xid since the job began, or by the job itself where one rank alone says again
and again that its own gradients are no numbers before they are reduced. A node is accused where its hardware has to be taken out by
what its probes show, or where job and probes speak against the same GPU; any other is only stayed away from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.gather import ask
from assistant.engine.storage import probe_line
from assistant.nodeset import fold
from assistant.records import Action, Category, Diagnosis, Incident, Job, NodeFinding, Whereabouts
from assistant.recover.joblog import log_lines
from assistant.recover.situation import AVOIDED
from assistant.watch.attempts import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

MOST_NODES = 64
FEWEST_LINES = 2
"""Of one rank about its own gradients: a single one may be a step that the loss scaler skips."""
MOST_CHARACTERS = 2_000
RULE = "loss_spike.faulty_gpu"
"""What made a line of the probes count: a GPU of the job that computes wrong."""
_LOCAL = re.compile(
    r"(?=.*\bgrad)(?=.*(?:non-?finite|\bnan\b|\binf\b))"
    r".*(?:\blocal\b|before (?:the )?(?:all-?)?reduc|others? (?:\w+ )?(?:is|are)? ?finite)",
    re.IGNORECASE,
)
"""What a rank says of its own gradients; behind the reduction those of all ranks are no numbers."""
_GPU = re.compile(r"\b(?:cuda:|gpu[ :#=]?|device[ :#=]{1,2})(\d{1,2})\b", re.IGNORECASE)
_OF_GPU = re.compile(r"^GPU (\d{1,2}): ")
"""Of a finding of the memory probe."""


class LoneGpu(NamedTuple):
    """The one GPU of a job whose rank says that its own gradients are no numbers."""

    node: str
    gpu: str
    """Its index; empty where the lines name none."""
    line: str


def with_faulty_gpu(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a loss that went off with the GPU that explains it; as it is where none is known to be faulty."""
    if diagnosis.reason != "loss_spike" or job is None or not job.nodes:
        return diagnosis
    arguments: dict[str, Any] = {"nodes": list(job.nodes[:MOST_NODES])}
    if job.started is not None:
        arguments["job_started"] = job.started.isoformat()
    checked: Mapping[str, Any] = ask(engine.store, engine.gate, incident, "check_nodes", arguments) or {}
    faulty = [str(node) for node in checked.get("gpu_faults") or ()]
    words = str(checked.get("gpu_fault_words") or "")
    accused = [node for node in faulty if node in (checked.get("faulty") or ())]
    lone = lone_gpu((line.text for line in log_lines(job)), job.nodes)
    if lone is not None and lone.node not in faulty:
        finding = memory_finding(checked, lone)
        accused += [lone.node] if finding else []
        faulty.append(lone.node)
        own = f"{lone.node}: {finding or 'its probes show nothing'}, and its rank alone says: {lone.line.strip()[:160]}"
        words = "; ".join(filter(None, (words, own)))
    if not faulty:
        return diagnosis
    sentence = f"A GPU of {fold(faulty)} computes wrong, which explains the loss: {words}."
    advice = (
        f"Go back to a checkpoint from before the loss went off, and start on other nodes than {fold(faulty)}. {sentence} Neither "
        f"data nor settings have to change. Test the GPU before its node goes back into service (dcgmi diag -r 3)."
    )
    victim = f"job {job.id} of {job.user}" if job.user else f"job {job.id}"
    engine.good_runs.remarks.append(Remark(f"a GPU of {fold(faulty)} computes wrong", f"{sentence} It spoiled {victim}."))
    citation = probe_line(engine, incident, words, RULE)
    return replace(
        diagnosis,
        category=Category.INFRASTRUCTURE,
        action=Action.CORDON_AND_RESTART if accused else Action.ROLLBACK_AND_SKIP_DATA,
        nodes=tuple(NodeFinding(node, f"a GPU of it computes wrong: {words}", (citation,)) for node in accused),
        where=(*diagnosis.where, *(Whereabouts(f"{AVOIDED} a GPU computes wrong there", node) for node in faulty)),
        rivals=tuple(rival for rival in diagnosis.rivals if rival.reason not in ("ecc_error", "cuda_error")),
        summary=f"{diagnosis.summary} {sentence}",
        advice=advice,
    )


def lone_gpu(texts: Iterable[str], nodes: Sequence[str]) -> LoneGpu | None:
    """Return the GPU of which alone a log says, several times, that its own gradients are no numbers; None for none or several.

    Args:
        texts: Lines of the log.
        nodes: Of the job.
    """
    names = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(nodes, key=len, reverse=True)))})(?![\w-])")
    lines = [text for text in texts if len(text) <= MOST_CHARACTERS and _LOCAL.match(text)]
    places = {(match[1] if (match := names.search(text)) else "", tuple(_GPU.findall(text))) for text in lines}
    if len(lines) < FEWEST_LINES or len(places) != 1:
        return None
    node, gpus = places.pop()
    node = node or (nodes[0] if len(nodes) == 1 else "")
    return LoneGpu(node, gpus[0] if gpus else "", lines[0]) if node and len(gpus) <= 1 else None


def memory_finding(checked: Mapping[str, Any], lone: LoneGpu) -> str:
    """Return what the memory probe found of the very GPU that a job names; empty where it found nothing, or no GPU is named."""
    rows = ((checked.get("nodes") or {}).get(lone.node) or {}).get("probes") or ()
    texts = [str(row["text"]) for row in rows if row.get("probe") == "gpu_memory" and row.get("status") in ("warning", "critical")]
    return next((text for text in texts if lone.gpu and (match := _OF_GPU.match(text)) and match[1] == lone.gpu), "")
