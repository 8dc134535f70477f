"""`nightshift incidents` and `nightshift incident`: what happened, how it stands, what was done, and a person's word on it.

`incident confirm`, `correct` and `forget` say what an incident was; what is learned from it is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Json, Limit, app, examples, incident_ids, incident_subject, invocation_of, row_number
from assistant.cli.output import (
    age,
    local,
    now,
    print_block,
    print_line,
    print_pairs,
    print_record,
    print_table,
    since,
    user,
)

if TYPE_CHECKING:
    from assistant.diagnose.learning.learn import Taught
    from assistant.engine.learning import Confirmation
    from assistant.records import Call, Incident
    from assistant.store import Store


incidents_app = app(help="List incidents, newest first.")
incident_app = app(help="Show, report, correct or close one incident.", no_args_is_help=True)


Id = Annotated[int, typer.Argument(parser=row_number, metavar="ID", help="Id of the incident.", autocompletion=incident_ids)]


@incidents_app.command(
    epilog=examples(
        "nightshift incidents --open", "nightshift incidents --job 4821 --json", "nightshift incidents --since 2h | wc -l"
    )
)
def incidents(
    context: typer.Context,
    only_open: Annotated[bool, typer.Option("--open", help="Only those that somebody still has to work on.")] = False,
    job: Annotated[str, typer.Option("--job", "-j", metavar="JOB", help="Only those of this job, any attempt.")] = "",
    begin: Annotated[str, typer.Option("--since", metavar="SPAN|DATE", help="Only those opened since: 2h, 3d, 2026-03-01.")] = "",
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List incidents, newest first.

    Says of each what it is about, how it stands, why, and since when.
    """
    at = now()
    earliest = since(begin, at) if begin else None
    store = invocation_of(context).store
    matching = store.incidents(job=job or None, open_only=only_open, limit=limit)
    listed = [(incident, _reason(store, incident)) for incident in matching if earliest is None or incident.opened >= earliest]
    if as_json:
        for incident, reason in listed:
            print_record(incident, reason=reason or None)
        return
    rows = [
        (
            incident.id,
            incident.state,
            incident.job,
            incident.node or "",
            incident.kind,
            reason,
            local(incident.opened),
            age(incident.opened, at),
            incident.note,
        )
        for incident, reason in listed
    ]
    print_table(("id", "state", "job", "node", "kind", "reason", "opened", "age", "note"), rows, colour_of=1)


def _reason(store: Store, incident: Incident) -> str:
    diagnosis = store.diagnosis(incident.id)
    return diagnosis.reason if diagnosis is not None else ""


@incident_app.command(
    "show", epilog=examples("nightshift incident show 3", "nightshift incident show 3 --json | jq .diagnosis.reason")
)
def show_incident(context: typer.Context, incident: Id, as_json: Json = False) -> None:
    """Show one incident with its diagnosis, timeline and calls."""
    from dataclasses import replace

    from assistant.engine.report import timeline
    from assistant.recover.joblog import LogPlaces, log_paths
    from assistant.recover.situation import advice_left, facts_of_page
    from assistant.watch.outages import shared_by

    store = invocation_of(context).store
    row = store.incident(incident)
    diagnosis = store.diagnosis(incident)
    calls, stages = store.calls(incident), store.stages(incident)
    if as_json:
        acknowledgement = store.acknowledgement(incident)
        outcomes = [store.outcome(call.id) for call in calls]
        print_record(
            row,
            diagnosis=diagnosis,
            stages=stages,
            calls=calls,
            outcomes=[outcome for outcome in outcomes if outcome],
            acknowledged=acknowledgement._asdict() if acknowledgement is not None else None,
        )
        return
    at = now()
    print_pairs(
        [
            ("incident", row.id),
            ("about", incident_subject(row)),
            ("state", row.state),
            ("note", row.note),
            ("seen as", row.kind),
            ("failed", f"{local(row.failed_at)} ({age(row.failed_at, at)})" if row.failed_at else None),
            ("opened", f"{local(row.opened)} ({age(row.opened, at)})"),
            ("closed", f"{local(row.closed)} ({age(row.closed, at)})" if row.closed else None),
            ("worked by", f"{row.owner}, until {local(row.lease_until)}" if row.owner else None),
            ("playbook", row.playbook),
            ("acknowledged", _acknowledged(store, row)),
            ("belongs to", f"incident {shared}" if (shared := shared_by(store.events(incident))) else None),
            ("follows", f"incident {row.parent}" if row.parent else None),
        ]
    )
    if diagnosis is not None:
        from assistant.cli.diagnose import show

        facts = facts_of_page(store, incident)
        open_diagnosis = replace(diagnosis, advice=advice_left(diagnosis.advice, facts, row, store))
        print_line()
        show("diagnosis", LogPlaces(log_paths(store.evidence(incident))).diagnosis(open_diagnosis))
        for text in filter(None, [*facts.undrained, facts.saved]):
            print_line(text)
    print_line()
    print_line("timeline", colour="bold")
    for moment in timeline(store, incident):
        print_line(f"  {local(moment.at)}  {moment.stage}  {moment.text}".rstrip())
    if calls:
        print_line()
        print_table(("call", "status", "step", "change"), [_call_row(store, call) for call in calls], colour_of=1)


def _acknowledged(store: Store, incident: Incident) -> str | None:
    acknowledgement = store.acknowledgement(incident.id)
    if acknowledgement is None:
        return f"by nobody: nightshift incident ack {incident.id}" if incident.id in store.unacknowledged() else None
    return f"by {acknowledgement.by}, {local(acknowledgement.at)}" + (f": {acknowledgement.note}" if acknowledgement.note else "")


def _call_row(store: Store, call: Call) -> tuple[object, ...]:
    outcome = store.outcome(call.id)
    error = f": {outcome.error}" if outcome is not None and outcome.error else ""
    return (call.id, call.status, call.step, f"{call.preview or call.tool}{error}")


@incident_app.command("report", epilog=examples("nightshift incident report 3", "nightshift incident report 3 > incident-3.md"))
def report_incident(context: typer.Context, incident: Id) -> None:
    """Print the report of one incident as Markdown."""
    from assistant.engine.report import report

    store = invocation_of(context).store
    store.incident(incident)
    print_block(report(store, incident).rstrip("\n"))


@incident_app.command(
    "ack",
    epilog=examples(
        'nightshift incident ack 3 --note "called the storage team"',
        "nightshift incident ack 3 4 5",
        "nightshift incident ack --all",
    ),
)
def acknowledge_incidents(
    context: typer.Context,
    numbers: Annotated[
        list[int] | None, typer.Argument(parser=row_number, metavar="ID...", help="Ids of incidents.", autocompletion=incident_ids)
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What you know or do about it; for the record.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every escalated incident that nobody has acknowledged.")] = False,
    as_json: Json = False,
) -> None:
    """Acknowledge escalated incidents: say that you know of them.

    Nothing else changes: `nightshift status` no longer counts them, and who said so and when is on the record. An incident that was
    not handed to a person is refused.
    """
    from assistant.errors import UsageError

    if everything == bool(numbers):
        raise UsageError("say which incidents: their ids, or --all for every one that nobody has acknowledged")
    store = invocation_of(context).store
    chosen_numbers = store.unacknowledged() if everything else list(dict.fromkeys(numbers or ()))
    with store.transaction():
        for number in chosen_numbers:
            store.acknowledge(number, by=f"cli:{user()}", note=note)
    for number in chosen_numbers:
        acknowledgement = store.acknowledgement(number)
        if as_json and acknowledgement is not None:
            print_record(store.incident(number), acknowledged=acknowledgement._asdict())
        elif acknowledgement is not None:
            print_line(
                f"incident {number} is acknowledged by {acknowledgement.by}"
                + (f": {acknowledgement.note}" if acknowledgement.note else "")
            )
    if not chosen_numbers and not as_json:
        print_line("nothing waits to be acknowledged")


@incident_app.command("close", epilog=examples('nightshift incident close 3 --why "the owner resubmitted by hand"'))
def close_incident(
    context: typer.Context,
    incident: Id,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why nothing more has to be done.")] = "closed by hand",
    as_json: Json = False,
) -> None:
    """Close one incident, so that nobody works on it any more.

    What waits for an approval is refused; what was done stays done.
    """
    from assistant.errors import StoreBusy
    from assistant.records import IncidentState, Verdict

    store = invocation_of(context).store
    me = f"cli:{user()}"
    row = store.incident(incident)
    if not row.state.ended:
        if not store.claim(incident, me, 60):
            raise StoreBusy(f"incident {incident} is being worked on by {row.owner} until {local(row.lease_until)}; try again then")
        own_calls = {call.id for call in store.calls(incident)}
        for approval in store.approvals():
            if approval.call in own_calls:
                store.answer(approval.id, Verdict.DENY, me, why=f"incident {incident} was closed: {why}")
        row = store.set_state(incident, IncidentState.CLOSED, note=why, by=me)
    if as_json:
        print_record(row)
    else:
        print_line(f"incident {incident} is {row.state}: {row.note}")


Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Your words on it, for whoever reads it later.")]
Cure = Annotated[str, typer.Option("--cure", metavar="TEXT", help="What brought the job back, where Nightshift did not do it.")]


def _reasons(context: typer.Context, incomplete: str) -> list[str]:
    from assistant.content.reasons import reasons

    return [name for name in reasons(invocation_of(context).site) if name.startswith(incomplete)]


@incident_app.command("confirm", epilog=examples('nightshift incident confirm 3 --why "the DIMM was replaced"'))
def confirm_incident(context: typer.Context, incident: Id, why: Why = "", cure: Cure = "", as_json: Json = False) -> None:
    """Say that the diagnosis of an incident was right.

    It is then remembered, named when something like it comes, and counts for the learned rules that spoke in it. A diagnosis
    that memory or a model made becomes a signature on trial.
    """
    from assistant.engine.learning import confirm

    _show(incident, confirm(invocation_of(context).engine(), incident, by=user(), why=why, cure=cure), as_json=as_json)


@incident_app.command(
    "correct",
    epilog=examples(
        'nightshift incident correct 3 --reason network_error --line "uplink lost" --why "switch 4 was rebooted"',
        "nightshift incident correct 3 --reason ecc_error --line dmesg.log:120 --action cordon_and_restart",
    ),
)
def correct_incident(
    context: typer.Context,
    incident: Id,
    reason: Annotated[str, typer.Option("--reason", metavar="REASON", help="What it really was.", autocompletion=_reasons)],
    line: Annotated[
        list[str] | None,
        typer.Option("--line", metavar="FILE:N|TEXT", help="A line that shows it: its place, or a piece of it. May be repeated."),
    ] = None,
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="What is to be done about it.")] = "",
    why: Why = "",
    cure: Cure = "",
    as_json: Json = False,
) -> None:
    """Say what an incident really was, so that the next one like it is known.

    The incident is remembered under the new reason, and its line becomes a signature on trial when it passes the proof: it must
    match nothing else that is known. Without --line Nightshift guesses which line shows it.
    """
    from assistant.engine.learning import confirm

    engine = invocation_of(context).engine()
    correction = confirm(engine, incident, by=user(), reason=reason, action=action, lines=line or (), why=why, cure=cure)
    _show(incident, correction, as_json=as_json)


@incident_app.command("forget", epilog=examples('nightshift incident forget 3 --why "it was the cable after all"'))
def forget_incident(context: typer.Context, incident: Id, why: Why = "taken back", as_json: Json = False) -> None:
    """Take a confirmation back: the incident is no longer remembered.

    Learned rules that rest on it are retired. The incident itself, its diagnosis and the audit stay.
    """
    from assistant.engine.learning import take_back

    engine = invocation_of(context).engine()
    removed = take_back(engine, incident, by=user(), why=why)
    if as_json:
        print_record(engine.store.incident(incident), forgotten=removed)
    else:
        print_line(f"incident {incident} is forgotten" if removed else f"incident {incident} was not remembered")


def _show(incident: int, correction: Confirmation, *, as_json: bool) -> None:
    if as_json:
        taught = correction.taught
        print_record(correction.diagnosis, incident=incident, learned=taught.learned, refused=taught.refused, judged=taught.judged)
        return
    print_line(f"incident {incident} was {correction.diagnosis.reason}, by the word of {user()}")
    print_pairs(
        [
            ("remembered", correction.taught.memory.lines if correction.taught.memory is not None else "no line shows it"),
            ("learned", learned_text(correction.taught)),
            (
                "judged",
                [f"{rule.id}: {rule.state}, {rule.hits} hits, {rule.misses} misses" for rule in correction.taught.judged],
            ),
        ]
    )


def learned_text(taught: Taught) -> str:
    """Return what became of the lesson's signature, in words."""
    if taught.learned is not None:
        return f"{taught.learned.id} on trial: {taught.learned.pattern}"
    return f"no signature: {taught.refused}" if taught.refused else ""
