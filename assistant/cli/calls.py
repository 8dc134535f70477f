"""Make one changing call from a shell: preview, policy, approval, outcome, and the exit code that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from assistant.cli.context import user
from assistant.cli.exits import Exit
from assistant.cli.output import narrate, print_json, print_line, print_record
from assistant.display import unambiguous
from assistant.errors import ChangesStopped, Denied, Parked
from assistant.records import Outcome, Verdict

if TYPE_CHECKING:
    from assistant.engine import Engine

_VERDICTS = {Verdict.ALLOW: Exit.DONE, Verdict.ASK: Exit.WAITS, Verdict.DENY: Exit.REFUSED}


def make(engine: Engine, tool: str, arguments: Mapping[str, Any], *, why: str, yes: bool, dry_run: bool, as_json: bool) -> Exit:
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
    return settle(lambda: engine.gate.call(tool, arguments, why=why, by=by, approved_by=approved_by), engine, as_json=as_json)


def settle(call: Callable[[], Outcome], engine: Engine, *, as_json: bool) -> Exit:
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
        print_line(f"  undo: nightshift undo {outcome.call}" if outcome.call else "")
    else:
        narrate(f"nightshift: error: {outcome.error}")
    return Exit.DONE if outcome.ok else Exit.ERROR
