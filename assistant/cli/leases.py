"""`nightshift nodes leases`: list the cordons of Nightshift's own, and settle those that have run out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.exits import Exit
from assistant.cli.group import examples
from assistant.cli.options import DryRun, Json, Yes
from assistant.cli.output import print_json, print_line, print_record, print_table
from assistant.errors import UsageError
from assistant.records import Verdict

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.leases import Leases

LEASES_EXAMPLES = examples(
    "nightshift nodes leases", "nightshift nodes leases --settle --dry-run", "nightshift nodes leases --settle --yes"
)


def leases(
    context: typer.Context,
    settle: Annotated[bool, typer.Option("--settle", help="Lift or renew those that have run out, now.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List the cordons of Nightshift's own, with their end.

    With --settle each that has run out is lifted when the node passes its probes and a collective test, else renewed.
    `nightshift watch --once` does the same, as far as the policy lets it.
    """
    if not settle and (dry_run or yes):
        raise UsageError("--dry-run and --yes belong to --settle: nightshift nodes leases --settle --dry-run")
    engine = door_of(context).engine(yes=yes)
    if not settle:
        _list(engine, as_json)
        return
    from assistant.engine.leases import Leases

    keeper = Leases(engine.store, engine.gate, engine.scheduler, engine.clock, f"cli:{user()}")
    raise typer.Exit(_foresee(keeper, as_json, approved_by=keeper.by if yes else None) if dry_run else _settle(keeper, as_json))


def _list(engine: Engine, as_json: bool) -> None:
    from assistant.recover.leases import parse

    now = engine.clock.now()
    leased = [(node, own) for node in engine.scheduler.nodes() if (own := parse(node.reason)) is not None]
    if as_json:
        for node, own in leased:
            print_record(own, node=node.name, state=node.state, expired=own.expired(now), incident=own.incident)
        return
    rows = [
        (
            node.name,
            node.state,
            f"{own.until:%Y-%m-%dT%H:%M:%SZ}" if own.until else "",
            "yes" if own.expired(now) else "no",
            own.by,
            "" if own.incident is None else own.incident,
            own.why,
        )
        for node, own in leased
    ]
    print_table(("node", "state", "until", "expired", "by", "incident", "why"), rows, colour_of=1)


def _settle(leases: Leases, as_json: bool) -> Exit:
    from assistant.engine.leases import Ending

    codes = {
        Ending.KEPT: Exit.ERROR,
        Ending.ESCALATED: Exit.ERROR,
        Ending.REFUSED: Exit.REFUSED,
        Ending.WAITS: Exit.WAITS,
        Ending.UNKNOWN: Exit.TRY_AGAIN,
    }
    settled = leases.settle()
    for result in settled:
        if as_json:
            print_record(result)
        else:
            print_line(f"{result.node} {result.ending}: {result.note}")
    if not settled and not as_json:
        print_line("no cordon of ours has run out")
    return max((codes.get(result.ending, Exit.DONE) for result in settled), default=Exit.DONE)


def _foresee(leases: Leases, as_json: bool, *, approved_by: str | None) -> Exit:
    """Print what settling would do, and return what the policy says to it; nothing is tested, so which of both it is stays open."""
    codes = {Verdict.ALLOW: Exit.DONE, Verdict.ASK: Exit.WAITS, Verdict.DENY: Exit.REFUSED}
    due, code = leases.due(), Exit.DONE
    for node, own in due:
        lift = leases.gate.preview("uncordon_node", {"node": node.name}, by=leases.by, approved_by=approved_by)
        renew = leases.gate.preview("renew_cordon", {"node": node.name}, by=leases.by, approved_by=approved_by)
        code = max(code, codes[lift.decision.verdict])
        if as_json:
            end = own.until.isoformat() if own.until else None
            row = {"node": node.name, "until": end, "lift": lift.text, "verdict": lift.decision.verdict}
            print_json({**row, "rule": lift.decision.rule, "renew": renew.text})
            continue
        print_line(f"would run: {lift.text}")
        print_line(f"  policy: {lift.decision.verdict} ({lift.decision.rule}) {lift.decision.why}".rstrip())
        print_line(f"  or, when it does not pass: {renew.text}")
    if not due and not as_json:
        print_line("no cordon of ours has run out")
    return code
