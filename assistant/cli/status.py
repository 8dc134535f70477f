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
        report = _status_of(door, url)
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


def _status_of(door: Door, url: str | None) -> Status:
    from assistant.daemon.status import of_store, of_url

    if url is not None:
        return of_url(url)
    if not door.settings.store.exists():
        raise Unavailable(f"{door.settings.store}: there is no store, so no watch ever ran here; another one's: --url")
    from assistant.gate.stops import stopped_by

    standing = door.in_force.look()
    return of_store(door.store, standing, stopped_by(standing.policy.kill_switch), now())


def _print(report: Status) -> None:
    from assistant.nodeset import fold

    at = now()
    states = ", ".join(f"{many} {state}" for state, many in (report.open_incidents or {}).items())
    waiting = ", ".join(f"nightshift approve {number}" for number in report.approvals) or report.approvals_waiting or ""
    needs = ", ".join(f"nightshift incident show {number}" for number in report.unacknowledged[:MOST_NAMED])
    if report.unacknowledged_count > MOST_NAMED or not needs:
        needs = f"{needs} … {report.unacknowledged_count} in all" if needs else str(report.unacknowledged_count or "")
    print_pairs(
        [
            ("leads", f"{report.leader}, since {local(report.leads_since)}" if report.leads_since else report.leader or "nobody"),
            ("stands by", ", ".join(report.stand_by)),
            ("last pass", f"{local(report.last_pass)}, {age(report.last_pass, at)}" if report.last_pass else "none"),
            (
                "saw everything",
                f"{local(report.last_whole_pass)}, {age(report.last_whole_pass, at)}" if report.last_whole_pass else "",
            ),
            ("degraded", list(report.trouble) or (f"{report.troubles} things" if report.troubles else "")),
            ("set aside", list(report.aside)),
            ("open", states or "none"),
            ("in work", report.in_flight or ""),
            ("needs a person", needs),
            ("waits for you", waiting),
            ("nodes out", fold(report.nodes_out) if report.nodes_out else report.nodes_cordoned or ""),
            ("kill switch", report.kill_switch),
            ("breaker", f"open {report.breaker}" if report.breaker else ""),
            ("policy", _policy(report)),
            ("remarks", [f"{local(remark.at)}  {remark.text}" for remark in report.remarks]),
            ("read from", report.source),
        ]
    )


def _policy(report: Status) -> str:
    from assistant.policy import short_digest

    if report.policy_problem:
        return f"none in force: {report.policy_problem}"
    holds = (
        f"mode {report.mode}, digest {short_digest(report.policy)}"
        if report.policy
        else f"mode {report.mode}"
        if report.mode
        else ""
    )
    if report.policy_now and report.policy_now != report.policy:
        holds += f" in the last pass; the files say mode {report.mode_now}, digest {short_digest(report.policy_now)} now"
    return holds


def _unknown(text: str, as_json: bool) -> None:
    from assistant.cli.output import print_json

    if as_json:
        print_json({"level": "unknown", "text": text})
    else:
        print_line(f"{NAME} UNKNOWN - {text}")
