"""`nightshift breaker`: see why all changes are stopped, let them go on again, or stop them by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import print_json, print_line, print_pairs
from assistant.cli.times import local

breaker_app = app(help="Show, reset or open the breaker that stops all changes.", no_args_is_help=True)

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit and told to others.")]


@breaker_app.command("show", epilog=examples("nightshift breaker show", "nightshift breaker show --json"))
def show_breaker(context: typer.Context, as_json: Json = False) -> None:
    """Show whether the breaker is open, since when and why.

    Also what the last hour brought that counts for it.
    """
    from assistant.store.breaker import count_lately, last_period

    door = door_of(context)
    period, terms = last_period(door.store), door.in_force.policy.breaker
    lately = count_lately(door.store, period.until if period is not None else None)
    is_open = period is not None and period.until is None
    counted = {name: (getattr(lately, name), getattr(terms, name)) for name in lately.__dataclass_fields__}
    if as_json:
        from assistant.tooling import to_json

        print_json({"open": is_open, "last": to_json(period), "last_hour": to_json(lately), "opens_at": to_json(terms)})
        return
    answer = "no, it never was"
    if period is not None and period.until is not None:
        answer = f"no; last from {local(period.since)} to {local(period.until)}: {period.why}"
    elif period is not None:
        answer = f"yes, since {local(period.since)}, by {period.by}: {period.why}"
    rows = [(name.replace("_", " "), f"{count} of {most or 'any number'}") for name, (count, most) in counted.items()]
    print_pairs([("open", answer), *rows, ("to go on", "nightshift breaker reset" if is_open else "")])


@breaker_app.command("reset", epilog=examples("nightshift breaker reset", 'nightshift breaker reset --why "power is back"'))
def reset(context: typer.Context, why: Why = "", as_json: Json = False) -> None:
    """Let changes be made again, for what happens from now on.

    What piled up meanwhile is dropped: each case is looked at once more in the cluster as it is now. It is closed where nothing is
    left to be done, else handed to a person, and brought back with `nightshift recover JOB`.
    """
    from assistant.store.breaker import reset_breaker

    was_open = reset_breaker(door_of(context).store, why=why or "reset by hand", by=f"cli:{user()}")
    if as_json:
        print_json({"open": False, "reset": was_open})
    else:
        print_line("the breaker is closed: changes are made again" if was_open else "the breaker is not open")


@breaker_app.command("open", epilog=examples('nightshift breaker open --why "the storage is being moved"'))
def open_by_hand(context: typer.Context, why: Why = "", as_json: Json = False) -> None:
    """Stop all changes but those that a person makes, until it is reset.

    Incidents are still noticed and diagnosed.
    """
    from assistant.store.breaker import open_breaker

    was_closed = open_breaker(door_of(context).store, why=why or "opened by hand", by=f"cli:{user()}")
    if as_json:
        print_json({"open": True, "opened": was_closed})
    else:
        print_line("the breaker is open: nothing is changed until it is reset" if was_closed else "the breaker is open already")
