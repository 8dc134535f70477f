"""`nightshift approvals`, `approve` and `deny`: the inbox of calls that wait for a person, and the question on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import completions, narrate, print_line, print_record, print_table
from assistant.cli.times import age, now
from assistant.display import unambiguous
from assistant.errors import UsageError
from assistant.records import Decision, Verdict
from assistant.store.approvals import SHORT_DIGEST

if TYPE_CHECKING:
    from assistant.records import Call
    from assistant.store import Approval, Store

approvals_app = app(help="List what waits for an approval.")
approve_app = app(help="Allow a call that waits.")
deny_app = app(help="Refuse a call that waits.")


def approval_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of what waits for the shell to complete, with the call as help."""
    store = door_of(context).store
    waiting = store.approvals()
    return completions(((str(approval.id), store.call(approval.call).preview) for approval in waiting), incomplete)


Id = Annotated[int, typer.Argument(metavar="ID", help="Id of the approval.", autocompletion=approval_ids)]
Digest = Annotated[
    str,
    typer.Option(
        "--digest", metavar="HEX", help="Answer only if these are the commands asked about; `nightshift approvals` shows it."
    ),
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")]


class TerminalApprover:
    """Asks the person at the terminal; with nobody there the call is parked."""

    def __init__(self, store: Store, expires_after_s: float, *, yes: bool) -> None:
        self._store = store
        self._expires_after_s = expires_after_s
        self._yes = yes

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the person's decision.

        Raises:
            Parked: There is no terminal and --yes was not given.
        """
        me = f"cli:{user()}"
        if self._yes:
            return Decision(Verdict.ALLOW, decision.rule, me, now(), "--yes")
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            from assistant.gate.approvers import Park

            return Park(self._store, expires_after_s=self._expires_after_s).ask(call, decision)
        narrate(unambiguous(call.preview or call.tool))
        narrate(f"  why: {unambiguous(call.why)}")
        narrate(f"  digest: {call.digest[:SHORT_DIGEST]}")
        narrate(f"  the policy asks: {decision.rule}: {decision.why}")
        verdict = Verdict.ALLOW if typer.confirm("  do it?", default=False, err=True) else Verdict.DENY
        return Decision(verdict, decision.rule, me, now(), "answered on the terminal")


@approvals_app.command(epilog=examples("nightshift approvals", "nightshift approvals --all --json"))
def approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were answered or have expired.")] = False,
    as_json: Json = False,
) -> None:
    """List what waits for an approval."""
    store, at = door_of(context).store, now()
    listed = store.approvals(pending_only=not everything)
    if as_json:
        for approval in listed:
            print_record(approval, about=store.call(approval.call))
        return
    rows = [_row(store, approval, age(approval.asked, at), age(approval.expires, at)) for approval in listed]
    print_table(("id", "incident", "change", "digest", "why", "rule", "asked", "expires", "answer"), rows)


def _row(store: Store, approval: Approval, age_text: str, expires: str) -> tuple[object, ...]:
    call = store.call(approval.call)
    answer = f"{approval.verdict} by {approval.by}" if approval.verdict else ""
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
    digest: Digest = "",
    later: Annotated[bool, typer.Option("--later", help="Only answer; `nightshift resume` goes on.")] = False,
    as_json: Json = False,
) -> None:
    """Allow a call that waits.

    The incident goes on in this shell, from that very step. The policy is asked once more right before the call is made.
    """
    call = _answer(context, approval, Verdict.ALLOW, why, digest=digest, as_json=as_json)
    if not later:
        _go_on(context, call, as_json=as_json)


@deny_app.command(epilog=examples('nightshift deny 7 --why "node02 is in maintenance already"'))
def deny(context: typer.Context, approval: Id, why: Why = "", digest: Digest = "", as_json: Json = False) -> None:
    """Refuse a call that waits.

    Its incident is handed to a person when it is worked on next: `nightshift resume`.
    """
    _answer(context, approval, Verdict.DENY, why, digest=digest, as_json=as_json)


def _answer(context: typer.Context, number: int, verdict: Verdict, why: str, *, digest: str, as_json: bool) -> Call:
    """Answer and return the call that it was about.

    Raises:
        UsageError: There is no such approval, it was answered already, it has expired, or it is about other commands.
    """
    store = door_of(context).store
    if not store.answer(number, verdict, f"cli:{user()}", why=why, digest=digest or None):
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
    from assistant.cli.calls import settle
    from assistant.cli.recover import drive, exit_of, print_end
    from assistant.engine.left_open import outlives_incident

    door = door_of(context)
    engine = door.engine(narrated=call.incident is not None)
    if call.incident is None or call.step is None or outlives_incident(engine, call):
        raise typer.Exit(settle(lambda: engine.gate.go_on(call.id), engine, as_json=as_json))
    end = drive(engine, engine.store.incident(call.incident), by=f"cli:{user()}")
    print_end(door, end, as_json)
    raise typer.Exit(exit_of(door, [end]))
