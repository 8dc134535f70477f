"""`nightshift status`: whether a watch leads and sees everything, and what waits; output and exit code as a Nagios plugin's."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Door, door_of
from assistant.cli.exits import Nagios
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import print_line, print_pairs, print_record
from assistant.cli.times import age, local, now
from assistant.errors import NightshiftError, Unavailable

if TYPE_CHECKING:
    from assistant.daemon.status import Status

NAME = "NIGHTSHIFT STATUS"
MOST_NAMED = 5
"""Incidents that are named one by one."""
status_app = app(help="Show whether a watch is alive and what waits.")

_COLOURS = {Nagios.OK: "green", Nagios.WARNING: "yellow", Nagios.CRITICAL: "red"}


@status_app.command(
    epilog=examples(
        "nightshift status",
        "nightshift status --url http://login1:9469/metrics    # from another host",
        "nightshift status --max-age 10 --json",
    )
)
def status(
    context: typer.Context,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Ask the /metrics of a watch on another host.")] = None,
    max_age: Annotated[
        float | None,
        typer.Option("--max-age", min=0.1, metavar="MIN", help="Critical when no pass saw everything for so long."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show whether a watch is alive and what waits.

    Also: who leads and who stands by, what the last pass could not see, what it remarked, which nodes are out. It only reads.

    Exit code as a Nagios plugin's: 0 all is well, 1 warning (degraded, kill switch, breaker, policy edited since the last pass, an
    approval waits), 2 critical (no policy in force; an escalated incident that nobody has acknowledged by `nightshift incident
    ack`; no pass saw everything within --max-age; default: three polls and a minute), 3 unknown (the store or the URL did not
    answer).
    """
    from assistant.daemon.status import figures_of, judged

    door = door_of(context)
    try:
        report = _asked(door, url)
        limit = timedelta(minutes=max_age) if max_age is not None else timedelta(seconds=door.settings.watch.poll_s * 3 + 60)
    except NightshiftError as error:
        _unknown(str(error), as_json)
        raise typer.Exit(Nagios.UNKNOWN) from error
    at = now()
    level, text = judged(report, at, limit)
    code = Nagios[level.name]
    if as_json:
        print_record(report, level=str(level), text=text)
        raise typer.Exit(code)
    # a bar begins the figures, and a plugin's first line is all that some monitors show
    plain = " ".join(text.split()).replace("|", "/")
    print_line(f"{NAME} {code.name} - {plain} | {figures_of(report, at, limit)}", colour=_COLOURS[code])
    _print(report)
    raise typer.Exit(code)


def _asked(door: Door, url: str | None) -> Status:
    from assistant.daemon.status import of_store, of_url

    if url is not None:
        return of_url(url)
    if not door.settings.store.exists():
        raise Unavailable(f"{door.settings.store}: there is no store, so no watch ever ran here; another one's: --url")
    from assistant.gate.kill_switch import stopped_by

    standing = door.in_force.look()
    return of_store(door.store, standing, stopped_by(standing.policy.kill_switch), now())


def _print(found: Status) -> None:
    from assistant.nodeset import fold

    at = now()
    states = ", ".join(f"{many} {state}" for state, many in (found.open_incidents or {}).items())
    waiting = ", ".join(f"nightshift approve {number}" for number in found.approvals) or found.approvals_waiting or ""
    needs = ", ".join(f"nightshift incident show {number}" for number in found.unacknowledged[:MOST_NAMED])
    if found.unacknowledged_count > MOST_NAMED or not needs:
        needs = f"{needs} … {found.unacknowledged_count} in all" if needs else str(found.unacknowledged_count or "")
    print_pairs(
        [
            ("leads", f"{found.leader}, since {local(found.leads_since)}" if found.leads_since else found.leader or "nobody"),
            ("stands by", ", ".join(found.stand_by)),
            ("last pass", f"{local(found.last_pass)}, {age(found.last_pass, at)}" if found.last_pass else "none"),
            (
                "saw everything",
                f"{local(found.last_whole_pass)}, {age(found.last_whole_pass, at)}" if found.last_whole_pass else "",
            ),
            ("degraded", list(found.trouble) or (f"{found.troubles} things" if found.troubles else "")),
            ("set aside", list(found.aside)),
            ("open", states or "none"),
            ("in work", found.in_flight or ""),
            ("needs a person", needs),
            ("waits for you", waiting),
            ("nodes out", fold(found.nodes_out) if found.nodes_out else found.nodes_cordoned or ""),
            ("kill switch", found.kill_switch),
            ("breaker", f"open {found.breaker}" if found.breaker else ""),
            ("policy", _policy(found)),
            ("remarks", [f"{local(remark.at)}  {remark.text}" for remark in found.remarks]),
            ("read from", found.source),
        ]
    )


def _policy(found: Status) -> str:
    from assistant.policy import short_digest

    if found.policy_problem:
        return f"none in force: {found.policy_problem}"
    holds = (
        f"mode {found.mode}, digest {short_digest(found.policy)}" if found.policy else f"mode {found.mode}" if found.mode else ""
    )
    if found.policy_now and found.policy_now != found.policy:
        holds += f" in the last pass; the files say mode {found.mode_now}, digest {short_digest(found.policy_now)} now"
    return holds


def _unknown(text: str, as_json: bool) -> None:
    from assistant.cli.output import print_json

    if as_json:
        print_json({"level": "unknown", "text": text})
    else:
        print_line(f"{NAME} UNKNOWN - {text}")
