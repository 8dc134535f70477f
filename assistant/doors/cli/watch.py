"""`nightshift watch --once`: one pass from cron: look, open an incident for what is new, work on everything unfinished."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json
from assistant.doors.cli.recover import exit_of, owner, print_end
from assistant.errors import UsageError

watch_app = app(help="Look once for failed, hanging and diverging jobs.")


@watch_app.command(
    epilog=examples("nightshift watch --once", "*/2 * * * *  /opt/nightshift/bin/nightshift --quiet watch --once    # in a crontab")
)
def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and leave.")] = False,
    as_json: Json = False,
) -> None:
    """Look once for failed, hanging and diverging jobs.

    Opens an incident for each that is new and works on everything unfinished as far as the policy's mode allows. Prints only
    where there was something to do. Exit code 1 when the scheduler did not answer: a blind pass is no quiet pass.
    """
    if not once:
        raise UsageError("only single passes are made here: nightshift watch --once, from cron or a timer")
    door = door_of(context)
    ends = door.engine().tick(owner=owner())
    for end in ends:
        print_end(door, end, as_json)
    raise typer.Exit(exit_of(door, ends))
