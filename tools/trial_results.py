"""What trial starts of an incident have shown, as the steps after them must take it: proven ways, refuted ones, files of no use.

A start that was proven is the one that is submitted, for the checkpoint that it read and at the step that it went on from; one that
died surely of its own is submitted no more. A file is refused only where its form was the error and its size speaks against it.
A trial that could not run binds nothing, and neither does one of another attempt, or of files that have changed since.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, file_stat
from assistant.recover.checkpoints.shards import NO_STEP
from assistant.recover.directives import start_line
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.trial.marks import attempt_mark, is_changed
from assistant.recover.trial.trial import TrialWay, proven_trial, spec_digest, trials_of
from assistant.tooling import Context
from assistant.untrusted import is_regular, reading_as

OF_A_SKIP = "NIGHTSHIFT_SKIP_"
"""Variables that leave data out: a restart may set them besides what was tried."""
MOST_REFUSED = 8


def trial_results(context: Context, job: Job, key: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield what trial starts of this incident have answered of a job as it is now, the newest first.

    Args:
        context: Of the call.
        job: With its spec.
        key: Of the digest of the submission in the answer; empty to yield also for trials that came to nothing or still wait.
    """
    for call in reversed(context.history.calls(context.incident) if context.incident is not None and job.spec is not None else ()):
        if call.tool != "trial_start" or call.arguments.get("job") != job.id:
            continue
        outcome = context.history.outcome(call.id)
        value = outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
        if (not key or (job.spec is not None and value.get(key) == spec_digest(job.spec))) and _is_of_now(job, value):
            yield value


def _is_of_now(job: Job, answer: Mapping[str, Any]) -> bool:
    """Tell whether attempt, chosen checkpoint and refused files are what a trial tried; a refused one may be gone."""
    marks, refused = answer.get("marks"), answer.get("refused")
    if answer.get("attempt", attempt_mark(job)) != attempt_mark(job):
        return False
    if not isinstance(marks, Mapping):
        return not refused
    bound_paths = {str(path) for path in (*marks, *(refused if isinstance(refused, Mapping) else ()))}
    return not any(is_changed(marks, path, job.account, may_be_gone=path in (refused or ())) for path in bound_paths)


def way_after_trials(context: Context, job: Job, way: ResumeWay) -> ResumeWay:
    """Return how a script goes on by what the newest trial start of this incident has shown, else as it was read."""
    trial = next(trial_results(context, job, "submission"), None) if trials_of(way) else None
    if trial is None:
        return way
    note = str(trial.get("note", ""))
    if trial.get("proven"):
        proven = proven_trial(trial)
        as_read = way.means not in OPEN_MEANS and not proven.bound and proven.variable == way.variable
        as_read = as_read and proven.argument == way.argument
        return replace(way, home_made=False) if as_read else proven.way(note)
    refuted = ResumeWay(
        ResumeMeans.UNKNOWN, f"{way.by}; {note}", usage=way.usage, script_arguments=way.script_arguments, tried=True
    )
    return refuted if trial.get("refuted") else way


OPEN_MEANS = (ResumeMeans.NONE, ResumeMeans.UNKNOWN, ResumeMeans.FIXED)


def start_words(job: Job, trial: TrialWay, checkpoint: Checkpoint) -> str:
    """Return a start as a person types it: `cd /w && STATE=/w/states/step_40.bin sbatch run.sh`."""
    path = checkpoint.path
    places = {"checkpoint": str(path), "name": path.name, "step": str(checkpoint.step), "folder": str(path.parent)}
    spec = job.spec
    if spec is not None and trial.arguments is not None:
        job = replace(job, spec=replace(spec, arguments=trial.arguments))
    line = start_line(job)
    if not trial.variable:
        return line if not trial.argument else f"{line}, with {trial.argument} behind the command of its program"
    filled = re.sub(r"\{(\w+)\}", lambda match: shlex.quote(places[match[1]]) if match[1] in places else match[0], trial.variable)
    before, sbatch, after = line.partition("sbatch ")
    return f"{before}{filled} {sbatch}{after}" if sbatch else f"{line}, with {filled} in its environment"


def proof_words(context: Context, job: Job) -> str:
    """Return the start that a trial of this incident has proven, for people; empty where none was."""
    proof = next(trial_results(context, job, "submission"), {})
    command = str(proof.get("command", "")) if proof.get("proven") else ""
    return f"; proven in a sandbox is: {command}" if command else ""


def with_trial_note(context: Context, job: Job, note: str) -> str:
    """Return a note for people with what the newest trial start of this incident has shown, where it does not say so already."""
    shown_note = str(next(trial_results(context, job, "submission"), {}).get("note", ""))
    return note if not shown_note or shown_note in note else f"{note}; {shown_note}"


def start_digest(spec: JobSpec) -> str:
    """Return the digest of a start as it is tried and submitted, but for the data that is left out."""
    environment = {name: text for name, text in spec.environment.items() if not name.startswith(OF_A_SKIP)}
    return spec_digest(replace(spec, environment=environment))


def differs_from_proof(context: Context, job: Job, spec: JobSpec, checkpoint: Checkpoint | None) -> str:
    """Return why a planned submission is not the start that a trial has proven; empty where it is, or where none was proven.

    Args:
        context: Of the call.
        job: The attempt that ended.
        spec: The planned submission.
        checkpoint: Where it is to go on.
    """
    proof = next(trial_results(context, job, "submission"), {})
    if not proof.get("proven") or checkpoint is None:
        return ""
    if proof.get("checkpoint") and proof["checkpoint"] != str(checkpoint.path):
        step = proof.get("step")
        if isinstance(step, int) and checkpoint.step > step:
            return ""  # the job lived on and saved once more: the way was proven, and what it leads to is whole and newer
        return f"a trial start proved that it goes on from {proof['checkpoint']}, and {checkpoint.path} was chosen since"
    if proof.get("start") and proof["start"] != start_digest(spec):
        return f"it would not be the start that was proven ({proof.get('note', '')}): its script, arguments or environment differ"
    return ""


def with_trial_results(context: Context, job: Job, listing: Inventory) -> Inventory:
    """Return what a folder holds, without what a trial start died of, and with the step of what one was proven to go on from.

    A file that no rule takes for a checkpoint is one of them once a start has read it and died.
    """
    refused: dict[Path, str] = {}
    proof: Mapping[str, Any] = {}
    for result in trial_results(context, job, "submission"):
        listed = result.get("refused")
        for path, why in list(listed.items())[:MOST_REFUSED] if isinstance(listed, Mapping) else ():
            refused.setdefault(Path(str(path)), str(why))
        proof = proof or (result if result.get("proven") else {})
    listing = refused_in(listing, refused, job.account)
    return replace(listing, checkpoints=tuple(_at_proven_step(save, proof) for save in listing.checkpoints))


def refused_in(listing: Inventory, refused: Mapping[Path, str], account: str) -> Inventory:
    """Return an inventory in which some files, by path, must not be loaded; one that is not there any more is left out."""
    lying = {path: why for path, why in refused.items() if _lies_there(path, account)}
    if not lying:
        return listing
    known_paths = {entry.path for entry in listing.entries}
    files = {path: file_stat(path) for path in lying if path not in known_paths}
    added = [Entry(path, UNKNOWN_STEP, Format.PLAIN, {path.name: stat}) for path, stat in files.items()]
    saves = [
        Checkpoint(path, UNKNOWN_STEP, Format.PLAIN, stat.size, _moment(stat.mtime), healthy=False, problems=())
        for path, stat in files.items()
    ]

    def judged(save: Checkpoint) -> Checkpoint:
        if save.path not in lying:
            return save
        other_problems = () if save.undecided else save.problems
        return replace(save, healthy=False, undecided=False, problems=(lying[save.path], *other_problems))

    checkpoints = tuple(map(judged, (*saves, *listing.checkpoints)))
    return replace(listing, checkpoints=checkpoints, entries=(*added, *listing.entries), torn={**listing.torn, **lying})


def _lies_there(path: Path, account: str) -> bool:
    try:
        with reading_as(account):
            return is_regular(path) or path.is_dir()
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return False


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _at_proven_step(save: Checkpoint, proof: Mapping[str, Any]) -> Checkpoint:
    """Return a checkpoint that tells no step as one of the step at which a trial start went on from it."""
    only_untold = save.undecided and bool(save.problems) and all(problem.endswith(NO_STEP) for problem in save.problems)
    step = proof.get("step")
    if not only_untold or proof.get("checkpoint") != str(save.path) or not isinstance(step, int) or step <= 0:
        return save
    grounds = (str(proof.get("note", "")),)
    unread = "tells its step by a trial start"
    return replace(save, step=step, healthy=True, undecided=False, problems=(), unread=unread, grounds=grounds)
