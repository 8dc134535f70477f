"""`nightshift jobs`, `job show` and `job check`: what the scheduler knows of jobs, and what is understood of one before it fails.

A check also names the line of the job's script that would improve what is understood.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assistant.cli.context import Invocation, Json, Limit, app, examples, invocation_of, job_ids
from assistant.cli.output import Exit, age, local, now, print_json, print_line, print_pairs, print_table
from assistant.errors import NightshiftError
from assistant.nodeset import fold
from assistant.records import JobState

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.records import Checkpoint, Job
    from assistant.recover.checkpoints.place import Place
    from assistant.recover.checkpoints.search import CheckpointSearch
    from assistant.recover.job_reading import JobReading
    from assistant.recover.resume.means import ResumeWay


jobs_app = app(help="List the jobs that the scheduler knows.")
job_app = app(help="Show or check one job.", no_args_is_help=True)

MOST_LOGS = 12
"""Lines about logs: of more ranks the first few."""
Spec = Annotated[bool, typer.Option("--spec", help="With --json: also script, environment and options, secrets masked.")]


@jobs_app.command(epilog=examples("nightshift jobs", "nightshift jobs --state failed", "nightshift jobs -u alice -p train --json"))
def jobs(
    context: typer.Context,
    state: Annotated[JobState | None, typer.Option("--state", help="Only those in this state.")] = None,
    user: Annotated[str, typer.Option("--user", "-u", metavar="USER", help="Only those of this user.")] = "",
    partition: Annotated[str, typer.Option("--partition", "-p", metavar="NAME", help="Only those in this partition.")] = "",
    limit: Limit = 200,
    spec: Spec = False,
    as_json: Json = False,
) -> None:
    """List the jobs that the scheduler knows.

    The newest stand last, as in Slurm. Exit code 1 when the scheduler does not answer: no list is not an empty list.
    """
    matching = [
        job
        for job in invocation_of(context).engine().scheduler.jobs()
        if (state is None or job.state == state) and user in ("", job.user) and partition in ("", job.partition)
    ][-limit:]
    if as_json:
        for job in matching:
            print_json(_record(job, spec))
        return
    at = now()
    rows = [
        (job.id, job.state, job.name, job.user, job.partition, fold(job.nodes), age(job.started, at), job.reason)
        for job in matching
    ]
    print_table(("id", "state", "name", "user", "partition", "nodes", "started", "reason"), rows, colour_of=1)


@job_app.callback()
def job_group() -> None:
    """Show or check one job."""


@job_app.command("show", epilog=examples("nightshift job show 4821", "nightshift job show 4821 --json | jq -r .log"))
def show_job(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", autocompletion=job_ids)],
    spec: Spec = False,
    as_json: Json = False,
) -> None:
    """Show one job: where it ran, how it ended, its log, the incidents about it."""
    invocation = invocation_of(context)
    subject = invocation.engine().scheduler.job(job)
    incidents = invocation.store.incidents(job=subject.id)
    if as_json:
        print_json({**_record(subject, spec), "incidents": [incident.id for incident in incidents]})
        return
    print_pairs(
        [*_pairs(subject), *_logs(subject), ("incidents", ", ".join(f"{incident.id} ({incident.state})" for incident in incidents))]
    )
    if not incidents and subject.state.failed:
        print_line()
        print_line(f"no incident yet: nightshift recover {subject.id} --dry-run")


def _record(job: Job, with_spec: bool) -> dict[str, object]:
    """Return a job for JSON; its script and environment belong to its user, so they come only when they are asked for."""
    from assistant.tooling import to_json

    record = to_json(job)
    return record if with_spec else {key: value for key, value in record.items() if key != "spec"}


def _logs(job: Job) -> list[tuple[str, object]]:
    """Return the other logs of a job, and why one is not read."""
    from assistant.recover.joblog import logs_of

    try:
        logs = logs_of(job)
    except (NightshiftError, OSError) as error:
        return [("logs", f"unknown: {error}")]
    others_read = [file for file in logs.files if file.path != job.log or not file.readable]
    pairs = [("other log" if file.readable else "no log", file.described()) for file in others_read[:MOST_LOGS]]
    more = [("", f"and {len(others_read) - MOST_LOGS} more")] if len(others_read) > MOST_LOGS else []
    return [*pairs, *more, *(("no log", problem) for problem in logs.problems)]


def _pairs(job: Job) -> list[tuple[str, object]]:
    at = now()
    ended = "" if job.exit_code is None else f"exit code {job.exit_code}" + (f", signal {job.signal}" if job.signal else "")
    return [
        ("job", job.id),
        ("name", job.name),
        ("state", job.state),
        ("reason", job.reason),
        ("ended with", ended),
        ("user", job.user),
        ("partition", job.partition),
        ("nodes", fold(job.nodes)),
        ("attempt", job.attempt or None),
        ("submitted", local(job.submitted) if job.submitted else None),
        ("started", f"{local(job.started)} ({age(job.started, at)})" if job.started else None),
        ("ended", f"{local(job.ended)} ({age(job.ended, at)})" if job.ended else None),
        ("log", job.log),
        ("folder", job.work_dir),
        ("comment", job.comment),
    ]


MOST_SCRIPT = 1 << 20
REFUSED = "refused: "


class CheckedJob(NamedTuple):
    """What is understood of a script or a job, and what is there of it now."""

    reading: JobReading
    job: Job | None
    """None for a script."""
    search: CheckpointSearch
    log: str
    """Which logs can be read now; empty for a script."""
    log_readable: bool
    saved: str
    """What lies in the checkpoint folder."""
    first: str
    """What a restart needs first, or why it would be refused as things are; empty where nothing stands against it."""


@job_app.command(
    "check",
    epilog=examples(
        "nightshift job check train.sbatch",
        "nightshift job check train.sbatch -- --lr 3e-4    # with the script's arguments",
        "nightshift job check 4821 --json | jq -r '.gaps[0].line'",
    ),
)
def check_job(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="SCRIPT|JOB", help="A batch script, or the id of a job.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="Of the script.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 also where a line would only improve it.")] = False,
    as_json: Json = False,
) -> None:
    """Check what is understood of a job, before it fails.

    Shows its logs, where it saves, how it resumes, its shape, the exact command that would submit it again, and which one line of
    the script would improve that most. Nothing is submitted or changed.

    Exit code for CI: 0 Nightshift can bring it back from its checkpoint, 1 something keeps it from that, 2 no such script or job.
    """
    invocation = invocation_of(context)
    path = Path(target)
    if path.is_file() or "/" in target:
        checked = _of_script(invocation, path, arguments or [])
        # the options stand in the script itself
        submitted = shlex.join(["sbatch", "--parsable", str(path), *checked.reading.spec.arguments])
    else:
        with invocation.rehearsal() as engine:
            job = engine.scheduler.job(target)
            checked = checked_job(invocation, job)
            submitted = _submission(engine, job, checked)
    ready = checked.reading.ready and not (strict and checked.reading.gaps)
    if as_json:
        print_json(_check_record(checked, submitted))
    else:
        _print(checked, submitted)
    raise typer.Exit(Exit.DONE if ready else Exit.ERROR)


def _of_script(invocation: Invocation, path: Path, arguments: list[str]) -> CheckedJob:
    from assistant.cli.output import now, user
    from assistant.errors import InputError
    from assistant.recover.checkpoints.search import search_checkpoints
    from assistant.recover.job_program import FileReader
    from assistant.recover.job_reading import job_of_script, read_job, script_logs
    from assistant.recover.resume.script import resume_way
    from assistant.untrusted import read_whole, why_unreadable

    try:
        script = read_whole(path, MOST_SCRIPT).decode("utf-8", "replace")
    except (OSError, InputError) as error:
        raise InputError(f"{path}: cannot be read as a batch script: {why_unreadable(error)}") from error
    job = job_of_script(script, name=path.name, arguments=arguments, work_dir=Path.cwd(), user=user())
    search = search_checkpoints(job, invocation.settings.checkpoints, (), now=now())
    logs, problems = script_logs(job, FileReader(""))
    way = resume_way(job, search.programs, stages=search.stages)
    reading = read_job(
        job, search.programs, way, place=_place(invocation, job, search, ()), search=search, logs=logs, log_problems=problems
    )
    return CheckedJob(reading, None, search, "", False, _saved_text(search), "")


def checked_job(invocation: Invocation, job: Job) -> CheckedJob:
    """Return what is understood of a job and what of it can be read now, with its owner's rights.

    Args:
        invocation: Has the settings.
        job: As the scheduler shows it alone.

    Raises:
        ToolError: The scheduler keeps no script of it.
        Unavailable: The storage did not answer.
    """
    from assistant.cli.output import now
    from assistant.errors import ToolError
    from assistant.recover.checkpoints.search import search_checkpoints
    from assistant.recover.job_program import programs_now
    from assistant.recover.job_reading import log_sources, read_job
    from assistant.recover.joblog import log_lines, logs_of
    from assistant.recover.loaded import loaded_checkpoint
    from assistant.recover.resume.script import resume_way
    from assistant.recover.source.settings import repeat_problem

    if job.spec is None:
        raise ToolError(f"the scheduler keeps no script of job {job.id}, so it cannot be submitted again; check its script by file")
    job = replace(job, spec=replace(job.spec, doubt=repeat_problem(job)))
    logs, lines = logs_of(job), log_lines(job)
    texts = [line.text for line in lines]
    search = search_checkpoints(job, invocation.settings.checkpoints, texts, now=now())
    way = resume_way(job, programs_now(job, search.programs), loaded_checkpoint(lines), search.stages, saved=search.inventory)
    reading = read_job(
        job,
        search.programs,
        way,
        place=_place(invocation, job, search, texts),
        search=search,
        logs=log_sources(logs),
        log_problems=logs.problems,
    )
    readable = len(logs.readable)
    log = f"{readable} of {len(logs.files)} can be read, {len(texts):,} lines of their ends" if readable else logs.none_because()
    return CheckedJob(reading, job, search, log, readable > 0, _saved_text(search), _moves_first(job, search, way))


def _place(invocation: Invocation, job: Job, search: CheckpointSearch, texts: list[str] | tuple[()]) -> Place | None:
    """Return the surest folder also where nothing was found in it."""
    from assistant.recover.checkpoints.place import checkpoint_place
    from assistant.recover.job_program import programs_looking

    return search.place or checkpoint_place(job, invocation.settings.checkpoints, texts, programs_looking(job, search.programs))


def _newest(search: CheckpointSearch) -> Checkpoint | None:
    from assistant.recover.checkpoints.inventory import last

    return last(search.inventory) if search.inventory is not None else None


def _moves_first(job: Job, search: CheckpointSearch, way: ResumeWay) -> str:
    """Return what would have to be done before a restart from the newest checkpoint, none of whose contents are read for that."""
    from assistant.recover.checkpoints.search import folder_moves
    from assistant.recover.resume.plan import resume_plan

    newest = _newest(search)
    if newest is None:
        return ""
    plan = resume_plan(way, search.inventory, newest, moves=folder_moves(job, search))
    if plan.refusal:
        return f"{REFUSED}{plan.refusal}"
    moved = [f"{path} is moved aside" for path in plan.set_aside]
    return "; ".join([*moved, *([f"{plan.tracker} is set to {plan.tracker_text}"] if plan.tracker is not None else [])])


def _submission(engine: Engine, job: Job, checked: CheckedJob) -> str:
    """Return the commands that would bring a job back, as the tools' own previews say.

    Of a job that lives: from the newest checkpoint of now, whose contents are not read; which is chosen is decided when it fails.
    """
    from assistant.cli.output import user
    from assistant.engine.retry_policy import as_the_same_job
    from assistant.errors import NightshiftError
    from assistant.recover.playbook import Wanted
    from assistant.recover.restart import attempt_of, plan_restart, submission_lines
    from assistant.tooling import PENDING_TAG

    spec = checked.reading.spec
    request = as_the_same_job(engine.scheduler, Wanted("again", "resubmit_job", {"job": job.id, "checkpoint": "last_healthy"}, ""))
    try:
        if job.state.ended or request.tool != "resubmit_job":
            return engine.gate.preview(request.tool, request.arguments, by=f"cli:{user()}").text
        if spec.doubt:
            return f"none: job {job.id} cannot be submitted again as it was: {spec.doubt}"
        if checked.first.startswith(REFUSED):
            return f"none: {checked.first.removeprefix(REFUSED)}"
        way = checked.reading.resume
        newest = _newest(checked.search)
        restart = plan_restart(
            job,
            spec,
            newest,
            attempt=attempt_of(spec) + 1,
            tag=PENDING_TAG,
            resume=way.argument,
            variable=way.variable,
            arguments=way.arguments,
        )
        return "\n".join(submission_lines(engine.scheduler, job.id, restart))
    except NightshiftError as error:
        return f"none: {error}"


def _saved_text(search: CheckpointSearch) -> str:
    newest = _newest(search)
    if newest is None or search.inventory is None:
        return "; ".join(search.looked_at)
    return f"{len(search.inventory.checkpoints)} in {search.note}, the newest of step {newest.step} ({newest.format})"


def _check_record(checked: CheckedJob, submitted: str) -> dict[str, object]:
    from assistant.tooling import to_json

    record = to_json(checked.reading)
    spec = record.pop("spec")
    record["name"], record["work_dir"] = spec["name"], spec["work_dir"]
    record["resume"]["sentence"] = checked.reading.resume.sentence
    return {
        **record,
        "ready": checked.reading.ready,
        "job": checked.job.id if checked.job is not None else None,
        "log": checked.log,
        "checkpoints_state": str(checked.search.state),
        "saved": checked.saved,
        "needs_first": checked.first,
        "submitted": submitted,
    }


def _print(checked: CheckedJob, submitted: str) -> None:
    reading = checked.reading
    folder = f"{reading.checkpoint_folder} ({reading.checkpoint_how})" if reading.checkpoint_folder else "not known"
    logs = [f"{log.path} ({log.how})" + "".join(f": {part}" for part in (log.state, log.note) if part) for log in reading.logs]
    print_pairs(
        [
            ("job", checked.job.id if checked.job is not None else reading.spec.name),
            ("framework", reading.framework or "none that is recognised"),
            ("starts with", reading.launch or "no program that is recognised"),
            ("logs", [*logs, *reading.log_problems]),
            ("log now", checked.log),
            ("checkpoints", folder),
            ("saved now", checked.saved),
            ("resumes", reading.resume.sentence),
            ("needs first", checked.first),
            ("shape", reading.shape),
            ("submits" if checked.job is None or checked.job.state.ended else "at its end", submitted.split("\n")),
        ]
    )
    print_line()
    if not reading.gaps:
        print_line("ready: nothing in the script would improve this", colour="green")
        return
    first = next((gap for gap in reading.gaps if gap.line), None)
    print_line("ready" if reading.ready else "not ready", colour="green" if reading.ready else "red")
    for gap in reading.gaps:
        print_line(f"  {gap.weight}: {gap.text}")
    if first is not None:
        print_line()
        print_line(f"this line would improve it most: {first.line}")
