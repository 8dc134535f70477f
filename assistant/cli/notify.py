"""`nightshift notify`: a trial message, so that nobody finds out at night that an address is wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json, one_of
from assistant.cli.output import print_json, print_line
from assistant.errors import Unavailable, UsageError

notify_app = app(help="Send a trial message to those who are told.")


@notify_app.command(epilog=examples("nightshift notify", "nightshift notify oncall", "nightshift notify owners --owner ada"))
def notify(
    context: typer.Context,
    sink: Annotated[str | None, typer.Argument(metavar="[SINK]", help="Only this one of [notify.sinks].")] = None,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Owner for the {owner} in an address.")] = "",
    as_json: Json = False,
) -> None:
    """Send a trial message to those who are told.

    Without SINK to all of [notify.sinks] in the settings. Exit code 1 when one was not taken.
    """
    from assistant.config.outward import About, Severity
    from assistant.daemon.notifications import Notice
    from assistant.daemon.pass_reports import services_of

    services = services_of(door_of(context).settings)
    if not services:
        raise UsageError("nobody is told of anything: the settings have no [notify.sinks.NAME] with a url_file")
    sinks = services if sink is None else {sink: one_of(sink, services, "sink", "nightshift config show")}
    text = f"If you read this, messages arrive.\nsent by {user()} with `nightshift notify`"
    trial = Notice(0, About.LEADER, Severity.INFO, "a trial message", text, "trial", owner=owner or user())
    failed = False
    for name, service in sinks.items():
        try:
            service.send(trial)
            error = ""
        except Unavailable as found:
            failed, error = True, str(found)
        if as_json:
            print_json({"sink": name, "taken": not error, "error": error})
        else:
            print_line(f"{name}: {error or 'taken'}", colour="red" if error else "green")
    if failed:
        raise typer.Exit(Exit.ERROR)
