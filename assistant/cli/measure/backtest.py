"""`nightshift backtest`: replay a site's history and report what Nightshift would have done. Touches no cluster and no store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import Invocation, Json, app, examples, invocation_of
from assistant.cli.output import now, print_json, print_line, print_pairs, print_table, since
from assistant.errors import ContentError, InputError, UsageError
from assistant.output_files import write_output

if TYPE_CHECKING:
    from assistant.engine.backtest import Accounts, Attempt, Replayed, Tally
    from assistant.policy import Policy

backtest_app = app(help="Replay history and report what Nightshift would have done.")

PROGRESS = 250
"""Attempts between two lines of progress."""


@backtest_app.command(
    epilog=examples(
        "sacct -P -D -a -S 2026-10-01 -o JobID,JobIDRaw,JobName,User,Partition,State,ExitCode,Submit,Start,End,NNodes,NodeList,"
        "AllocTRES,WorkDir,Comment,Reason,SubmitLine > sacct.txt",
        "nightshift backtest --sacct sacct.txt --logs /shared/logs",
        "nightshift backtest --sacct sacct.txt.gz --logs logs/ --kernel kernel/ --since 30d --report backtest.md",
        "nightshift backtest --sacct sacct.txt --policy propose --details",
        "nightshift backtest --sacct sacct.txt --logs logs/ --json --details | jq -r 'select(.job).reason'",
    )
)
def backtest(
    context: typer.Context,
    sacct: Annotated[Path, typer.Option("--sacct", metavar="FILE", help="Output of sacct -P (or --json), plain or .gz.")],
    logs: Annotated[
        Path | None, typer.Option("--logs", metavar="DIR", help="Where job logs lie; the job's id is in the name.")
    ] = None,
    kernel: Annotated[
        Path | None, typer.Option("--kernel", metavar="DIR", help="Where kernel logs lie, named after their nodes.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--events", metavar="FILE", help="Output of sacctmgr -P show event: when nodes were out.")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", metavar="FILE|MODE", help="observe, propose, act, or a policy.toml.")] = "act",
    begin: Annotated[str, typer.Option("--since", metavar="WHEN", help="Failures from then on: 30d, 2026-10-01.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="WHEN", help="Failures before then.")] = "",
    answer_min: Annotated[
        float, typer.Option("--answer-min", min=0, metavar="MINUTES", help="How long a person takes to answer a question.")
    ] = 30.0,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the report as Markdown.")] = None,
    details: Annotated[bool, typer.Option("--details", help="List every failure as well.")] = False,
    as_json: Json = False,
) -> None:
    """Replay history and report what Nightshift would have done.

    Each failed job goes through the real diagnosis, playbooks, policy and retry budgets, at the time at which it failed and with
    what was known then. The report has the rates of restarts and drains, the GPU-hours that waiting cost and that restarts would
    have saved, what might have done harm, and when a person would have been asked. Nothing is changed anywhere but for --report.
    """
    from assistant.engine.backtest import (
        Kernels,
        NodeEvents,
        Replay,
        Traces,
        assumptions,
        markdown,
        read_accounts,
        read_events,
        tally,
    )

    invocation = invocation_of(context)
    rules, mode = _policy(policy, invocation)
    accounts = read_accounts(sacct)
    first, last = _moment("--since", begin), _moment("--until", until)
    attempts_within = [attempt for attempt in accounts.attempts if _within(attempt, first, last)]
    if not attempts_within:
        raise InputError(
            f"{sacct}: no job ended in that time; {len(accounts.attempts):,} attempts were read, {accounts.broken:,} rows not"
        )
    kernels = Kernels(kernel) if kernel is not None else None
    traces = Traces(logs, kernels, accounts.attempts)
    node_events = read_events(events) if events is not None else NodeEvents()
    notice_s = invocation.settings.watch.poll_s
    replay = Replay(accounts.attempts, traces, rules, site=invocation.site, notice_s=notice_s, events=node_events)
    replayed = []
    for entry in replay.run(
        lambda attempt: _within(attempt, first, last), lambda number: _report_progress(invocation, number, len(accounts.attempts))
    ):
        replayed.append(entry)
        if details and as_json:
            print_json(_as_object(accounts.attempts, entry))
    unknown = {**_without(traces.without, logs), **({"kernel logs without times": len(kernels.timeless)} if kernels else {})}
    totals = tally(
        accounts.attempts,
        replayed,
        jobs=attempts_within,
        notice_s=notice_s,
        answer_s=answer_min * 60,
        unknown={name: count for name, count in unknown.items() if count},
        events=node_events,
    )
    notes = _notes(accounts)
    if as_json:
        print_json(_summary(totals, mode, notes, assumptions(notice_s, answer_min * 60)))
    else:
        _show(totals, accounts.attempts, replayed if details else (), notes)
    if report is not None:
        source = ", ".join(str(path) for path in (sacct, logs, kernel) if path is not None)
        text = markdown(totals, source=source, mode=mode, notice_s=notice_s, answer_s=answer_min * 60, notes=notes)
        write_output(report, text)
        invocation.say(f"nightshift: wrote {report}")


def _policy(word: str, invocation: Invocation) -> tuple[Policy, str]:
    """Return the policy to replay, kill switches left out, and how it is called."""
    from assistant.policy import Mode, load_policy, load_policy_files

    if word in tuple(Mode):
        return replace(load_policy(invocation.site), mode=Mode(word), kill_switch=()), f"of this site, mode {word}"
    path = Path(word)
    if not path.is_file():
        raise UsageError(f"--policy {word!r}: neither one of {', '.join(Mode)} nor a file")
    try:
        policy = load_policy_files(path).policy
    except ContentError as error:
        raise UsageError(str(error)) from error
    return replace(policy, kill_switch=()), f"{path}, mode {policy.mode}"


def _moment(option: str, text: str) -> datetime | None:
    try:
        return since(text, now()) if text else None
    except UsageError as error:
        raise UsageError(str(error).replace("--since", option, 1)) from error


def _within(attempt: Attempt, first: datetime | None, last: datetime | None) -> bool:
    ended = attempt.job.ended
    return ended is not None and (first is None or ended >= first) and (last is None or ended < last)


def _report_progress(invocation: Invocation, number: int, count: int) -> None:
    if number and number % PROGRESS == 0 and sys.stderr.isatty():
        invocation.say(f"nightshift: {number:,} of {count:,} jobs")


def _without(counts: Mapping[str, int], logs: Path | None) -> dict[str, int]:
    words = {
        "no file": "no file in --logs has the id in its name" if logs is not None else "no --logs were given",
        "another job": "the file with that id in its name is the log of another job",
        "a later attempt": "the log may be that of a later attempt of the same job",
        "unreadable": "the log is empty or cannot be read",
    }
    return {f"logs not read: {words[why]}": count for why, count in counts.items()}


def _notes(accounts: Accounts) -> dict[str, str]:
    """Return what is to be said about the file of the accounting."""
    notes = {"rows": f"{accounts.rows:,}, {accounts.steps:,} of them steps, {accounts.twice:,} twice"}
    if accounts.broken:
        notes["rows not read"] = f"{accounts.broken:,}: " + "; ".join(accounts.problems)
    lacking = {
        "Submit": "waits include the time in the queue",
        "NodeList": "no node can be drained, and no limit of nodes holds",
        "WorkDir": "runs are told by user and name alone",
        "User": "runs are told without their user",
        "JobName": "only requeued jobs can be told as later attempts of a run",
        "ExitCode": "the exit code is not known",
    }
    notes |= {f"no column {name}": why for name, why in lacking.items() if accounts.lacks(name)}
    if accounts.lacks("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "AllocGPUS", "NGPUs"):
        notes["no column AllocTRES"] = "GPU-hours are not known: all of them show as 0"
    return notes


def _show(totals: Tally, attempts: list[Attempt], replayed: list[Replayed] | tuple[()], notes: Mapping[str, str]) -> None:
    from assistant.engine.backtest import sections

    if replayed:
        columns = ("ended", "job", "state", "reason", "playbook", "restart", "drains", "next_start", "note")
        print_table(columns, [_row(attempts[replay_row.number], replay_row) for replay_row in replayed])
        print_line()
    for section in sections(totals):
        print_line(section.title, colour="bold")
        print_pairs([(f"  {name}", value) for name, value in section.pairs])
    if notes:
        print_line("input", colour="bold")
        print_pairs([(f"  {name}", value) for name, value in notes.items()])
    print_line("These figures rest on assumptions: --report FILE and --json list them.")


def _row(attempt: Attempt, replay_row: Replayed) -> tuple[object, ...]:
    job, restart = attempt.job, replay_row.change("resubmit")
    drained = [node for change in replay_row.decided if change.kind == "cordon" and change.done for node in change.nodes]
    answer = "" if restart is None else str(restart.verdict) if restart.done else "not made"
    started = f"{replay_row.after.waited_s / 60:.0f} min, {replay_row.after.starter}" if replay_row.after is not None else ""
    ended = f"{job.ended:%Y-%m-%d %H:%M}" if job.ended else ""
    reason = replay_row.diagnosis.reason if replay_row.diagnosis is not None else ""
    return (ended, job.id, str(job.state), reason, replay_row.playbook, answer, ",".join(drained), started, replay_row.note)


def _as_object(attempts: list[Attempt], replay_row: Replayed) -> dict[str, Any]:
    from assistant.tooling import to_json

    attempt, diagnosis, outcome = attempts[replay_row.number], replay_row.diagnosis, replay_row.after
    job = attempt.job
    return {
        "job": job.id,
        "attempt": job.attempt,
        "name": job.name,
        "user": job.user,
        "state": str(job.state),
        "ended": to_json(job.ended),
        "nodes": list(job.nodes),
        "gpus": attempt.gpus,
        "reason": diagnosis.reason if diagnosis is not None else None,
        "action": str(diagnosis.action) if diagnosis is not None else None,
        "confidence": diagnosis.confidence if diagnosis is not None else None,
        "faulty_nodes": list(diagnosis.faulty_nodes) if diagnosis is not None else [],
        "summary": diagnosis.summary if diagnosis is not None else "",
        "log": replay_row.why_no_log or "read",
        "playbook": replay_row.playbook,
        "ends": str(replay_row.state) if replay_row.state is not None else None,
        "note": replay_row.note,
        "changes": to_json(replay_row.decided),
        "already_out": list(replay_row.already_out),
        "next": {**to_json(outcome), "job": attempts[outcome.number].job.id} if outcome is not None else None,
    }


def _summary(totals: Tally, mode: str, notes: Mapping[str, str], assumed: list[str]) -> dict[str, Any]:
    from assistant.tooling import to_json

    return {"policy": mode, **to_json(totals), "input": dict(notes), "assumptions": assumed}
