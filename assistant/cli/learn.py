"""`nightshift learn`: teach from labelled logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Door, door_of, user
from assistant.cli.group import app, examples
from assistant.cli.options import DryRun, Json
from assistant.cli.output import print_json, print_table

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.lessons import Learned

learn_app = app(help="Teach Nightshift from labelled logs.")


@learn_app.command(
    epilog=examples("nightshift learn --from runs/labelled --dry-run", "nightshift learn --from runs/labelled --json")
)
def learn(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--from", metavar="FOLDER", help="Cases with label.toml, or with labels.jsonl beside them.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Teach Nightshift from labelled logs.

    Each case is diagnosed. Where that is wrong, the labelled line becomes a signature on trial when it passes the proof; every
    case is remembered, and the embedded model's heads are fitted anew to all that is remembered, into the site's knowledge.
    A case is a folder as for `nightshift diagnose`, with a label.toml: reason, and where known lines (file:line), action, nodes,
    why. Healthy cases (reason = "no_failure") are what new signatures must not match.
    """
    from assistant.diagnose.labels import read_labels
    from assistant.engine.lessons import learn_from

    labels = read_labels(folder)
    door = door_of(context)
    with _engine(door, dry_run=dry_run) as engine:
        results = []
        for result in learn_from(engine, labels, by=user()):
            results.append(result)
            if as_json:
                print_json(_object(folder, result))
        if not dry_run:
            _relearn(door, engine)
    if not as_json:
        print_table(("case", "reason", "diagnosed", "incident", "learned"), [_row(folder, result) for result in results])


def _relearn(door: Door, engine: Engine) -> None:
    """Fit the embedded model's heads to every memory, where the site has a folder to keep them in."""
    from assistant.llm.embedded import relearn

    if door.site is None:
        return
    model = relearn([(line, memory.reason) for memory in engine.store.memories() for line in memory.lines[:1]], door.site)
    if model is not None:
        door.say(
            f"the line model knew {model.right_before} of {model.lines} remembered lines, "
            f"now knows {model.right_after}: {model.path}"
        )


@contextmanager
def _engine(door: Door, *, dry_run: bool) -> Iterator[Engine]:
    if dry_run:
        with door.rehearsal() as engine:
            yield engine
    else:
        yield door.engine()


def _row(folder: Path, result: Learned) -> tuple[object, ...]:
    name = result.label.folder.relative_to(folder) if result.label.folder != folder else result.label.folder.name
    diagnosed = "unreadable" if result.before is None else "right" if result.was_right else result.before.reason
    return (name, result.label.reason, diagnosed, result.incident, _outcome(result))


def _outcome(result: Learned) -> str:
    if result.problem or result.taught is None:
        return result.problem
    if result.taught.learned is not None:
        return f"{result.taught.learned.id}: {result.taught.learned.pattern}"
    return f"refused: {result.taught.refused}" if result.taught.refused else "remembered"


def _object(folder: Path, result: Learned) -> dict[str, object]:
    learned = result.taught.learned if result.taught is not None else None
    return {
        "case": str(result.label.folder.relative_to(folder)),
        "reason": result.label.reason,
        "diagnosed": result.before.reason if result.before is not None else None,
        "right": result.was_right,
        "incident": result.incident,
        "rule": learned.id if learned is not None else None,
        "pattern": learned.pattern if learned is not None else None,
        "refused": result.taught.refused if result.taught is not None else "",
        "problem": result.problem,
    }
