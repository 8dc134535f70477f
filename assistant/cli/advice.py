"""What `nightshift checkpoints advise` gathers and shows: the cost of a job's saves, the time between failures, the interval."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assistant.cli.output import print_json, print_pairs, print_table
from assistant.cli.times import span
from assistant.errors import NightshiftError, ToolError
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.engine import Engine
    from assistant.records import Incident, Job
    from assistant.recover.checkpoints.interval import Advice, Failures, SaveCost
    from assistant.recover.checkpoints.inventory import Inventory

MINUTES = (5, 10, 15, 30, 60)
MOST_INCIDENTS = 10_000


def advice_for(
    engine: Engine, job: Job, inventory: Inventory | None, *, cost_s: float, between_h: float, gpus_per_node: int, now: datetime
) -> Advice:
    """Return how often a job should save.

    Args:
        engine: Of this command.
        job: As the scheduler shows it.
        inventory: Its checkpoints; None when there are none to be found.
        cost_s: What a save costs, where the operator says it; 0: as measured.
        between_h: Mean hours between failures, where the operator says it; 0: as observed.
        gpus_per_node: GPUs of each of its nodes.
        now: The time.

    Raises:
        ToolError: The cost or the failures are not known; says which option to give.
    """
    from assistant.recover.checkpoints.interval import Failures, SaveCost, advise

    cost = SaveCost(cost_s, 0.0, None, "as --save-seconds says") if cost_s else _cost(job, inventory)
    failures = Failures(between_h * 3600, 0, "as --mtbf-hours says") if between_h else _failures(engine, job, now)
    return advise(cost, failures, max(1, len(job.nodes)) * gpus_per_node)


def _cost(job: Job, inventory: Inventory | None) -> SaveCost:
    from assistant.recover.checkpoints.cost import save_cost
    from assistant.recover.joblog import log_lines

    metrics = job.work_dir / "metrics.jsonl" if job.work_dir is not None else None
    with reading_as(job.account):
        cost = save_cost(inventory, metrics, (line.text for line in log_lines(job)))
    if cost is None:
        raise ToolError(
            f"what a save costs job {job.id} is not known: neither its checkpoints, its metrics.jsonl nor its log tell; "
            "give it: --save-seconds 12"
        )
    return cost


def _failures(engine: Engine, job: Job, now: datetime) -> Failures:
    from assistant.recover.checkpoints.interval import of_cluster, of_task

    incidents = [incident for incident in engine.store.incidents(limit=MOST_INCIDENTS) if _is_failure(incident)]
    family = {candidate.id for candidate in engine.scheduler.jobs() if (candidate.name, candidate.user) == (job.name, job.user)} | {
        job.id
    }
    family |= _related(incidents, family)
    own = [incident.failed_at or incident.opened for incident in incidents if incident.job in family]
    moments = [incident.failed_at or incident.opened for incident in incidents]
    nodes = max(1, len(job.nodes))
    cluster = max(nodes, len(engine.scheduler.nodes()))
    estimate = of_task(own, job.name) or of_cluster(moments, now=now, nodes=nodes, cluster_nodes=cluster)
    if estimate is None:
        raise ToolError(
            f"how often job {job.id} fails is not known: {len(own)} failures of its task and {len(moments)} of the cluster are too "
            "few; give it: --mtbf-hours 24"
        )
    return estimate


def _is_failure(incident: Incident) -> bool:
    from assistant.records import EventKind

    return incident.job is not None and incident.kind in (EventKind.JOB_ENDED, EventKind.HANG, EventKind.LOSS_SPIKE)


def _related(incidents: list[Incident], family: set[str]) -> set[str]:
    """Return the jobs whose restarts belong to the same chain as a family's."""
    by_id = {incident.id: incident for incident in incidents}
    chains = {incident.id: _root(incident, by_id) for incident in incidents}
    roots = {chains[incident.id] for incident in incidents if incident.job in family}
    return {str(incident.job) for incident in incidents if chains[incident.id] in roots}


def _root(incident: Incident, by_id: dict[int, Incident]) -> int:
    while incident.parent in by_id:
        incident = by_id[incident.parent]
    return incident.id


def print_advice(job: Job, advice: Advice, as_json: bool) -> None:
    """Write it."""
    rows = list(_rows(advice))
    if as_json:
        print_json(_record(job, advice, rows))
        return
    background = f", {span(advice.cost.persist_s)} more in the background" if advice.cost.persist_s else ""
    print_pairs(
        [
            ("job", f"{job.id} ({job.name}), {advice.gpus} GPUs"),
            ("a save", f"{advice.cost.blocked_s:.3g} s of training{background}; {advice.cost.how}"),
            ("failures", f"every {span(advice.failures.between_s)}; {advice.failures.how}"),
            ("save every", span(advice.every_s) + (" (a save takes as long)" if advice.every_s > advice.young_s else "")),
            ("Young, Daly", f"{span(advice.young_s)}, {span(advice.daly_s)}"),
            ("each minute", f"longer costs {advice.gpu_hours_a_minute:.3g} GPU-hours a day; a save {advice.gpu_hours_a_save:.2g}"),
        ]
    )
    cells = [(name, span(row["interval_s"]), f"{row['lost_share']:.2%}", f"{row['gpu_hours_a_day']:.3g}") for name, row in rows]
    print_table(("", "interval", "lost", "GPU-hours a day"), cells)


def _rows(advice: Advice) -> Iterator[tuple[str, dict[str, float]]]:
    from assistant.recover.checkpoints.interval import lost_share

    intervals = [("advised", advice.every_s), *((("now", advice.cost.every_s),) if advice.cost.every_s else ())]
    for name, interval_s in [*intervals, *(("", minutes * 60.0) for minutes in MINUTES)]:
        share = lost_share(interval_s, advice.cost.blocked_s, advice.failures.between_s)
        yield name, {"interval_s": interval_s, "lost_share": share, "gpu_hours_a_day": advice.gpu_hours_a_day(interval_s)}


def _record(job: Job, advice: Advice, rows: list[tuple[str, dict[str, float]]]) -> dict[str, Any]:
    cost, failures = advice.cost, advice.failures
    return {
        "job": job.id,
        "gpus": advice.gpus,
        "save": {"blocked_s": cost.blocked_s, "persist_s": cost.persist_s, "every_s": cost.every_s, "how": cost.how},
        "failures": {"between_s": failures.between_s, "count": failures.count, "how": failures.how},
        "every_s": advice.every_s,
        "young_s": advice.young_s,
        "daly_s": advice.daly_s,
        "gpu_hours_a_minute": advice.gpu_hours_a_minute,
        "gpu_hours_a_save": advice.gpu_hours_a_save,
        "intervals": [{"name": name, **row} for name, row in rows],
    }


def found_or_none(gather: Any) -> Any:
    """Return what a call gives, or None where there is nothing to be found: the cost may still be in the log."""
    try:
        return gather()
    except NightshiftError:
        return None
