"""`nightshift undo`: take back a change that Nightshift made."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.cli.calls import settle
from assistant.cli.context import door_of, user
from assistant.cli.group import app, examples
from assistant.cli.options import Json, Yes

undo_app = app(help="Take back a change that Nightshift made.")


@undo_app.command(epilog=examples("nightshift undo 12", 'nightshift undo 12 --why "node02 passed its tests" --yes'))
def undo(
    context: typer.Context,
    call: Annotated[int, typer.Argument(metavar="CALL", help="Number of the call, as `nightshift incident show` prints it.")],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take back a change that Nightshift made.

    The way back goes through the policy like any change: a cordon is lifted, a job that was resubmitted is cancelled.
    """
    engine = door_of(context).engine(yes=yes)
    by = f"cli:{user()}"
    approved_by = by if yes else None
    raise typer.Exit(settle(lambda: engine.gate.undo(call, by, why=why, approved_by=approved_by), engine, as_json=as_json))
