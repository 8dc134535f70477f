"""Commands that allow and stop changes, and their record: `approvals`, `approve`, `deny`, `resume`, `undo`, `stop`, `breaker`.

Also how other commands make a changing call: preview, policy, approval, outcome, exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import Json, Yes, app, examples, invocation_of, row_number
from assistant.cli.output import (
    Exit,
    age,
    completions,
    local,
    narrate,
    now,
    print_json,
    print_line,
    print_pairs,
    print_record,
    print_table,
    user,
)
from assistant.display import unambiguous
from assistant.errors import ChangesStopped, Denied, Parked, UsageError
from assistant.records import EventKind, Outcome, Verdict
from assistant.store.calls import SHORT_DIGEST
from assistant.tooling import find_tool

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from assistant.cli.context import Invocation
    from assistant.engine import Engine
    from assistant.records import Call
    from assistant.store import Approval, Store
    from assistant.store.standing_decisions import Lately


_VERDICTS = {Verdict.ALLOW: Exit.DONE, Verdict.ASK: Exit.WAITS, Verdict.DENY: Exit.REFUSED}


def make_call(
    engine: Engine, tool: str, arguments: Mapping[str, Any], *, why: str, yes: bool, dry_run: bool, as_json: bool
) -> Exit:
    """Make a call, or show what it would do, and return the exit code.

    With `dry_run` the code says what the policy would answer: 0 allow, 3 deny, 4 ask.
    """
    by = f"cli:{user()}"
    approved_by = by if yes else None
    if dry_run:
        preview = engine.gate.preview(tool, arguments, by=by, approved_by=approved_by)
        decision = preview.decision
        if as_json:
            print_json({"preview": preview.text, "verdict": decision.verdict, "rule": decision.rule, "why": decision.why})
        else:
            print_line(f"would run: {unambiguous(preview.text)}")
            print_line(f"  policy: {decision.verdict} ({decision.rule}) {decision.why}".rstrip())
        return _VERDICTS[decision.verdict]
    return settle_call(lambda: engine.gate.call(tool, arguments, why=why, by=by, approved_by=approved_by), engine, as_json=as_json)


def settle_call(call: Callable[[], Outcome], engine: Engine, *, as_json: bool) -> Exit:
    """Make a call that the gate knows already or is about to know, print what came of it, and return the exit code."""
    try:
        outcome = call()
    except (Denied, Parked) as error:
        narrate(f"nightshift: {'waits: ' if isinstance(error, ChangesStopped) else ''}{error}")
        if as_json:
            approval = error.approval if isinstance(error, Parked) else None
            print_json({"ok": False, "error": str(error), "approval": approval})
        return Exit(error.exit_code)
    preview = engine.store.call(outcome.call).preview if outcome.call else ""
    if as_json:
        print_record(outcome, preview=preview)
    elif outcome.ok:
        print_line(f"done: {preview or outcome.value}")
        can_be_undone = bool(outcome.call) and find_tool(engine.store.call(outcome.call).tool).undo is not None
        print_line(f"  undo: nightshift undo {outcome.call}" if can_be_undone else "")
    else:
        narrate(f"nightshift: error: {outcome.error}")
    return Exit.DONE if outcome.ok else Exit.ERROR


approvals_app = app(help="List what waits for an approval, or was allowed and not made yet.")
approve_app = app(help="Allow a call that waits.")
deny_app = app(help="Refuse a call that waits.")


def approval_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of what waits for the shell to complete, with the call as help."""
    store = invocation_of(context).store
    waiting = store.approvals()
    return completions(((str(approval.id), store.call(approval.call).preview) for approval in waiting), incomplete)


Id = Annotated[int, typer.Argument(parser=row_number, metavar="ID", help="Id of the approval.", autocompletion=approval_ids)]
Digest = Annotated[
    str | None,
    typer.Option(
        "--digest", metavar="HEX", help="Answer only if these are the commands asked about; `nightshift approvals` shows it."
    ),
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")]


@approvals_app.command(epilog=examples("nightshift approvals", "nightshift approvals --all --json"))
def approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were answered or have expired.")] = False,
    as_json: Json = False,
) -> None:
    """List what waits for an approval, or was allowed and not made yet."""
    store, at = invocation_of(context).store, now()
    unmade = {call.id for call in (*store.allowed(), *store.allowed_steps())}
    listed = [
        approval
        for approval in store.approvals(pending_only=False)
        if everything or approval.pending(at) or (approval.call in unmade and approval.verdict is Verdict.ALLOW)
    ]
    if as_json:
        for approval in listed:
            print_record(approval, about=store.call(approval.call))
        return
    rows = [_row(store, approval, at, is_unmade=approval.call in unmade) for approval in listed]
    print_table(("id", "incident", "change", "digest", "why", "rule", "asked", "expires", "answer"), rows)


def _row(store: Store, approval: Approval, at: datetime, *, is_unmade: bool) -> tuple[object, ...]:
    call, age_text, expires = store.call(approval.call), age(approval.asked, at), age(approval.expires, at)
    answer = f"{approval.verdict} by {approval.by}" if approval.verdict else ""
    if is_unmade and approval.verdict is Verdict.ALLOW:
        answer += f"; not made yet: nightshift approve {approval.id}"
    digest, change = approval.digest[:SHORT_DIGEST], unambiguous(call.preview or call.tool)
    return (approval.id, call.incident, change, digest, unambiguous(call.why), approval.rule, age_text, expires, answer)


@approve_app.command(
    epilog=examples(
        "nightshift approve 7",
        "nightshift approve 7 --digest 3fa1c0de9b27",
        'nightshift approve 7 --why "seen the Xid myself" --later',
    )
)
def approve(
    context: typer.Context,
    approval: Id,
    why: Why = "",
    digest: Digest = None,
    later: Annotated[bool, typer.Option("--later", help="Only answer; `nightshift resume` goes on.")] = False,
    as_json: Json = False,
) -> None:
    """Allow a call that waits.

    The incident goes on in this shell, from that very step. The policy is asked once more right before the call is made. What was
    allowed and met a kill switch goes on, too. What cannot be undone asks for its name; without a terminal it needs --digest.
    """
    store = invocation_of(context).store
    stored = store.approval(approval)
    if stored.verdict is Verdict.ALLOW and any(call.id == stored.call for call in (*store.allowed(), *store.allowed_steps())):
        if digest is not None and (len(digest) < SHORT_DIGEST or not stored.digest.startswith(digest)):
            raise UsageError(
                f"approval {approval} is about {stored.digest[:SHORT_DIGEST]}, and --digest names {digest or 'nothing'}"
            )
        call = store.call(stored.call)
    else:
        if digest is None and stored.pending(now()):
            _name_what_cannot_be_undone(store, stored)
        call = _answer(context, approval, Verdict.ALLOW, why, digest=digest, as_json=as_json)
    if not later:
        _go_on(context, call, as_json=as_json)


@deny_app.command(epilog=examples('nightshift deny 7 --why "node02 is in maintenance already"'))
def deny(context: typer.Context, approval: Id, why: Why = "", digest: Digest = None, as_json: Json = False) -> None:
    """Refuse a call that waits.

    Its incident is handed to a person when it is worked on next: `nightshift resume`.
    """
    _answer(context, approval, Verdict.DENY, why, digest=digest, as_json=as_json)


def _name_what_cannot_be_undone(store: Store, approval: Approval) -> None:
    """Let the person at the terminal type the name of what cannot be undone.

    Raises:
        UsageError: It was not typed, or nobody sits at a terminal: the commands have to be named by their digest.
    """
    from assistant.cli.questions import type_its_name

    call = store.call(approval.call)
    if type_its_name(call, approval) is False:
        command = f"`--digest {approval.digest[:SHORT_DIGEST]}`" if approval.digest else "--digest"
        raise UsageError(
            f"approval {approval.id} cannot be undone, and its name was not typed: {unambiguous(call.preview or call.tool)}; "
            f"nothing was answered. Where it is meant, type the name at a terminal, or give {command}"
        )


def _answer(context: typer.Context, number: int, verdict: Verdict, why: str, *, digest: str | None, as_json: bool) -> Call:
    """Answer and return the call that it was about.

    Raises:
        UsageError: There is no such approval, it was answered already, it has expired, or it is about other commands.
    """
    store = invocation_of(context).store
    if not store.answer(number, verdict, f"cli:{user()}", why=why, digest=digest):
        late = store.approval(number)
        message = (
            f"was answered already: {late.verdict} by {late.by}" if late.verdict else "has expired; `nightshift resume` asks anew"
        )
        raise UsageError(f"approval {number} {message}")
    answered = store.approval(number)
    call = store.call(answered.call)
    if as_json:
        print_record(answered, about=call)
    else:
        print_line(f"{'allowed' if verdict is Verdict.ALLOW else 'refused'}: {unambiguous(call.preview or call.tool)}")
        if answered.digest:
            print_line(f"  digest: {answered.digest[:SHORT_DIGEST]}")
    return call


def _go_on(context: typer.Context, call: Call, *, as_json: bool) -> None:
    """Go on in this shell with what waited: the incident, or the call alone."""
    from assistant.cli.watch import drive, exit_of, print_end
    from assistant.engine.reconciliation import outlives_incident

    invocation = invocation_of(context)
    engine = invocation.engine(narrated=call.incident is not None)
    if call.incident is None or call.step is None or outlives_incident(engine, call):
        raise typer.Exit(settle_call(lambda: engine.gate.go_on(call.id), engine, as_json=as_json))
    end = drive(engine, engine.store.incident(call.incident), by=f"cli:{user()}")
    print_end(invocation, end, as_json)
    raise typer.Exit(exit_of(invocation, [end]))


resume_app = app(help="Go on with every unfinished incident.")


@resume_app.command(epilog=examples("nightshift resume", "nightshift --quiet resume --json    # from cron"))
def resume(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and leave, as from cron.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Go on with every unfinished incident.

    After a crash, Ctrl-C or an approval nothing is done twice: each incident goes on behind its last step that is known to have
    been taken. So does a change that a person allowed and that was not made yet.
    """
    from assistant.cli.watch import drive, exit_of, print_end

    invocation = invocation_of(context)
    engine = invocation.engine(yes=yes, narrated=True)
    ends = []
    for unfinished in reversed(engine.store.incidents(open_only=True, limit=10_000)):
        # what a person began goes on as theirs; what the watch began stays under the mode that holds for the watch
        by = f"cli:{user()}" if unfinished.kind is EventKind.REQUESTED or yes else None
        ends.append(drive(engine, unfinished, by=by, once=once))
        print_end(invocation, ends[-1], as_json)
    # what a person allowed that belongs to no playbook and met a kill switch, or that no watch was there to make
    exits = [settle_call(partial(engine.gate.go_on, call.id), engine, as_json=as_json) for call in engine.store.allowed()]
    if not ends and not exits:
        invocation.say("nothing is unfinished")
    code = exit_of(invocation, ends)
    raise typer.Exit(code if code is not Exit.DONE else max(exits, default=code))


undo_app = app(help="Take back a change that Nightshift made.")


@undo_app.command(epilog=examples("nightshift undo 12", 'nightshift undo 12 --why "node02 passed its tests" --yes'))
def undo(
    context: typer.Context,
    call: Annotated[
        int, typer.Argument(parser=row_number, metavar="CALL", help="Number of the call, as `nightshift incident show` prints it.")
    ],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take back a change that Nightshift made.

    The way back goes through the policy like any change: a cordon is lifted, a job that was resubmitted is cancelled.
    """
    engine = invocation_of(context).engine(yes=yes)
    by = f"cli:{user()}"
    approved_by = by if yes else None
    raise typer.Exit(settle_call(lambda: engine.gate.undo(call, by, why=why, approved_by=approved_by), engine, as_json=as_json))


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

    invocation, by = invocation_of(context), f"cli:{user()}"
    policy = invocation.in_force.policy
    if lift:
        result = lift_kill_switch(invocation.store, policy, by=by, why=why)
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
    watched = _watched(invocation)
    path = set_kill_switch(invocation.store, policy, by=by, why=why, watched=watched)
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


def _watched(invocation: Invocation) -> list[Path]:
    """Return the kill switches that the leading watch looks for, none where no watch leads."""
    from pathlib import Path

    leader = invocation.store.leader()
    rows = [row for row in invocation.store.watches() if leader is not None and row.owner == leader.owner]
    return [Path(name) for name in rows[0].kill_switch] if rows else []


breaker_app = app(help="Show, reset or open the breaker that stops all changes.", no_args_is_help=True)

BreakerWhy = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit and told to others.")]


@breaker_app.command("show", epilog=examples("nightshift breaker show", "nightshift breaker show --json"))
def show_breaker(context: typer.Context, as_json: Json = False) -> None:
    """Show whether the breaker is open, since when and why.

    Also what the last hour brought that counts for it.
    """
    from assistant.store.standing_decisions import count_lately, last_period

    invocation = invocation_of(context)
    period, terms = last_period(invocation.store), invocation.in_force.policy.breaker
    lately = count_lately(invocation.store, period.until if period is not None else None)
    is_open = period is not None and period.until is None
    opens_at = {name: getattr(terms, name) for name in terms.__dataclass_fields__}
    rows = [(name.replace("_", " "), _breaker_row(lately, name, most)) for name, most in opens_at.items()]
    if as_json:
        from assistant.tooling import to_json

        last_hour = {name: _breaker_count(lately, name, most) for name, most in opens_at.items()}
        by_user = {"failed_actions": dict(lately.failed_actions), "refused_actions": dict(lately.refused_actions)}
        opening = {"last_hour": last_hour, "by_user": by_user, "opens_at": to_json(terms)}
        print_json({"open": is_open, "last": to_json(period), **opening})
        return
    answer = "no, it never was"
    if period is not None and period.until is not None:
        answer = f"no; last from {local(period.since)} to {local(period.until)}: {period.why}"
    elif period is not None:
        answer = f"yes, since {local(period.since)}, by {period.by}: {period.why}"
    print_pairs([("open", answer), *rows, ("to go on", "nightshift breaker reset" if is_open else "")])


def _breaker_count(lately: Lately, name: str, most: int | None) -> int:
    from assistant.gate.stops import breaker_count

    counts = getattr(lately, name)
    total = counts if isinstance(counts, int) else sum(counts.values())
    return breaker_count(lately, name, most) if most is not None else total


def _breaker_row(lately: Lately, name: str, most: int | None) -> str:
    """Return how many of one kind count for the breaker, and of which user not all do."""
    counts = getattr(lately, name)
    users = [f"{user} {number}" for user, number in sorted(counts.items()) if user] if not isinstance(counts, int) else []
    note = f" (by the jobs of one user a third of that at most; now {', '.join(users)})" if users and most is not None else ""
    return f"{_breaker_count(lately, name, most)} of {most or 'any number'}{note}"


@breaker_app.command("reset", epilog=examples("nightshift breaker reset", 'nightshift breaker reset --why "power is back"'))
def reset(context: typer.Context, why: BreakerWhy = "", as_json: Json = False) -> None:
    """Let changes be made again, for what happens from now on.

    What piled up meanwhile is dropped: each case is looked at once more in the cluster as it is now. It is closed where nothing is
    left to be done, else handed to a person, and brought back with `nightshift recover JOB`.
    """
    from assistant.store.standing_decisions import reset_breaker

    was_open = reset_breaker(invocation_of(context).store, why=why or "reset by hand", by=f"cli:{user()}")
    if as_json:
        print_json({"open": False, "reset": was_open})
    else:
        print_line("the breaker is closed: changes are made again" if was_open else "the breaker is not open")


@breaker_app.command("open", epilog=examples('nightshift breaker open --why "the storage is being moved"'))
def open_by_hand(context: typer.Context, why: BreakerWhy = "", as_json: Json = False) -> None:
    """Stop all changes but those that a person makes, until it is reset.

    Incidents are still noticed and diagnosed.
    """
    from assistant.store.standing_decisions import open_breaker

    was_closed = open_breaker(invocation_of(context).store, why=why or "opened by hand", by=f"cli:{user()}")
    if as_json:
        print_json({"open": True, "opened": was_closed})
    else:
        print_line("the breaker is open: nothing is changed until it is reset" if was_closed else "the breaker is open already")
