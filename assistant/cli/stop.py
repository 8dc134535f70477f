"""`nightshift stop`: set or lift the kill switch, the file that stops every change while it exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import narrate, print_json, print_line

if TYPE_CHECKING:
    from pathlib import Path

    from assistant.cli.context import Door

stop_app = app(help="Stop every change, or let changes be made again.")


@stop_app.command(
    epilog=examples("nightshift stop", 'nightshift stop --why "the storage is being moved"', "nightshift stop --lift")
)
def stop(
    context: typer.Context,
    lift: Annotated[bool, typer.Option("--lift", help="Remove the kill switches, so that changes are made again.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the file and in the audit.")] = "",
    as_json: Json = False,
) -> None:
    """Stop every change, or let changes be made again.

    Sets the first kill switch of the policy that this account may write: nobody changes anything while the file exists, no watch
    and no person. A command that was given already is not taken back. What a person allowed waits, and goes on afterwards.

    Exit code 0: it is set, or with --lift none is set any more. 1: no file could be written, the leading watch does not look for
    the one that was, or with --lift one is set still. 2: the policy names no kill switch.
    """
    from assistant.gate.stops import lift_kill_switch, set_kill_switch

    door, by = door_of(context), f"cli:{user()}"
    policy = door.in_force.policy
    if lift:
        result = lift_kill_switch(door.store, policy, by=by, why=why)
        if as_json:
            print_json(
                {
                    "stopped": bool(result.still_set),
                    "lifted": list(map(str, result.lifted)),
                    "still_set": {str(path): reason for path, reason in result.still_set},
                }
            )
        else:
            print_line(f"lifted: {', '.join(map(str, result.lifted))}" if result.lifted else "no kill switch was lifted")
        for path, reason in result.still_set:
            narrate(f"nightshift: error: {path} is set still and nothing is changed: {reason}")
        raise typer.Exit(Exit.ERROR if result.still_set else Exit.DONE)
    watched = _watched(door)
    path = set_kill_switch(door.store, policy, by=by, why=why, watched=watched)
    is_unseen = bool(watched) and path not in watched
    if as_json:
        print_json({"stopped": True, "file": str(path), "seen_by_watch": not is_unseen})
    else:
        print_line(f"stopped: {path} is set, nothing is changed until `nightshift stop --lift`")
    if is_unseen:
        looks = ", ".join(map(str, watched))
        narrate(
            f"nightshift: error: the leading watch runs as another account and looks for {looks}: stop it as that account or root"
        )
        raise typer.Exit(Exit.ERROR)


def _watched(door: Door) -> list[Path]:
    """Return the kill switches that the leading watch looks for, none where no watch leads."""
    from pathlib import Path

    leader = door.store.leader()
    rows = [row for row in door.store.watches() if leader is not None and row.owner == leader.owner]
    return [Path(name) for name in rows[0].kill_switch] if rows else []
