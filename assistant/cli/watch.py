"""Work incidents: now, in this shell (`recover`), or by the watch (`watch`, `status`, and `notify`, a trial message).

The watch is the daemon, or one pass from cron. `status` says whether a watch leads and sees everything, and what waits; its
output and exit code are a Nagios plugin's.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import (
    DryRun,
    Invocation,
    Json,
    Yes,
    app,
    examples,
    incident_ids,
    incident_subject,
    invocation_of,
    job_ids,
    one_of,
    row_number,
)
from assistant.cli.output import Exit, Nagios, age, local, now, print_json, print_line, print_pairs, print_record, user
from assistant.display import unambiguous
from assistant.errors import NightshiftError, Unavailable, UsageError
from assistant.records import CallStatus, IncidentState

if TYPE_CHECKING:
    from assistant.daemon.status import Status
    from assistant.engine import Engine
    from assistant.engine.dry_runs import Plan
    from assistant.records import Incident


recover_app = app(help="Bring a failed job back by its playbook.")

LOOK_S = 2.0
"""Seconds between two looks at a restarted job."""
AGAIN_S = 10.0
"""Seconds until a step that has to wait is tried again."""


def owner() -> str:
    """Return the name under which this process holds incidents."""
    from assistant.engine.ownership import owner_name

    return owner_name(f"cli:{user()}")


@recover_app.command(
    epilog=examples("nightshift recover 4821 --dry-run", "nightshift recover 4821", "nightshift recover --incident 3 --yes")
)
def recover(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=job_ids)] = "",
    incident: Annotated[
        int | None, typer.Option("--incident", parser=row_number, metavar="ID", help="Its incident.", autocompletion=incident_ids)
    ] = None,
    after_recovery: Annotated[
        bool, typer.Option("--again", help="Also when an earlier incident brought the job back already.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring a failed job back by its playbook.

    Opens an incident for the job where there is none, finds out why it failed, takes the steps of the playbook one by one and
    watches until training moves on. What the policy asks about is asked here; without a terminal and without --yes it waits in
    `nightshift approvals`, and the exit code is 4. It is 1 when a person must act, for instance fix the script.
    """
    invocation = invocation_of(context)
    if bool(job) == (incident is not None):
        raise UsageError("name one job, or its incident with --incident; to go on with all that is unfinished: nightshift resume")
    if dry_run:
        with invocation.rehearsal() as engine:
            subject = _incident_of(engine, job, incident, after_recovery=after_recovery)
            _print_plan(plan_of(engine, subject), as_json)
        return
    engine = invocation.engine(yes=yes, narrated=True)
    end = drive(engine, _incident_of(engine, job, incident, after_recovery=after_recovery), by=f"cli:{user()}")
    print_end(invocation, end, as_json)
    raise typer.Exit(exit_of(invocation, [end]))


def drive(engine: Engine, incident: Incident, *, by: str | None, once: bool = False) -> Incident:
    """Work an incident until it ends, waits for a person, or can go no further now.

    Args:
        engine: Does the work.
        incident: Which.
        by: The person at whose request it is worked; None when nobody asked.
        once: Return also where it only waits for a restarted job.
    """
    waits = {IncidentState.VERIFYING: LOOK_S, IncidentState.RECOVERING: AGAIN_S}
    while True:
        end = engine.work(incident.id, owner=owner(), by=by)
        if once or end.state not in waits or end.owner is not None:
            return end
        engine.clock.sleep(waits[end.state])


def exit_of(invocation: Invocation, ends: list[Incident]) -> Exit:
    """Return the exit code for incidents that were worked.

    What waits for a person counts most, then what was refused, what could not be brought back, and what could go no further now
    (another process holds it, or something did not answer).
    """
    states = {end.state for end in ends}
    if IncidentState.WAITING in states:
        return Exit.WAITS
    escalated = [end for end in ends if end.state is IncidentState.ESCALATED]
    if any(invocation.store.calls(end.id, status=CallStatus.DENIED) for end in escalated):
        return Exit.REFUSED
    if escalated:
        return Exit.ERROR
    return Exit.DONE if all(state.ended or state is IncidentState.VERIFYING for state in states) else Exit.TRY_AGAIN


def _incident_of(engine: Engine, job_id: str, number: int | None, *, after_recovery: bool) -> Incident:
    """Return the incident that was named, or that of the job, opened where there is none.

    Raises:
        UsageError: It has ended, or there is nothing to recover.
    """
    if number is not None:
        candidate = engine.store.incident(number)
        if candidate.state.ended:
            raise UsageError(f"incident {number} has ended: {candidate.state}. {candidate.note}".rstrip(". "))
        return candidate
    from assistant.engine.intake import requested_incident

    return requested_incident(engine, job_id, by=f"cli:{user()}", repeat=after_recovery)


def plan_of(engine: Engine, incident: Incident) -> Plan:
    """Return what would be done about an incident; give the engine of `Invocation.rehearsal`, so that nothing is kept."""
    from assistant.engine.dry_runs import plan

    return plan(engine, incident.id, by=f"cli:{user()}")


def _print_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        print_record(plan)
        return
    diagnosis = plan.diagnosis
    print_line(f"{diagnosis.reason} ({diagnosis.confidence:.0%}): {diagnosis.summary}")
    print_line(f"playbook: {plan.playbook or 'none'}")
    if plan.resumes:
        print_line(f"resumes: {unambiguous(plan.resumes)}")
    for number, step in enumerate(plan.steps, 1):
        print_line(f"{number}. {unambiguous(step.preview)}", colour="bold" if step.change else "")
        print_pairs(
            [
                ("     why", step.why),
                ("     found", step.found),
                ("     policy", f"{step.verdict} ({step.rule})" if step.rule else None),
                ("     undo", (step.undo or "cannot be taken back") if step.change else None),
            ]
        )
    print_line(plan.note)


def print_end(invocation: Invocation, end: Incident, as_json: bool) -> None:
    """Print how an incident stands after it was worked on, and what a person can do next."""
    if as_json:
        print_record(end)
        return
    print_line(f"incident {end.id}, {incident_subject(end)}: {end.state}" + (f". {end.note}" if end.note else ""))
    if end.state is IncidentState.WAITING:
        own_calls = {call.id for call in invocation.store.calls(end.id)}
        for approval in invocation.store.approvals():
            if approval.call in own_calls:
                preview = unambiguous(invocation.store.call(approval.call).preview)
                print_line(f"  waits for: nightshift approve {approval.id}    ({preview})")
    else:
        print_line(f"  nightshift incident report {end.id}")


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
    from assistant.process_memory import few_arenas
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
    from assistant.overall_state import longest_gap

    invocation = invocation_of(context)
    try:
        report = _status_of(invocation, url)
        limit = timedelta(minutes=max_age) if max_age is not None else longest_gap(invocation.settings.watch.poll_s)
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
    from assistant.daemon.delivery import services_of
    from assistant.daemon.notifications import Notice

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
