"""`nightshift job check`: what is understood of a job before it ever fails, and which line of its script would improve that."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assistant.doors.cli.door import Door, door_of
from assistant.doors.cli.exits import Exit
from assistant.doors.cli.group import examples
from assistant.doors.cli.jobs import job_app
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_pairs

if TYPE_CHECKING:
    from assistant.records import Job, JobSpec
    from assistant.recover.job_reading import JobReading

MOST_SCRIPT = 1 << 20


class _Target(NamedTuple):
    """What is checked, and what is known of it beyond its script."""

    reading: JobReading
    job: Job | None
    log: str
    """Whether the log can be read now; empty for a script that does not run."""
    saved: str
    """What lies in the checkpoint folder."""
    submitted: str
    """The exact command that would submit it again, or why there is none."""


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
    door = door_of(context)
    path = Path(target)
    found = _of_script(door, path, arguments or []) if path.is_file() or "/" in target else _of_job(door, target)
    reading = found.reading
    ready = reading.ready and not (strict and reading.gaps)
    if as_json:
        print_json(_record(found))
    else:
        _print(found)
    raise typer.Exit(Exit.DONE if ready else Exit.ERROR)


def _of_script(door: Door, path: Path, arguments: list[str]) -> _Target:
    from assistant.errors import InputError
    from assistant.recover.job_reading import read_script
    from assistant.untrusted import read_whole, why_unreadable

    try:
        script = read_whole(path, MOST_SCRIPT).decode("utf-8", "replace")
    except (OSError, InputError) as error:
        raise InputError(f"{path}: cannot be read as a batch script: {why_unreadable(error)}") from error
    reading = read_script(script, name=path.name, arguments=arguments, work_dir=Path.cwd())
    return _Target(reading, None, "", _saved(reading, ""), _command(door, reading.spec, with_script=str(path)))


def _of_job(door: Door, job_id: str) -> _Target:
    from dataclasses import replace

    from assistant.errors import ToolError
    from assistant.recover.checkpoints.place import checkpoint_place
    from assistant.recover.job_reading import LogFile, read_spec, with_gaps
    from assistant.recover.joblog import log_lines

    job = door.engine().scheduler.job(job_id)
    if job.spec is None:
        raise ToolError(f"the scheduler keeps no script of job {job_id}, so it cannot be submitted again; check its script by file")
    reading = read_spec(job.spec)
    lines = [line.text for line in log_lines(job)]
    place = checkpoint_place(job, {}, lines)
    if place is not None and (not reading.checkpoint_folder or place.how != "the job's log"):
        reading = with_gaps(replace(reading, checkpoint_folder=str(place.folder), checkpoint_how=place.how))
    if job.log is not None:
        others = tuple(log for log in reading.logs if log.stream != "output")
        reading = replace(reading, logs=(LogFile(str(job.log), "output", "the scheduler's record"), *others))
    log = f"{len(lines):,} lines of its end can be read" if lines else "holds nothing that can be read now"
    return _Target(
        reading,
        job,
        log if job.log is not None else "it has none yet",
        _saved(reading, job.account),
        _command(door, _planned(job, job.spec)),
    )


def _planned(job: Job, spec: JobSpec) -> JobSpec:
    """Return the job as a restart from the start would submit it; which checkpoint is chosen is decided when it fails."""
    from assistant.recover.restart import attempt_of, plan_restart
    from assistant.tooling import PENDING_TAG

    return plan_restart(job, spec, None, attempt=attempt_of(spec) + 1, tag=PENDING_TAG)


def _command(door: Door, spec: JobSpec, *, with_script: str = "") -> str:
    from assistant.errors import NightshiftError
    from assistant.schedulers.slurm_spec import sbatch_words

    if with_script:
        # the options stand in the script itself
        return shlex.join(["sbatch", "--parsable", with_script, *spec.arguments])
    try:
        if door.settings.scheduler == "slurm":
            return "\n".join(door.engine().scheduler.command_lines("submit", spec))
        return shlex.join(["sbatch", *sbatch_words(spec), *spec.arguments])
    except NightshiftError as error:
        return f"none: {error}"


def _saved(reading: JobReading, account: str) -> str:
    """Return what lies in the checkpoint folder now, as far as it can be read from here with the owner's rights."""
    from datetime import UTC, datetime

    from assistant.errors import NightshiftError
    from assistant.recover.checkpoints.inventory import inventory
    from assistant.untrusted import LOOK_S, is_folder, reading_as, within

    if not reading.checkpoint_folder or "$" in reading.checkpoint_folder:
        return ""
    folder = reading.spec.work_dir / Path(reading.checkpoint_folder).expanduser()
    try:
        with reading_as(account):
            if not within(LOOK_S, lambda: is_folder(folder), str(folder)):
                return f"{folder} does not exist yet, or cannot be seen from here"
            found = within(LOOK_S, lambda: inventory(folder, now=datetime.now(UTC)), str(folder))
    except (NightshiftError, OSError) as error:
        return f"{folder}: {error}"
    if not found.checkpoints:
        return f"{folder} holds no checkpoint that is recognised"
    newest = found.checkpoints[-1]
    return f"{len(found.checkpoints)} in {folder}, the newest of step {newest.step} ({newest.format})"


def _record(found: _Target) -> dict[str, object]:
    from assistant.tooling import to_json

    record = to_json(found.reading)
    spec = record.pop("spec")
    record["name"], record["work_dir"] = spec["name"], spec["work_dir"]
    return {
        **record,
        "ready": found.reading.ready,
        "job": found.job.id if found.job is not None else None,
        "log": found.log,
        "saved": found.saved,
        "submitted": found.submitted,
    }


def _print(found: _Target) -> None:
    reading = found.reading
    where = f"{reading.checkpoint_folder} ({reading.checkpoint_how})" if reading.checkpoint_folder else "not known"
    print_pairs(
        [
            ("job", found.job.id if found.job is not None else reading.spec.name),
            ("framework", reading.framework or "none that is recognised"),
            ("starts with", reading.launch or "no launch command that is recognised"),
            ("logs", [f"{log.path} ({log.stream}, {log.how})" for log in reading.logs]),
            ("log now", found.log),
            ("checkpoints", where),
            ("saved now", found.saved),
            ("resumes", f"{_RESUMES[reading.resume.mode]}: {reading.resume.how}"),
            ("shape", reading.shape),
            ("submits", found.submitted),
        ]
    )
    print_line()
    if not reading.gaps:
        print_line("ready: nothing in the script would improve this", colour="green")
        return
    first = next((gap for gap in reading.gaps if gap.line), reading.gaps[0])
    print_line("ready" if reading.ready else "not ready", colour="green" if reading.ready else "red")
    for gap in reading.gaps:
        print_line(f"  {gap.weight}: {gap.text}")
    if first.line:
        print_line()
        print_line(f"this line would improve it most: {first.line}")


_RESUMES = {
    "nightshift": "from the checkpoint that Nightshift chooses",
    "itself": "by itself, from what it finds",
    "no": "does not resume: it would start at step 0",
    "unknown": "not known",
}
