"""`nightshift checkpoints`: which ones there are, which of them may be loaded, why not the others, and how often to save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from assistant.cli.context import Json, app, examples, invocation_of
from assistant.cli.output import Exit, age, local, now, print_json, print_line, print_pairs, print_record, print_table, user
from assistant.display import span
from assistant.errors import InputError, NightshiftError, ToolError
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.engine import Engine
    from assistant.records import Checkpoint, Incident, Job
    from assistant.recover.checkpoints.interval import Advice, Failures, SaveCost
    from assistant.recover.checkpoints.inventory import Inventory


checkpoints_app = app(help="List and verify checkpoints, and say how often to save.", no_args_is_help=True)

Target = Annotated[str, typer.Argument(metavar="PATH|JOB", help="A checkpoint folder, one checkpoint, or the id of a job.")]


class _Folder(NamedTuple):
    """A folder of checkpoints that an operator named, by its path or by a job."""

    path: Path
    live: bool = False
    """Whether its job may still be writing."""
    foreign: frozenset[Path] = frozenset()
    """Checkpoints in it that are another run's than the job's."""
    only: Path | None = None
    """The one checkpoint that was named; None where all are meant."""
    save_ends: Mapping[Path, str] = MappingProxyType({})
    """What the job shows of saves that nobody can judge."""


def _folder(context: typer.Context, target: str) -> _Folder:
    """Return the folder that a target means."""
    from assistant.recover.checkpoints.bundles import bundle_prefix, files_of_prefix

    path = Path(target)
    if (prefix := bundle_prefix(path.name)) and path.is_file():
        path = path.with_name(prefix)
    if not path.is_dir() and files_of_prefix(path.absolute()):
        return _Folder(path.parent, only=path)
    if path.exists() or "/" in target:
        if not path.exists():
            raise InputError(f"{target}: there is no such folder")
        return _Folder(path)
    engine = invocation_of(context).engine()
    outcome = engine.gate.call("list_checkpoints", {"job": target}, why="asked for by hand", by=f"cli:{user()}")
    if not outcome.ok:
        raise ToolError(outcome.error)
    invocation_of(context).say(f"checkpoints of job {target}: {outcome.value['folder']} ({outcome.value['found_by']})")
    if outcome.value["doubt"]:
        invocation_of(context).say(outcome.value["doubt"])
    job = engine.scheduler.job(target)
    context.with_resource(reading_as(job.account))  # until the command has ended
    ends = {Path(path): words for path, words in outcome.value["save_ends"].items()}
    foreign = frozenset(map(Path, outcome.value["foreign"]))
    return _Folder(Path(outcome.value["folder"]), not job.state.ended, foreign, save_ends=ends)


def _inventory(context: typer.Context, target: str) -> tuple[Inventory, bool]:
    from assistant.recover.checkpoints.inventory import inventory, with_save_ends

    folder = _folder(context, target)
    listing = with_save_ends(inventory(folder.path, now=now(), live=folder.live), folder.save_ends, now=now(), live=folder.live)
    for note in listing.notes:
        invocation_of(context).say(f"{folder.path}: {note}")
    if folder.only is not None:
        listing = replace(
            listing, checkpoints=tuple(checkpoint for checkpoint in listing.checkpoints if checkpoint.path == folder.only)
        )
    if folder.foreign:
        names = ", ".join(sorted(path.name for path in folder.foreign))
        invocation_of(context).say(
            f"{folder.path}: not listed, because they are another run's by their names, steps, times or contents: {names}"
        )
        own = tuple(checkpoint for checkpoint in listing.checkpoints if checkpoint.path not in folder.foreign)
        listing = replace(listing, checkpoints=own)
    return listing, folder.live


@checkpoints_app.command(
    "list",
    epilog=examples("nightshift checkpoints list /ckpt/run7", "nightshift checkpoints list 4821 --json | jq 'select(.healthy)'"),
)
def list_checkpoints(context: typer.Context, target: Target, as_json: Json = False) -> None:
    """List checkpoints, oldest step first, with what speaks against each.

    They are judged by names, sizes, markers and headers; `verify` also reads them through.
    """
    listing, _ = _inventory(context, target)
    if as_json:
        for checkpoint in listing.checkpoints:
            print_record(checkpoint)
        return
    at = now()
    rows = [
        (
            checkpoint.step,
            checkpoint.format,
            _size(checkpoint.size_bytes),
            local(checkpoint.saved_at),
            age(checkpoint.saved_at, at),
            _health(checkpoint),
            checkpoint.path,
        )
        for checkpoint in listing.checkpoints
    ]
    print_table(("step", "format", "size", "saved", "age", "health", "path"), rows)


@checkpoints_app.command(
    "verify",
    epilog=examples("nightshift checkpoints verify /ckpt/run7", "nightshift checkpoints verify 4821 --newest && sbatch again.sh"),
)
def verify_checkpoints(
    context: typer.Context,
    target: Target,
    newest: Annotated[bool, typer.Option("--newest", help="Only the newest one.")] = False,
    as_json: Json = False,
) -> None:
    """Read checkpoints through and say which may be loaded.

    Exit code 1 when one of them is refused, or cannot be judged.
    """
    from assistant.recover.checkpoints.inventory import examined

    listing, live = _inventory(context, target)
    if not listing.checkpoints:
        raise ToolError(f"{listing.folder}: holds no checkpoint of a known format")
    bad = 0
    for checkpoint in listing.checkpoints[-1:] if newest else listing.checkpoints:
        is_open = checkpoint.healthy or checkpoint.undecided
        result = examined(listing, checkpoint, now=now(), live=live) if is_open else checkpoint
        bad += not result.healthy
        if as_json:
            print_record(result)
        else:
            print_line(f"{result.path}: step {result.step}: {_health(result)}", colour="green" if result.healthy else "red")
    if bad:
        raise typer.Exit(Exit.ERROR)


@checkpoints_app.command(
    "advise",
    epilog=examples(
        "nightshift checkpoints advise --job 4821", "nightshift checkpoints advise --job 4821 --mtbf-hours 36 --json | jq .every_s"
    ),
)
def advise_interval(
    context: typer.Context,
    job: Annotated[str, typer.Option("--job", metavar="ID", help="The job.")],
    save_seconds: Annotated[float, typer.Option(min=0.0, help="What a save costs; else as measured.", show_default=False)] = 0.0,
    mtbf_hours: Annotated[float, typer.Option(min=0.0, help="Time between failures; else as seen.", show_default=False)] = 0.0,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs of each node.")] = 8,
    as_json: Json = False,
) -> None:
    """Say how often a job should save, and what each minute costs in GPU-hours.

    By Young's formula, with Daly's beside it: from what a save costs, as the job's checkpoints, metrics or log tell, and from the
    time between failures, as the incidents of its task tell, else those of the cluster.
    """
    engine = invocation_of(context).engine()
    subject = engine.scheduler.job(job)
    listing = None if save_seconds else result_or_none(lambda: _inventory(context, job)[0])
    advice = advice_for(engine, subject, listing, now=now(), cost_s=save_seconds, between_h=mtbf_hours, gpus_per_node=gpus_per_node)
    print_advice(subject, advice, as_json)


def _health(checkpoint: Checkpoint) -> str:
    if checkpoint.healthy and checkpoint.unread:
        return f"NOT JUDGED: {checkpoint.unread}; for it speaks that {', '.join(checkpoint.grounds)}"
    if checkpoint.healthy:
        return "healthy"
    problems = "; ".join(checkpoint.problems)
    return f"NOT JUDGED: {problems.removeprefix('cannot be judged: ')}" if checkpoint.undecided else f"REFUSED: {problems}"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


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
    from assistant.recover.checkpoints.interval import save_cost
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
    """Print the advised interval with its costs, as a table or as JSON."""
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


def result_or_none(gather: Any) -> Any:
    """Return what a call gives, or None where there is nothing to be found: the cost may still be in the log."""
    try:
        return gather()
    except NightshiftError:
        return None
