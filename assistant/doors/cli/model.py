"""`nightshift model`: language models, and the line ranker that Nightshift trains itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.doors.cli.door import Door, door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.model_files import INFO_EXAMPLES, LIST_EXAMPLES, USE_EXAMPLES, list_models, model_info, use_model
from assistant.doors.cli.model_pull import PULL_EXAMPLES, pull_model
from assistant.doors.cli.model_test import TEST_EXAMPLES, try_model
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_pairs

if TYPE_CHECKING:
    from assistant.llm.training import Example, Tried

model_app = app(help="Get, choose and test language models; train the line ranker.", no_args_is_help=True)
model_app.command("list", epilog=LIST_EXAMPLES)(list_models)
model_app.command("use", epilog=USE_EXAMPLES)(use_model)
model_app.command("info", epilog=INFO_EXAMPLES)(model_info)
model_app.command("test", epilog=TEST_EXAMPLES)(try_model)
model_app.command("pull", epilog=PULL_EXAMPLES)(pull_model)

FOLDS = 5


@model_app.command(
    "train-ranker",
    epilog=examples("nightshift model train-ranker", "nightshift model train-ranker --from-store --out ranker.safetensors"),
)
def train_ranker(
    context: typer.Context,
    from_store: Annotated[
        bool, typer.Option("--from-store", help="Learn from the store too: learned rules and confirmed incidents.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the order of lines and of what fills their slots.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write here instead of the site's knowledge/ranker.safetensors.")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Cross-validate before the file is written.")] = True,
    as_json: Json = False,
) -> None:
    """Train the line ranker, which guesses the reason where no rule knows a line.

    It learns from the wordings and examples of the content, the site's too. Prints how it does on wordings that were held out.
    The site's file goes before the shipped one. The same content and seed give the same bytes on the same machine.
    """
    from assistant.llm.training import Terms, cross_validate, train

    door = door_of(context)
    target = out or _target(door)
    with _one_thread():
        from assistant.llm.ranker import save_ranker

        lines = _lessons(door, from_store=from_store, seed=seed)
        door.say(f"{len(lines)} lines")
        tried = cross_validate(lines, FOLDS, Terms(seed=seed)) if check else None
        weights = train(lines, Terms(seed=seed))
        save_ranker(weights, target)
    _show(target, weights.about["digest"], len(lines), tried, as_json=as_json)


@model_app.command("show", epilog=examples("nightshift model show", "nightshift model show --json"))
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show the line ranker in use.

    Prints its file, what it was trained on and the reasons it knows.
    """
    from assistant.llm.ranker import file_of, load_ranker

    path = file_of(door_of(context).site)
    ranker = load_ranker(path)
    about = {"name": ranker.name, "file": str(path), "bytes": path.stat().st_size}
    about |= {name: ranker.weights.about.get(name, "") for name in ("lines", "seed", "digest")}
    if as_json:
        print_json({**about, "classes": list(ranker.weights.classes)})
    else:
        print_pairs([*about.items(), ("classes", ", ".join(ranker.weights.classes))])


def _target(door: Door) -> Path:
    from assistant.errors import UsageError
    from assistant.llm.ranker import FILE

    if door.site is None:
        raise UsageError("there is no folder for the site's content, so say where to write: --out FILE (or set `content`)")
    return door.site / "knowledge" / FILE


def _lessons(door: Door, *, from_store: bool, seed: int) -> list[Example]:
    from assistant.llm.lessons import lessons

    if not from_store:
        return lessons(door.site, seed=seed)
    confirmed = [(line, memory.reason) for memory in door.store.memories() for line in memory.lines[:1]]
    return lessons(door.site, door.store.rules(counting=True), confirmed, seed=seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep NumPy's products to one thread: they are small, and their sums then come in one order."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _show(target: Path, digest: str, lines: int, tried: Tried | None, *, as_json: bool) -> None:
    about = {"file": str(target), "bytes": target.stat().st_size, "lines": lines, "digest": digest}
    figures = (
        {
            "held_out_lines": tried.lines,
            "reason": round(tried.reason, 3),
            "among_three": round(tried.third, 3),
            "root": round(tried.root, 3),
        }
        if tried is not None
        else {}
    )
    if as_json:
        by_reason = {name: round(share, 3) for name, (_, share) in tried.by_reason.items()} if tried is not None else {}
        print_json({**about, **figures, "by_reason": by_reason})
        return
    print_pairs([(name.replace("_", " "), value) for name, value in {**about, **figures}.items()])
    if tried is not None:
        print_pairs([(f"  {name}", f"{share:.2f} of {count}") for name, (count, share) in tried.by_reason.items()])
