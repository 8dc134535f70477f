"""`nightshift playbooks`: the procedures, and a try of their fixtures where nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json, one_of
from assistant.doors.cli.output import print_json, print_line, print_pairs, print_record, print_table

if TYPE_CHECKING:
    from assistant.content.playbooks import Playbook, Step, Verify

playbooks_app = app(help="List, show and try playbooks.", no_args_is_help=True)


def _known(context: typer.Context) -> Mapping[str, Playbook]:
    from assistant.content.playbooks import playbooks

    return playbooks(door_of(context).site)


def _names(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _known(context) if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the playbook.", autocompletion=_names)]


@playbooks_app.command("list", epilog=examples("nightshift playbooks list", "nightshift playbooks list --json"))
def list_playbooks(context: typer.Context, as_json: Json = False) -> None:
    """List the playbooks: name, what they handle, how they end, title."""
    known = _known(context).values()
    if as_json:
        for book in known:
            print_json(
                {"name": book.name, "title": book.title, "handles": list(book.handles), "ends": book.ends, "shipped": book.shipped}
            )
        return
    rows = [(book.name, ",".join(book.handles), book.ends, "shipped" if book.shipped else "site", book.title) for book in known]
    print_table(("name", "handles", "ends", "from", "title"), rows)


@playbooks_app.command("show", epilog=examples("nightshift playbooks show ecc_error", "nightshift playbooks show ecc_error --json"))
def show_playbook(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a playbook step by step, with why each is taken."""
    book = one_of(name, _known(context), "playbook", "nightshift playbooks list")
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


def _heading(entry: Step | Verify) -> str:
    """Return one entry in words: what is called, under which condition, what is expected."""
    from assistant.content.playbooks import Step

    name = f"{entry.use} (as {entry.name})" if entry.name != entry.use else entry.use
    when = f", when {entry.when}" if entry.when else ""
    if not isinstance(entry, Step):
        return f"{name}, until it says {entry.expect} within {entry.within_min:g} min{when}"
    each = f", for each of {entry.each}" if entry.each else ""
    unless = f", unless {entry.unless}" if entry.unless else ""
    return f"{name}{each}{when}{unless}" + (f", then ends as {entry.then}" if entry.then else "")
