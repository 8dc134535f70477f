"""`nightshift recover` and `nightshift resume`: work incidents now, in this shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation, invocation_of, user
from assistant.cli.group import DryRun, Json, Yes, app, examples
from assistant.cli.incidents import incident_ids, incident_subject
from assistant.cli.jobs import job_ids
from assistant.cli.output import Exit, print_line, print_pairs, print_record
from assistant.display import unambiguous
from assistant.errors import UsageError
from assistant.records import CallStatus, EventKind, IncidentState

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.plan import Plan
    from assistant.records import Incident

recover_app = app(help="Bring a failed job back by its playbook.")
resume_app = app(help="Go on with every unfinished incident.")

LOOK_S = 2.0
"""Seconds between two looks at a restarted job."""
AGAIN_S = 10.0
"""Seconds until a step that has to wait is tried again."""


def owner() -> str:
    """Return the name under which this process holds incidents."""
    from assistant.engine.lease import owner_name

    return owner_name(f"cli:{user()}")


@recover_app.command(
    epilog=examples("nightshift recover 4821 --dry-run", "nightshift recover 4821", "nightshift recover --incident 3 --yes")
)
def recover(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=job_ids)] = "",
    incident: Annotated[
        int | None, typer.Option("--incident", metavar="ID", help="Its incident.", autocompletion=incident_ids)
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


@resume_app.command(epilog=examples("nightshift resume", "nightshift --quiet resume --json    # from cron"))
def resume(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and leave, as from cron.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Go on with every unfinished incident.

    After a crash, Ctrl-C or an approval nothing is done twice: each incident goes on behind its last step that is known to have
    been taken.
    """
    invocation = invocation_of(context)
    engine = invocation.engine(yes=yes, narrated=True)
    ends = []
    for unfinished in reversed(engine.store.incidents(open_only=True, limit=10_000)):
        # what a person began goes on as theirs; what the watch began stays under the mode that holds for the watch
        by = f"cli:{user()}" if unfinished.kind is EventKind.REQUESTED or yes else None
        ends.append(drive(engine, unfinished, by=by, once=once))
        print_end(invocation, ends[-1], as_json)
    if not ends:
        invocation.say("nothing is unfinished")
    raise typer.Exit(exit_of(invocation, ends))


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
    from assistant.engine.requested import requested

    return requested(engine, job_id, by=f"cli:{user()}", again=after_recovery)


def plan_of(engine: Engine, incident: Incident) -> Plan:
    """Return what would be done about an incident; give the engine of `Invocation.rehearsal`, so that nothing is kept."""
    from assistant.engine.plan import plan

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
