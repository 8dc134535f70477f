"""Jobs that start other jobs or wait for them: drivers of workflows, and dependencies.

A driver starts what failed again by itself or gives up. Started again it goes on with the jobs that are left, or not: by its
script, its source and its log. Only a job that watches over others and whose log names jobs that it submitted is one; what logs
steps of a training is none. Sources: snakemake 7 (`Submitted job 2 with external jobid '3'.`) and its slurm executor 8 (`submitted
with SLURM jobid 3`), Nextflow 24 (`.command.run` with `nxf_launch`), dask-jobqueue 0.9 (`python -m distributed.cli.dask_worker`),
sbatch.

Dependencies, measured on Slurm 22.05: when a job fails or is cancelled, `afternotok`, `afterany`, `afterburstbuffer`, `singleton`
and a list with `?` of which one part holds let the next job begin within a second; `after:JOB+MINUTES` by the clock; `afterok` and
`aftercorr` wait for ever as `DependencyNeverSatisfied`, or are cancelled. When it is queued again by its owner or by Slurm, all go
on waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.ports import Dependents, Scheduler
from assistant.records import Job, JobState
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines, log_points
from assistant.recover.source.reruns import marks_what_is_there, skips_what_is_there
from assistant.redact import head_of
from assistant.untrusted import reading_as

_CLAUSE = re.compile(
    r"(?P<kind>after\w{0,20}):(?P<job>\d+(?:_(?:\d+|\*))?(?:\+\d+)?)(?:\((?P<shown>\w{1,20})\))?|(?P<single>singleton)"
)
"""Of a dependency as `squeue` shows it: `afterok:12_*(failed)`, `after:12+30(unfulfilled)`, `singleton(unfulfilled)`."""
_ENDS_WELL = frozenset({"afterok", "aftercorr"})
_MOST_TOLD = 4
_AT_A_TIME = re.compile(r"^#SBATCH[ \t]+(?:\S[^\n]*[ \t])?(?:--array[= \t]|-a[ \t]?)[\d,:-]+%(\d{1,6})", re.MULTILINE)
"""An array of which only so many tasks run at a time: `#SBATCH --array=1-4%1`, as pieces of a chain do."""
_MOST_LINKS = 50
"""Jobs of one chain that are followed."""


class Turn(IntEnum):
    """When a pending job begins by itself; of parts that must all hold the lowest counts, of alternatives the highest."""

    NEVER = 0
    LATER = 1
    NOW = 2


class JobTurn(NamedTuple):
    """When a pending job begins, and for which jobs it waits until then."""

    turn: Turn
    awaited: tuple[str, ...] = ()


def turn_of(waiting: Job, ended: Job, job_of: Callable[[str], Job | None], same_name: Sequence[Job] = ()) -> JobTurn:
    """Return when a pending job begins by its dependency, taken that a job has ended and is not started again.

    Args:
        waiting: The pending job.
        ended: The one that has ended without success, whatever the scheduler has noticed of it yet.
        job_of: Gives a job by its id; None where it is not known.
        same_name: Jobs of the same name and user, for `singleton`.

    Returns:
        A job without a dependency has its turn now. One that is not known counts as awaited.
    """
    alternatives = "?" in waiting.dependency
    parts: list[JobTurn] = []
    for clause in _CLAUSE.finditer(waiting.dependency):
        if clause["single"]:
            parts.append(_alone(waiting, ended, same_name))
        else:
            parts.append(_part(clause["kind"], clause["job"], clause["shown"] or "", ended, job_of))
    if not parts:
        return JobTurn(Turn.NOW)
    turn = (max if alternatives else min)(part.turn for part in parts)
    return JobTurn(
        turn, tuple(dict.fromkeys(link_later for part in parts if part.turn is Turn.LATER for link_later in part.awaited))
    )


def _part(kind: str, job_id: str, text: str, ended: Job, job_of: Callable[[str], Job | None]) -> JobTurn:
    own = job_id.partition("+")[0] if kind == "after" else job_id
    if own.partition("+")[0] == ended.id.partition("+")[0]:
        return JobTurn(Turn.NEVER if kind in _ENDS_WELL else Turn.NOW)
    if text == "failed":
        return JobTurn(Turn.NEVER)
    if text == "fulfilled":
        return JobTurn(Turn.NOW)
    awaited = job_of(own) if "*" not in own else None
    if awaited is None or not awaited.state.ended:
        is_running = kind == "after" and awaited is not None and awaited.started is not None
        return JobTurn(Turn.NOW) if is_running else JobTurn(Turn.LATER, (own,))
    if kind in _ENDS_WELL:
        return JobTurn(Turn.NOW if awaited.state is JobState.COMPLETED else Turn.NEVER)
    if kind == "afternotok":
        return JobTurn(Turn.NEVER if awaited.state is JobState.COMPLETED else Turn.NOW)
    return JobTurn(Turn.NOW)


def _alone(waiting: Job, ended: Job, same_name: Sequence[Job]) -> JobTurn:
    """Return when a job with `singleton` begins: all of its user and name that came before it, or run, are over then."""
    before = [
        job_named.id
        for job_named in same_name
        if (job_named.name, job_named.user) == (waiting.name, waiting.user)
        and job_named.id not in (waiting.id, ended.id)
        and not job_named.state.ended
        and (job_named.state is not JobState.PENDING or _number(job_named.id) < _number(waiting.id))
    ]
    return JobTurn(Turn.LATER, tuple(before)) if before else JobTurn(Turn.NOW)


def is_behind(link: Job, ended: Job, job_of: Callable[[str], Job | None]) -> bool:
    """Tell whether a pending job waits for a job that has ended, itself or through other jobs of a chain."""
    waiting, ids_seen = [link], {link.id}
    while waiting and len(ids_seen) <= _MOST_LINKS:
        for clause in _CLAUSE.finditer(waiting.pop().dependency):
            own = (clause["job"] or "").partition("+")[0]
            if own in (ended.id.partition("+")[0], f"{ended.id.partition('_')[0]}_*"):
                return True
            awaited = job_of(own) if own and own not in ids_seen and "*" not in own else None
            if awaited is not None and awaited.state is JobState.PENDING:
                ids_seen.add(awaited.id)
                waiting.append(awaited)
    return False


def task_at_work(job: Job, user_jobs: Sequence[Job], restarted: Callable[[Job], str]) -> Job | None:
    """Return a task that is at work of an array which has as many of them as it may (`%1`, `%6`); None where one more may begin.

    Beside it a restart would be one too many: of pieces of one training in one folder the second, of others beyond what their owner
    wanted to run at a time.

    Args:
        job: The task that ended.
        user_jobs: The jobs of its user.
        restarted: Says of which job another one is the restart; empty for none of ours.
    """
    limit = tasks_at_a_time(job)
    if limit is None:
        return None

    def array_of(task: Job) -> str:
        return (restarted(task) or task.id).partition("_")[0]

    array = array_of(job)
    alive = [task for task in user_jobs if task.id != job.id and not task.state.ended and not task.held and array_of(task) == array]
    return alive[0] if len(alive) >= limit else None


def tasks_at_a_time(job: Job) -> int | None:
    """Return how many tasks of an array may be at work; None for a job of no array, or of one without a limit."""
    if job.spec is None:
        return None
    typed = [match[1] for word in job.spec.options if (match := re.fullmatch(r"(?:--array=|-a)[\d,:-]+%(\d{1,6})", word))]
    limits = typed or _AT_A_TIME.findall(job.spec.script)
    return max(1, int(limits[-1])) if limits else None


DEPENDENTS_WAIT = re.compile(r"; \d[^;]{0,2000} and never begin as they are: [^;]{0,400}")
"""The sentence of `never_begin` within a note."""


def never_begin(scheduler: Scheduler, ended: str | None, successor: str = "", *, finished: bool = False) -> str:
    """Return which jobs wait for a job to end well that nobody starts again, and what lets them begin; empty where none does.

    Args:
        scheduler: Of the jobs.
        ended: Id of the job that they wait for; None for no job.
        successor: Id of another job with which its run goes on; empty where none is known.
        finished: Whether its work was done, so that what waits for it has what it needs.
    """
    if ended is None or not isinstance(scheduler, Dependents):
        return ""
    try:
        waiting = [dependent for dependent in scheduler.dependents(ended) if dependent.id != successor]
    except (ToolError, Unavailable) as error:
        return f"; whether other jobs wait for {ended} is not known: {error}"
    if not waiting:
        return ""
    names = ", ".join(f"{dependent.id} ({dependent.name} of {dependent.user})" for dependent in waiting[:_MOST_TOLD])
    more = f" and {len(waiting) - _MOST_TOLD} more" if len(waiting) > _MOST_TOLD else ""
    waiting_id = waiting[0].id
    together, apart = _failed_too(scheduler, waiting[0], ended) if not finished else ((), ())
    try:
        to = "" if finished else successor or "NEW"
        lines = scheduler.command_lines("move_dependent", waiting_id, ended, to)
        remedy = "; ".join(_without_parts(line, together) for line in lines) if not successor else "; ".join(lines)
    except (ToolError, Unavailable) as error:
        remedy = f"let it wait for {successor or 'the job with which the run goes on'} ({error})"
    if finished:
        remedy = f"its work is done: {remedy} lets it begin where it needs no more than that, scancel {waiting_id} takes it back"
    elif not successor:
        run = f"the tasks {', '.join(sorted((ended, *together), key=_task_number))} go" if together else "the run goes"
        remedy = f"once {run} on as job NEW, {remedy}, or scancel {waiting_id} where it is not wanted any more"
    if also := (*together, *apart) if successor else apart:
        remedy += f"; it waits for {', '.join(also)} as well, which failed too: put the job with which that goes on in its place"
    return f"; {names}{more} wait for job {ended} to end well and never begin as they are: {remedy}"


def _failed_too(scheduler: Scheduler, waiting: Job, ended: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which other jobs have failed that a job waits for to end well: tasks of the same array, then all others.

    What waits for a whole array waits for each of its tasks.
    """
    array = ended.partition("_")[0] if "_" in ended else ""
    clauses = [match for match in _CLAUSE.finditer(waiting.dependency) if match["kind"] in _ENDS_WELL]
    names = [match["job"] for match in clauses if match["job"] != ended and "*" not in match["job"]]
    is_whole = any(match["job"] == f"{array}_*" for match in clauses)
    try:
        tasks = [job for job in scheduler.jobs() if array and job.id.startswith(f"{array}_") and job.id != ended]
        awaited_jobs = [scheduler.job(name) for name in dict.fromkeys(names) if not array or not name.startswith(f"{array}_")]
    except (ToolError, Unavailable):
        return (), ()
    failed = {job.id for job in tasks if job.state.ended and job.state is not JobState.COMPLETED and (is_whole or job.id in names)}
    apart = [job.id for job in awaited_jobs if job.state.ended and job.state is not JobState.COMPLETED]
    return tuple(sorted(failed, key=_task_number)), tuple(apart)


def _task_number(job_id: str) -> tuple[int, str]:
    return _number(job_id.partition("_")[2]), job_id


def _without_parts(line: str, failed: Sequence[str]) -> str:
    """Return a command that moves a dependency without the parts that wait for jobs to end well which have failed for good."""
    head, mark, dependency = line.partition("Dependency=")
    parts = [part for part in dependency.split(",") if not any(part == f"{kind}:{job}" for kind in _ENDS_WELL for job in failed)]
    return f"{head}{mark}{','.join(parts)}"


def _number(job_id: str) -> int:
    digits = re.match(r"[0-9]{1,12}", job_id)
    return int(digits[0]) if digits is not None else 0


_JOB_ID = re.compile(
    r"\bSubmitted batch job (\d{1,12})\b"
    r"|\bexternal(?: jobid|: ) ?'?(?:Submitted batch job )?(\d{1,12})\b"
    r"|\b(?:cluster|external)_jobid: '?(\d{1,12})\b"
    r"|\bSLURM job ?id:? '?(\d{1,12})\b"
    r"|\bjobId: (\d{1,12})\b"
)
_MENTION = re.compile(r"\b[Jj][Oo][Bb][ _-]?(?:[Ii][Dd])?\s?[:=#]?\s?'?(\d{1,12})(?![\d%/.])\b(?! ?of\b)")
"""A job by its id in the words of a home-made driver: `attempt 1: job 2 from step 0`."""
_SUBMITS = re.compile(r"\bsbatch\b(?!\.)")
MOST_CHARACTERS = 1_000
"""Of one line of a log."""
_WATCHES = re.compile(
    r"\b(?:snakemake|nextflow|cwltool|toil-\w+|luigi|parsl|cromwell|submitit|dask_jobqueue|metaflow|airflow|prefect)\b"
    r"|\b(?:squeue|sacct)\b|\bscontrol\b[^\n]{0,20}\bshow\b|\bsbatch\b[^\n]{0,400}\s(?:--wait|-W)\b"
)
"""What watches over the jobs that it submits: a workflow program, or a script that asks for their state or waits for them."""


class Workflow(NamedTuple):
    """A program outside of Slurm that submits jobs and watches over them."""

    name: str
    command: str
    """How its owner starts it again."""


_MAKES_MISSING = re.compile(r"\b(?:snakemake|luigi|doit)\b|\bnextflow\b[^\n]{0,400}\s-resume\b")
"""Programs that leave out what is finished; Nextflow only where it is told."""
_MAKES_ALL = re.compile(r"\s(?:-F|--forceall|-f|--force|-R|--forcerun|--unlock|--delete-all-output)\b")
_TESTS_OWN = re.compile(r"(?:\[{1,2}|\btest)\s{1,8}-[efsd]\s[^\n]{0,200}?\$")
"""A test of a shell for a file that a variable names."""
_LEFT_OUT = re.compile(r"\bcontinue\b")
_ELSE_SUBMITS = re.compile(r"\|\|[^|]{0,200}\bsbatch\b")
ROUND_LINES = 4
"""Lines from a test on, to the end of what it decides about."""
_WORKFLOWS = (
    (
        re.compile(r"^# properties = \{|\bsnakemake\b[^\n]{0,2000}\s--(?:allowed-rules|target-jobs)\b", re.MULTILINE),
        Workflow("Snakemake", "the same snakemake command, with --rerun-incomplete"),
    ),
    (re.compile(r"^\s{0,8}nxf_(?:launch|main|stage)\b", re.MULTILINE), Workflow("Nextflow", "nextflow run ... -resume")),
    (
        re.compile(r"\bdistributed\.cli\.dask_worker\b|\bdask[- ]worker\s+(?:tcp|tls)://"),
        Workflow(
            "a Dask cluster (dask-jobqueue)", "start the program that made the cluster; adaptive clusters ask for new workers"
        ),
    ),
)


def named_jobs(texts: Iterable[str]) -> frozenset[str]:
    """Return the ids of jobs that a log says were submitted."""
    matches = (match for text in texts for match in _JOB_ID.finditer(text[:MOST_CHARACTERS]))
    return frozenset(next(filter(None, match.groups())) for match in matches)


def submitted_by(child: Job, parent: Job, job_ids: frozenset[str]) -> bool:
    """Tell whether a job was submitted by another one of its owner: it was at work then, and its log names the other.

    Variables that a job took over from another one say less: whoever works in an allocation submits from it by hand.

    Args:
        child: As the scheduler shows it.
        parent: That may have submitted it.
        job_ids: From the parent's log, by `named_jobs`.
    """
    if child.id == parent.id or child.user != parent.user or child.submitted is None or parent.started is None:
        return False
    if child.submitted < parent.started or (parent.ended is not None and child.submitted > parent.ended):
        return False
    return not parent.interactive and child.id.partition("_")[0] in job_ids


def mentioned_jobs(texts: Iterable[str]) -> frozenset[str]:
    """Return the ids of jobs that a log speaks of in any words; a job that is only watched is mentioned, too."""
    return frozenset(match[1] for text in texts for match in _MENTION.finditer(text[:MOST_CHARACTERS]))


def is_worker_of(child: Job, parent: Job, mentioned: frozenset[str]) -> bool:
    """Tell whether a job is one that a home-made driver submitted, given that the driver calls sbatch and watches over jobs.

    Who submits from another machine than the driver's is a person. Where the scheduler does not say from which, the driver's log
    has to speak of the job, and both have to work in one folder.

    Args:
        child: As the scheduler shows it, with the machine on which it was submitted where that is known.
        parent: That may have submitted it.
        mentioned: From the parent's log, by `mentioned_jobs`.
    """
    if not submitted_by(child, parent, frozenset((child.id.partition("_")[0],))) or child.work_dir != parent.work_dir:
        return False
    if child.submit_host:
        return child.submit_host.partition(".")[0] in {node.partition(".")[0] for node in parent.nodes}
    return child.id.partition("_")[0] in mentioned


def submits_jobs(texts: Iterable[str]) -> bool:
    """Tell whether a script or a program calls sbatch.

    Args:
        texts: The script of a job, and the sources of what it starts.
    """
    lines = (line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(_SUBMITS.search(line[:MOST_CHARACTERS]) for line in lines)


def watches_over_jobs(texts: Iterable[str]) -> bool:
    """Tell whether a script or a program asks what becomes of jobs: only who does so can start them again.

    Args:
        texts: The script of a job, and the sources of what it starts.
    """
    lines = (line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(_WATCHES.search(line[:MOST_CHARACTERS]) for line in lines)


def makes_only_missing(script: str) -> str:
    """Return what of a driver's script leaves out what is finished when it runs again; empty where nothing is known to."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    for line in code.splitlines():
        if (match := _MAKES_MISSING.search(line[:MOST_CHARACTERS])) and not _MAKES_ALL.search(line[:MOST_CHARACTERS]):
            return f"{match[0].split()[0]} makes only what is missing"
    lines = [line[:MOST_CHARACTERS] for line in code.splitlines()]
    for place, line in enumerate(lines):
        if _TESTS_OWN.search(line) is None or re.search(r"[\[t]\s{1,8}!", line):
            continue
        decided = "\n".join(lines[place : place + ROUND_LINES]).partition("\nfi")[0] if "if " in line else line
        if _LEFT_OUT.search(decided) or _ELSE_SUBMITS.search(line):
            return f"its script leaves out what is there: {head_of(line.strip(), 80)}"
    return ""


def workflow_of(job: Job) -> Workflow | None:
    """Return the program outside of Slurm whose task a job is, by its script; None for any other job."""
    script = job.spec.script if job.spec is not None else ""
    return next((workflow for form, workflow in _WORKFLOWS if form.search(script)), None)


def parents_first(jobs: Sequence[Job], child: Job) -> list[Job]:
    """Return the jobs that may have submitted one: of its owner, at work when it was submitted; the last begun first."""
    at = child.submitted
    fit = [
        entry
        for entry in jobs
        if entry.user == child.user
        and entry.id != child.id
        and at is not None
        and entry.started is not None
        and entry.started <= at
        and (entry.ended is None or entry.ended >= at)
    ]
    return sorted(fit, key=lambda entry: (entry.started is not None and entry.started.timestamp()) or 0.0, reverse=True)


LOG_BYTES = 1 << 20


def jobs_named_by(job: Job) -> frozenset[str]:
    """Return the ids of jobs that the log of a job says were submitted; none where it cannot be read."""
    try:
        with reading_as(job.account):
            return named_jobs(line.text for line in log_lines(job, most_bytes=LOG_BYTES))
    except (NightshiftError, OSError):
        return frozenset()


def goes_on_words(job: Job) -> str:
    """Return by what a driver goes on where it stopped when its script runs once more; empty where nothing is known, or it is none.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None or job.interactive or not jobs_named_by(job):
        return ""
    with reading_as(job.account):
        programs = programs_of(job)
        texts = [job.spec.script, *(source.text for program in programs for source in program.sources)]
        if not watches_over_jobs(texts):
            return ""
        if words := makes_only_missing(job.spec.script):
            return words
        line = skips_what_is_there(programs) or marks_what_is_there(programs)
        return f"{line} passes over what is finished" if line and not log_points(job) else ""
