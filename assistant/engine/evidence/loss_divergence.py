"""Why a loss went off: a GPU that computes wrong, or the job's own setting as its siblings in a sweep show.

A GPU computes wrong when it had uncorrected memory errors or an Xid since the job began, or when its rank alone says again and
again that its own gradients are no numbers. A node is accused where its probes alone take its hardware out, or where job and
probes speak against the same GPU. A loss that goes off at once behind a restart on the same nodes makes such a GPU as likely as a
setting. Siblings with other settings that went past the step clear data and code; where they went off, too, or share the learning
rate, nothing is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.evidence.storage import probe_line
from assistant.engine.gather import ask
from assistant.errors import NightshiftError, ToolError
from assistant.logs.spikes import find_spike
from assistant.logs.templates import steady_name
from assistant.nodeset import fold
from assistant.records import Action, Category, Diagnosis, Incident, Job, JobState, MetricPoint, NodeFinding, Whereabouts
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.directives import SPIKE_SLACK
from assistant.recover.joblog import log_lines, log_points
from assistant.recover.saved_progress import epoch_pace, logged_epoch
from assistant.recover.situation import AVOIDED
from assistant.redact import head_of
from assistant.untrusted import reading_as
from assistant.watch.attempts import Remark

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_PROBED_NODES = 64
FEWEST_RANK_LINES = 2
"""Of one rank about its own gradients: a single one may be a step that the loss scaler skips."""
MOST_CHARACTERS = 2_000
FAULTY_GPU_RULE = "loss_spike.faulty_gpu"
"""What made a line of the probes count: a GPU of the job that computes wrong."""
_LOCAL = re.compile(
    r"(?=.*\bgrad)(?=.*(?:non-?finite|\bnan\b|\binf\b))"
    r".*(?:\blocal\b|before (?:the )?(?:all-?)?reduc|others? (?:\w+ )?(?:is|are)? ?finite)",
    re.IGNORECASE,
)
"""What a rank says of its own gradients; behind the reduction those of all ranks are no numbers."""
_GPU = re.compile(r"\b(?:cuda:|gpu[ :#=]?|device[ :#=]{1,2})(\d{1,2})\b", re.IGNORECASE)
_NAMED_STEP = re.compile(
    r"\b(?:since|from|at|in|on) (?:the )?(?:\w{1,12}[ _])?(?:step|iteration|iter|update)[ :=#]{1,3}(\d{1,9})\b", re.IGNORECASE
)
_NO_NUMBER = re.compile(r"\b(?:nan|inf|infinite|non-?finite|not finite|no number)\b", re.IGNORECASE)
_OF_GPU = re.compile(r"^GPU (\d{1,2}): ")
"""Of a finding of the memory probe."""


def with_spike_step(engine: EnginePort, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a loss that went off at an epoch with its step, where a checkpoint of the run tells how many steps an epoch has.

    Hugging Face's Trainer logs epochs, and keeps both in `trainer_state.json`. Of a rounded epoch the lowest step counts: no
    checkpoint is chosen that may be from behind it.
    """
    if diagnosis.reason != "loss_spike" or diagnosis.spike_step is not None or job is None:
        return diagnosis
    epoch = next((epoch for cited in diagnosis.root_cause if (epoch := logged_epoch(cited.text)) is not None), None)
    if epoch is None and diagnosis.step is None:
        step = next((step for cited in diagnosis.root_cause if (step := named_step(cited.text)) is not None), None)
        return replace(diagnosis, spike_step=step) if step is not None else diagnosis
    if epoch is None:
        return diagnosis
    try:
        texts = [line.text for line in log_lines(job)]
        with reading_as(job.account):
            search = search_checkpoints(job, engine.checkpoint_folders, texts, now=engine.clock.now())
            pace = epoch_pace(search.inventory) if search.inventory is not None else None
    except (NightshiftError, OSError):
        return diagnosis
    if pace is None:
        return diagnosis
    step = pace.first_step(epoch)
    pace_words = f"{pace.checkpoint} is of step {pace.step} and epoch {pace.epoch:.6g}"
    words = f"Epoch {epoch} is step {step} or a little behind it: {pace_words}."
    return replace(diagnosis, spike_step=step, summary=f"{diagnosis.summary} {words}")


def named_step(text: str) -> int | None:
    """Return the step that a line about a loss which is no number names as its own; None where it names none, or several."""
    steps = (
        {match[1] for match in _NAMED_STEP.finditer(text[:MOST_CHARACTERS])} if _NO_NUMBER.search(text[:MOST_CHARACTERS]) else set()
    )
    return int(steps.pop()) if len(steps) == 1 else None


class LoneGpu(NamedTuple):
    """The one GPU of a job whose rank says that its own gradients are no numbers."""

    node: str
    gpu: str
    """Its index; empty where the lines name none."""
    line: str


def with_faulty_gpu(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a loss that went off with the GPU that explains it; as it is where none is known to be faulty."""
    if diagnosis.reason != "loss_spike" or job is None or not job.nodes:
        return diagnosis
    arguments: dict[str, Any] = {"nodes": list(job.nodes[:MOST_PROBED_NODES])}
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
        own = f"{lone.node}: {finding or 'its probes show nothing'}, and its rank alone says: {head_of(lone.line.strip(), 160)}"
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
    citation = probe_line(engine, incident, words, FAULTY_GPU_RULE)
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
    if len(lines) < FEWEST_RANK_LINES or len(places) != 1:
        return None
    node, gpus = places.pop()
    node = node or (nodes[0] if len(nodes) == 1 else "")
    return LoneGpu(node, gpus[0] if gpus else "", lines[0]) if node and len(gpus) <= 1 else None


def memory_finding(checked: Mapping[str, Any], lone: LoneGpu) -> str:
    """Return what the memory probe found of the very GPU that a job names; empty where it found nothing, or no GPU is named."""
    rows = ((checked.get("nodes") or {}).get(lone.node) or {}).get("probes") or ()
    texts = [str(row["text"]) for row in rows if row.get("probe") == "gpu_memory" and row.get("status") in ("warning", "critical")]
    return next((text for text in texts if lone.gpu and (match := _OF_GPU.match(text)) and match[1] == lone.gpu), "")


FEWEST_GOOD_STEPS = 5
"""Steps with a loss that is a number, as logged, before it goes off: fewer of them are no run of its own."""
MOST_COMMON_NODES = 64


def with_repeated_spike(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a spike right behind a restart after a spike with what speaks for the nodes that both ran on; any other as it is."""
    if diagnosis.reason != "loss_spike" or job is None or incident.parent is None:
        return diagnosis
    earlier, theory = engine.store.incident(incident.parent), engine.store.diagnosis(incident.parent)
    nodes = _nodes_of_both(engine, earlier, job)
    if theory is None or theory.reason != "loss_spike" or not nodes or not _is_at_once(_points(job), diagnosis.spike_step):
        return diagnosis
    arguments: dict[str, Any] = {"nodes": nodes}
    if job.started is not None:
        arguments["job_started"] = job.started.isoformat()
    checked: Mapping[str, Any] = ask(engine.store, engine.gate, incident, "check_nodes", arguments) or {}
    names = fold(nodes)
    if words := str(checked.get("gpu_fault_words") or ""):
        away = ",".join(map(str, checked.get("gpu_faults", ())))
        account = (
            f"It went off at once again on {names}, and a GPU there may compute wrong: {words}. Start it without: --exclude={away}."
        )
        return replace(diagnosis, advice=f"{account} {diagnosis.advice}")
    account = (
        f"It went off at once again behind a restart on the same nodes ({names}), where probes found nothing or could not look: "
        f"a GPU that computes wrong without a word is as likely as a setting. Start it once elsewhere from the same checkpoint "
        f"(--exclude={names}) before a setting is changed: if it holds there, test these nodes (dcgmi diag -r 3)."
    )
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=f"{account} {diagnosis.advice}")


def _nodes_of_both(engine: EnginePort, incident: Incident, job: Job) -> list[str]:
    try:
        job_before = engine.scheduler.job(incident.job) if incident.job is not None else None
    except ToolError:
        return []
    return [node for node in job.nodes if job_before is not None and node in job_before.nodes][:MOST_COMMON_NODES]


def _points(job: Job) -> Sequence[MetricPoint]:
    try:
        return [point for point in log_points(job) if point.loss is not None]
    except (NightshiftError, OSError):
        return ()


def _is_at_once(points: Sequence[MetricPoint], spike_step: int | None) -> bool:
    """Tell whether a loss was off almost from its first step on; False where nothing is logged."""
    good = [point for point in points if math.isfinite(point.loss or 0.0) and (spike_step is None or point.step < spike_step)]
    return bool(points) and len(good) < FEWEST_GOOD_STEPS


MOST_SIBLINGS = 8
MOST_BYTES = 4 << 20
FEWEST_POINTS = 8
"""Losses without which nobody can say that a job fares well."""
NEAR_STEPS, NEAR_SHARE = 20, 0.05
"""How far from the step in question a logged learning rate may stand: schedules move it."""
HIGHER_RATE = 1.5
"""How many times the learning rate of each healthy sibling one has to be that is blamed."""
_RATE = re.compile(
    r"\b(?:learning[_ -]?rate|lr)\b['\"]?[\s:=]{1,4}['\"]?(\d{0,6}\.?\d{1,12}(?:e[-+]?\d{1,3})?)(?![\w.])", re.IGNORECASE
)
_STEP = re.compile(
    r"\b(?:global_?step|step|iteration|iter)\b['\"]?[\s:=#\[(]{1,12}(\d{1,9})\b|\|\s{0,4}(\d{1,9})/\d{1,9} \[", re.IGNORECASE
)
_NO_FIX = (
    "Do not restart: the same setting goes off again, from whatever checkpoint and without whatever data. Its owner lowers the "
    "learning rate (longer warm-up, stricter clipping) for this point, or gives it up."
)


class Sibling(NamedTuple):
    """A job of the same sweep, and how its loss fared."""

    job: str
    setting: str
    """What it was given that another one may not have been: task of an array, arguments."""
    rate: float | None
    """The learning rate that it was given, else that it logged about the step in question; None where it shows none."""
    points: Sequence[MetricPoint]


def own_divergence(own: Sibling, siblings: Iterable[Sibling], step: int) -> str:
    """Return what shows that the loss of a job went off by its own setting; empty where nothing does.

    Args:
        own: The job.
        siblings: Of the same sweep.
        step: At which the loss went off.
    """
    healthy: list[Sibling] = []
    for sibling in siblings:
        spike = find_spike(sibling.points)
        if spike is not None and abs(spike.step - step) <= SPIKE_SLACK:
            return ""  # data or code that they have in common
        if (
            spike is None
            and len(sibling.points) >= FEWEST_POINTS
            and max((point.step for point in sibling.points), default=0) > step
        ):
            healthy.append(sibling)
    if not healthy:
        return ""
    rates = [sibling.rate for sibling in healthy if sibling.rate is not None]
    if own.rate is not None and len(rates) == len(healthy):
        if own.rate < HIGHER_RATE * max(rates):
            return ""  # its learning rate is no reason: something else befell this one
        setting_words = f"its learning rate is {own.rate:g}; "
        sibling_words = ", ".join(f"{sibling.job} ({sibling.rate:g})" for sibling in healthy)
    elif own.setting and all(sibling.setting and sibling.setting != own.setting for sibling in healthy):
        setting_words = f"it ran with `{own.setting}`; "
        sibling_words = ", ".join(f"{sibling.job} (`{sibling.setting}`)" for sibling in healthy)
    else:
        return ""
    went = "went" if len(healthy) > 1 else "alone went"
    jobs = f"job{'s' * (len(healthy) > 1)} {sibling_words} of the same sweep"
    return f"{setting_words}{jobs} {went} past step {step} with a healthy loss"


def with_own_divergence(engine: EnginePort, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a loss spike as its owner's to answer where siblings show the job's own setting at fault; else as it is."""
    if (
        diagnosis.reason != "loss_spike"
        or not diagnosis.spike_step
        or job is None
        or diagnosis.action is not Action.ROLLBACK_AND_SKIP_DATA
    ):
        return diagnosis
    siblings = sorted((sibling for sibling in engine.watcher.jobs if _same_sweep(job, sibling)), key=lambda sibling: sibling.id)[
        -MOST_SIBLINGS:
    ]
    step = diagnosis.spike_step
    sentence = own_divergence(_sibling_of(engine, job, step), [_sibling_of(engine, sibling, step) for sibling in siblings], step)
    if not sentence:
        return diagnosis
    runs = f" Job {job.id} still runs, and its further steps are wasted: `scancel {job.id}`." if not job.state.ended else ""
    words = f"{diagnosis.summary} Its own setting diverges, and not the data: {sentence}."
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, summary=words, advice=f"{_NO_FIX} Seen: {sentence}.{runs}")


def _same_sweep(job: Job, candidate: Job) -> bool:
    if candidate.id == job.id or candidate.user != job.user or candidate.state is JobState.PENDING:
        return False
    array, their_array = job.id.partition("_"), candidate.id.partition("_")
    if array[1] and array[0] == their_array[0]:
        return True
    return (
        steady_name(candidate.name) == steady_name(job.name)
        and candidate.work_dir == job.work_dir
        and candidate.started is not None
    )


def _sibling_of(engine: EnginePort, job: Job, step: int) -> Sibling:
    try:
        job_record = engine.scheduler.job(job.id)
        with reading_as(job_record.account):
            points = [point for point in log_points(job_record) if point.loss is not None]
            texts = [line.text for line in log_lines(job_record, most_bytes=MOST_BYTES)]
    except (NightshiftError, OSError):
        return Sibling(job.id, "", None, ())
    arguments = " ".join(job_record.spec.arguments) if job_record.spec is not None else ""
    task = job.id.partition("_")[2]
    setting = arguments or (f"array task {task}" if task else "")
    rates = [float(match[1]) for match in _RATE.finditer(arguments)]
    return Sibling(job.id, setting, rates[-1] if rates else rate_near(texts, step), points)


def rate_near(texts: Iterable[str], step: int) -> float | None:
    """Return the learning rate that a log shows nearest to a step; None where it shows none about there."""
    at: int | None = None
    logged: list[tuple[int, float]] = []
    for text in (entry[:2000] for entry in texts):
        steps = _STEP.search(text)
        at = int(steps[1] or steps[2]) if steps is not None else at
        rate = _RATE.search(text)
        logged += [(abs(at - step), float(rate[1]))] if rate is not None and at is not None else []
    apart, rate_there = min(logged, key=lambda entry: entry[0], default=(0, None))
    return rate_there if apart <= max(NEAR_STEPS, NEAR_SHARE * step) else None
