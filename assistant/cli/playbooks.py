"""`nightshift playbooks`: the procedures, and a try of their fixtures where nothing happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json, one_of
from assistant.cli.output import print_json, print_line, print_pairs, print_record, print_table

if TYPE_CHECKING:
    from assistant.cli.fixture_play import Played
    from assistant.content.playbooks import Fixture, Playbook, Step, Verify
    from assistant.recover.rehearsal import Rehearsal

playbooks_app = app(help="List, show and try playbooks.", no_args_is_help=True)


def _playbooks(context: typer.Context) -> Mapping[str, Playbook]:
    from assistant.content.playbooks import playbooks

    return playbooks(door_of(context).site)


def _names(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _playbooks(context) if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the playbook.", autocompletion=_names)]


@playbooks_app.command("list", epilog=examples("nightshift playbooks list", "nightshift playbooks list --json"))
def list_playbooks(context: typer.Context, as_json: Json = False) -> None:
    """List the playbooks: name, what they handle, how they end, title."""
    books = _playbooks(context).values()
    if as_json:
        for book in books:
            print_json(
                {"name": book.name, "title": book.title, "handles": list(book.handles), "ends": book.ends, "shipped": book.shipped}
            )
        return
    rows = [(book.name, ",".join(book.handles), book.ends, "shipped" if book.shipped else "site", book.title) for book in books]
    print_table(("name", "handles", "ends", "from", "title"), rows)


@playbooks_app.command("show", epilog=examples("nightshift playbooks show ecc_error", "nightshift playbooks show ecc_error --json"))
def show_playbook(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a playbook step by step, with why each is taken."""
    book = one_of(name, _playbooks(context), "playbook", "nightshift playbooks list")
    if as_json:
        print_record(book)
        return
    limits = f"{book.limits.attempts} restarts within {book.limits.within_h:g} h" if book.restarts else "restarts nothing"
    print_pairs(
        [
            ("name", book.name),
            ("title", book.title),
            ("handles", ", ".join(book.handles)),
            ("only for", ", ".join(book.actions)),
            ("limits", limits),
            ("ends", book.ends),
            ("file", book.path),
        ]
    )
    for number, entry in enumerate(book.entries, 1):
        print_line()
        print_line(f"{number}. {_heading(entry)}")
        for key, value in entry.with_.items():
            print_line(f"     {key} = {value}")
        if entry.why:
            print_line(f"     why: {entry.why}")


@playbooks_app.command(
    "try",
    epilog=examples(
        "nightshift playbooks try faulty_node",
        "nightshift playbooks try site/playbooks/mine.toml",
        "nightshift playbooks try hang --json",
    ),
)
def try_one(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A playbook by name, or its file.", autocompletion=_names)],
    fixture: Annotated[str, typer.Option("--fixture", metavar="NAME", help="Only this fixture.")] = "",
    as_json: Json = False,
) -> None:
    """Check a playbook and rehearse it on its fixtures.

    Fixtures with `calls` are rehearsed step by step; those with `cluster` are played by the whole engine on a simulated cluster in
    memory. Nothing happens outside, and nothing but the file is needed. Exit code 1 when a fixture goes another way than it says,
    or the playbook names a tool or argument that does not exist.
    """
    from assistant.content.reasons import reasons
    from assistant.recover.rehearsal import check_playbook, try_playbook
    from assistant.tooling import found

    book = _playbook(context, name)
    problems = check_playbook(book, found(), list(reasons(door_of(context).site)))
    fixtures = {entry.name: entry for entry in book.fixture}
    selected = [one_of(fixture, fixtures, "fixture", f"nightshift playbooks show {book.name}")] if fixture else list(book.fixture)
    for problem in problems:
        _print_problem(problem, as_json)
    failed = bool(problems)
    for rehearsal in (try_playbook(book, entry) for entry in selected if entry.calls is not None):
        failed |= bool(rehearsal.problems)
        _print_rehearsal(rehearsal, as_json)
    # a playbook that names what does not exist cannot be played
    for played in _played(context, book, selected) if not problems else ():
        failed |= bool(played.problems)
        _print_played(played, as_json)
    if failed:
        raise typer.Exit(Exit.ERROR)


def _playbook(context: typer.Context, name: str) -> Playbook:
    from assistant.content.playbooks import read_playbook

    if name.endswith(".toml"):
        return read_playbook(Path(name))
    return one_of(name, _playbooks(context), "playbook", "nightshift playbooks list")


def _played(context: typer.Context, book: Playbook, fixtures: Sequence[Fixture]) -> Iterator[Played]:
    on_cluster = [entry for entry in fixtures if entry.cluster is not None]
    if not on_cluster:
        return
    from assistant.cli.fixture_play import play_fixture
    from assistant.diagnose.knowledge import Knowledge

    site = door_of(context).site
    knowledge = Knowledge.load(site)
    for entry in on_cluster:
        yield play_fixture(book, entry, site=site, knowledge=knowledge)


def _print_problem(problem: str, as_json: bool) -> None:
    if as_json:
        print_json({"problem": problem})
    else:
        print_line(problem, colour="red")


def _print_rehearsal(rehearsal: Rehearsal, as_json: bool) -> None:
    if as_json:
        calls = [{"step": call.step, "tool": call.tool, "arguments": call.arguments, "why": call.why} for call in rehearsal.calls]
        about = {"fixture": rehearsal.fixture, "calls": calls, "ends": rehearsal.ended.state, "note": rehearsal.ended.note}
        print_json({**about, "passed": not rehearsal.problems, "problems": list(rehearsal.problems)})
        return
    print_line(
        f"{'FAILED' if rehearsal.problems else 'passed'}  {rehearsal.fixture}", colour="red" if rehearsal.problems else "green"
    )
    for number, call in enumerate(rehearsal.calls, 1):
        arguments = ", ".join(f"{name}={value}" for name, value in call.arguments.items())
        print_line(f"    {number}. {call.tool}({arguments})")
    print_line(f"    ends {rehearsal.ended.state}: {rehearsal.ended.note}")
    for problem in rehearsal.problems:
        print_line(f"    {problem}", colour="red")


def _print_played(played: Played, as_json: bool) -> None:
    if as_json:
        incidents = [
            {"job": incident.job, "state": incident.state, "playbook": incident.playbook, "note": incident.note}
            for incident in played.incidents
        ]
        about = {"fixture": played.fixture, "changes": list(played.changes), "incidents": incidents}
        print_json({**about, "passed": not played.problems, "problems": list(played.problems)})
        return
    print_line(f"{'FAILED' if played.problems else 'passed'}  {played.fixture}", colour="red" if played.problems else "green")
    for number, change in enumerate(played.changes, 1):
        print_line(f"    {number}. {change}")
    for incident in played.incidents:
        print_line(f"    job {incident.job} {incident.state}: {incident.note}")
    for problem in played.problems:
        print_line(f"    {problem}", colour="red")


def _heading(entry: Step | Verify) -> str:
    """Return one entry in words: what is called, under which condition, what is expected."""
    from assistant.content.playbooks import Step

    name = f"{entry.use} (as {entry.name})" if entry.name != entry.use else entry.use
    when = f", when {entry.when}" if entry.when else ""
    if not isinstance(entry, Step):
        return f"{name}, until it says {entry.expect} within {entry.within_min:g} min{when}"
    repetition = f", for each of {entry.each}" if entry.each else ""
    unless = f", unless {' or '.join(entry.unless)}" if entry.unless else ""
    waits = f", until it says {entry.expect} within {entry.within_min:g} min" if entry.expect else ""
    return f"{name}{waits}{repetition}{when}{unless}" + (f", then ends as {entry.then}" if entry.then else "")
