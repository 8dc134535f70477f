"""`nightshift checkpoints`: which ones there are, which of them may be loaded, why not the others, and how often to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assistant.cli.context import door_of, user
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import print_line, print_record, print_table
from assistant.cli.times import age, local, now
from assistant.errors import InputError, ToolError
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.records import Checkpoint
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
    engine = door_of(context).engine()
    outcome = engine.gate.call("list_checkpoints", {"job": target}, why="asked for by hand", by=f"cli:{user()}")
    if not outcome.ok:
        raise ToolError(outcome.error)
    door_of(context).say(f"checkpoints of job {target}: {outcome.value['folder']} ({outcome.value['found_by']})")
    if outcome.value["doubt"]:
        door_of(context).say(outcome.value["doubt"])
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
        door_of(context).say(f"{folder.path}: {note}")
    if folder.only is not None:
        listing = replace(
            listing, checkpoints=tuple(checkpoint for checkpoint in listing.checkpoints if checkpoint.path == folder.only)
        )
    if folder.foreign:
        names = ", ".join(sorted(path.name for path in folder.foreign))
        door_of(context).say(
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
    from assistant.cli.advice import advice_for, found_or_none, print_advice

    engine = door_of(context).engine()
    subject = engine.scheduler.job(job)
    listing = None if save_seconds else found_or_none(lambda: _inventory(context, job)[0])
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
