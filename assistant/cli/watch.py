"""The watch for people: `nightshift watch` (the daemon, or one pass from cron), `status`, and `notify`, a trial message.

`status` says whether a watch leads and sees everything, and what waits; its output and exit code are a Nagios plugin's.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation, invocation_of, user
from assistant.cli.group import Json, app, examples, one_of
from assistant.cli.output import Exit, Nagios, age, local, now, print_json, print_line, print_pairs, print_record
from assistant.cli.recover import exit_of, owner, print_end
from assistant.errors import NightshiftError, Unavailable, UsageError

if TYPE_CHECKING:
    from assistant.daemon.status import Status


watch_app = app(help="Watch the cluster for failed, hanging and diverging jobs.")


@watch_app.command(
    epilog=examples(
        "nightshift watch",
        "nightshift watch --once",
        "*/2 * * * *  /opt/nightshift/bin/nightshift --quiet watch --once    # in a crontab",
    )
)
def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and leave, as from cron.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster for failed, hanging and diverging jobs.

    Opens an incident for each that is new and works on everything unfinished as far as the policy's mode allows, pass after pass
    until SIGTERM, which lets the calls that are being made finish; SIGHUP reads the settings again. Of several watches on one store
    one leads and the others stand by. `nightshift status` tells how it fares; docs/watchdog.md how it is run by systemd.

    With --once it makes one pass and prints only where there was something to do. Exit code 1 when the scheduler did not answer: a
    blind pass is no quiet pass.
    """
    invocation = invocation_of(context)
    if not once:
        if as_json:
            raise UsageError("--json goes with --once: a daemon prints no records, it keeps them: nightshift incidents --json")
        _serve(invocation)
        return
    from assistant.daemon.loop import pass_once

    engine = invocation.engine()
    engine.watcher.ask_beside(False)
    ends = pass_once(lambda: engine.tick(owner=owner()), invocation.settings, engine.store, engine)
    for end in ends:
        print_end(invocation, end, as_json)
    raise typer.Exit(exit_of(invocation, list(ends)))


def _serve(invocation: Invocation) -> None:
    from assistant.daemon.journal import listen
    from assistant.daemon.loop import serve
    from assistant.daemon.malloc import few_arenas
    from assistant.wiring import build

    few_arenas()
    settings = invocation.settings
    listen(settings.log, invocation.verbose, quiet=invocation.quiet)
    engine = build(settings)
    invocation.at_end.append(engine.store.close)
    options = [
        *(("--config", str(invocation.config.absolute())) if invocation.config is not None else ()),
        *(("--store", str(invocation.store_path.absolute())) if invocation.store_path is not None else ()),
        *(("--quiet",) if invocation.quiet else ()),
        *(("--verbose",) * invocation.verbose),
    ]
    serve(settings, engine, options=options, program=[sys.executable, "-m", "assistant"])


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

    invocation = invocation_of(context)
    try:
        report = _status_of(invocation, url)
        limit = timedelta(minutes=max_age) if max_age is not None else timedelta(seconds=invocation.settings.watch.poll_s * 3 + 60)
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


def _status_of(invocation: Invocation, url: str | None) -> Status:
    from assistant.daemon.status import of_store, of_url

    if url is not None:
        return of_url(url)
    if not invocation.settings.store.exists():
        raise Unavailable(f"{invocation.settings.store}: there is no store, so no watch ever ran here; another one's: --url")
    from assistant.gate.stops import stopped_by

    standing = invocation.in_force.look()
    return of_store(invocation.store, standing, stopped_by(standing.policy.kill_switch), now())


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
    from assistant.config.settings import About, Severity
    from assistant.daemon.notifications import Notice
    from assistant.daemon.pass_reports import services_of

    services = services_of(invocation_of(context).settings)
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
