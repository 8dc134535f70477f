"""`nightshift jobs` and `nightshift job show`: what the scheduler knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of
from assistant.cli.group import app, examples
from assistant.cli.options import Json, Limit
from assistant.cli.output import completions, print_json, print_line, print_pairs, print_table
from assistant.cli.times import age, local, now
from assistant.errors import NightshiftError
from assistant.nodeset import fold
from assistant.records import JobState

if TYPE_CHECKING:
    from assistant.records import Job

jobs_app = app(help="List the jobs that the scheduler knows.")
job_app = app(help="Show or check one job.", no_args_is_help=True)

MOST_LOGS = 12
"""Lines about logs: of more ranks the first few."""
Spec = Annotated[bool, typer.Option("--spec", help="With --json: also script, environment and options, secrets masked.")]


def job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of jobs for the shell to complete, with the name as help."""
    listed = door_of(context).engine().scheduler.jobs()
    return completions(((job.id, f"{job.name} {job.state}") for job in listed), incomplete)


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
        for job in door_of(context).engine().scheduler.jobs()
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
    door = door_of(context)
    subject = door.engine().scheduler.job(job)
    incidents = door.store.incidents(job=subject.id)
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
