"""`nightshift nodes`: list, check, cordon and uncordon nodes, their leases and their ledger; what changes goes through the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.changes import make_call
from assistant.cli.context import DryRun, Json, Yes, app, examples, invocation_of
from assistant.cli.output import Exit, Nagios, age, completions, print_json, print_line, print_record, print_table, user
from assistant.errors import NightshiftError, ToolError, UsageError
from assistant.nodeset import expand, fold, node_groups
from assistant.records import Verdict

if TYPE_CHECKING:
    from assistant.diagnose.learning.ledger import Score
    from assistant.engine import Engine
    from assistant.engine.reconciliation import CordonLeases
    from assistant.records import Node, NodePattern, Sighting


nodes_app = app(help="List, check, cordon and uncordon nodes.", invoke_without_command=True)

NAME = "NIGHTSHIFT NODES"
"""How the first line of a check begins."""
WORST_FIRST = (Nagios.CRITICAL, Nagios.WARNING, Nagios.UNKNOWN, Nagios.OK)
"""What was seen counts more than what could not be seen."""


def node_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of nodes for the shell to complete, with the state as help."""
    listed = invocation_of(context).engine().scheduler.nodes()
    return completions(((node.name, node.state) for node in listed), incomplete)


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODES", help="Names, sets, groups: node[001-016],@train,@state:drained.", autocompletion=node_names),
]
NodesOption = Annotated[str, typer.Option("--nodes", "-w", metavar="NODES", help="The same as an option, as in Slurm.")]


@nodes_app.callback(epilog=examples("nightshift nodes", "nightshift nodes check -w node[1-3]", "nightshift nodes --json"))
def nodes(context: typer.Context, node_set: NodesOption = "", as_json: Json = False) -> None:
    """List, check, cordon and uncordon nodes.

    Without a command lists the nodes, those of the same state and reason on one line.
    """
    if context.invoked_subcommand is not None:
        if node_set or as_json:
            raise UsageError(f"--nodes and --json stand behind the command: nightshift nodes {context.invoked_subcommand} --json")
        return
    all_nodes = invocation_of(context).engine().scheduler.nodes()
    names = set(_targets(all_nodes, None, node_set)) if node_set else {node.name for node in all_nodes}
    matching = [node for node in all_nodes if node.name in names]
    if as_json:
        for node in matching:
            print_record(node)
        return
    groups: dict[tuple[str, ...], list[Node]] = {}
    for node in matching:
        groups.setdefault((node.state, node.partition, node.reason), []).append(node)
    rows = [
        (
            fold(node.name for node in group),
            len(group),
            *key[:2],
            ",".join(dict.fromkeys(j for node in group for j in node.jobs)),
            key[2],
        )
        for key, group in groups.items()
    ]
    print_table(("nodes", "count", "state", "partition", "jobs", "reason"), rows, colour_of=2)


def _targets(all_nodes: Sequence[Node], names: Sequence[str] | None, node_set: str) -> list[str]:
    """Return the nodes that were named, all of which the scheduler must know."""
    requested = expand(",".join([*(names or []), *([node_set] if node_set else [])]), groups=node_groups(all_nodes))
    missing = sorted(set(requested) - {node.name for node in all_nodes})
    if missing:
        raise UsageError(f"the scheduler knows no node {fold(missing)}; known: {fold(node.name for node in all_nodes)}")
    return requested


@nodes_app.command(
    "check",
    epilog=examples(
        "nightshift nodes check",
        "nightshift nodes check -w node[1-3] --since 2026-03-01T08:00:00Z",
        "nightshift nodes check --local",
    ),
)
def check(
    context: typer.Context,
    names: Names = None,
    node_set: NodesOption = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Kernel messages count from then on; default: one day.")
    ] = "",
    job_started: Annotated[
        str, typer.Option("--job-started", metavar="TIME", help="When the job began: a boot after that is critical.")
    ] = "",
    idle: Annotated[bool, typer.Option("--idle", help="No job runs there: what uses the GPUs was left behind.")] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Check this machine itself, for Slurm's HealthCheckProgram, Prolog and Epilog.")
    ] = False,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="LEVEL", help="Exit 0 below faulty, critical or warning: for Prolog and Epilog.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Run the health probes on nodes; output and exit code as a Nagios plugin's.

    0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. Without names all nodes are checked. What could not be asked is unknown, never bad.
    """
    options = {"since": since, "job_started": job_started, "idle": idle}
    try:
        if fail_on not in FAIL_ON:
            raise UsageError(f"--fail-on must be one of {', '.join(name for name in FAIL_ON if name)}, not {fail_on!r}")
        results = _itself(context, names, node_set, options) if local else _from_here(context, names, node_set, options)
    except NightshiftError as error:
        print_line(f"{NAME} UNKNOWN - {error}")
        raise typer.Exit(Nagios.UNKNOWN) from error
    states = {node: _state(result) for node, result in results.items()}
    worst = next((state for state in WORST_FIRST if state in states.values()), Nagios.UNKNOWN)
    if as_json:
        for node, result in results.items():
            print_json({"node": node, **result})
    else:
        _print_nagios(results, states, worst)
    fails = any(FAIL_ON[fail_on](result) for result in results.values())
    raise typer.Exit(worst if not fail_on else Nagios.CRITICAL if fails else Nagios.OK)


FAIL_ON: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "": lambda result: False,
    "faulty": lambda result: bool(result["faulty"]),
    "critical": lambda result: _state(result) is Nagios.CRITICAL,
    "warning": lambda result: _state(result) in (Nagios.CRITICAL, Nagios.WARNING),
}
"""What makes a check fail where only 0 and not 0 count: Slurm drains a node whose Prolog does not end with 0."""


def _itself(context: typer.Context, names: Sequence[str] | None, node_set: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if names or node_set:
        raise UsageError("--local checks this machine: leave out the names")
    from assistant.cli.node_self_check import check_itself

    return dict(check_itself(invocation_of(context).settings, options))


def _from_here(context: typer.Context, names: Sequence[str] | None, node_set: str, options: Mapping[str, Any]) -> dict[str, Any]:
    engine = invocation_of(context).engine()
    all_nodes = engine.scheduler.nodes()
    targets = _targets(all_nodes, names, node_set) if names or node_set else [node.name for node in all_nodes]
    return _probed(engine, targets, options)


def _print_nagios(results: Mapping[str, Mapping[str, Any]], states: Mapping[str, Nagios], worst: Nagios) -> None:
    counts = {state: [node for node, own in states.items() if own is state] for state in Nagios}
    summary = ", ".join(f"{len(counts[state])} {state.name} ({fold(counts[state])})" for state in WORST_FIRST if counts[state])
    figures = " ".join(f"{state.name.lower()}={len(counts[state])}" for state in Nagios)
    faulty = [node for node, result in results.items() if result.get("faulty")]
    summary += f"; faulty: {fold(faulty)}" if faulty else ""
    # a bar begins the figures
    print_line(f"{NAME} {worst.name} - {summary or 'no nodes'} | nodes={len(states)} {figures} faulty={len(faulty)}")
    for lines, nodes in _groups(results).items():
        for line in lines:
            print_line(f"{fold(nodes)}: {line}")


def _groups(results: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, ...], list[str]]:
    """Return nodes by what is to be said about them, so that what is the same for many is said once."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, result in results.items():
        by_text: dict[tuple[str, str, str], list[str]] = {}
        for probe in result.get("probes", []):
            if probe["status"] != "ok":
                by_text.setdefault((probe["status"], probe["text"], _remedy(probe)), []).append(probe["probe"])
        ordered = sorted(by_text.items(), key=lambda item: WORST_FIRST.index(Nagios[item[0][0].upper()]))
        lines = (
            f"{status.upper()} {', '.join(dict.fromkeys(probes))}: {text.replace('|', '/')}{remedy}"
            for (status, text, remedy), probes in ordered
        )
        groups.setdefault(tuple(lines), []).append(node)
    return groups


def _remedy(probe: Mapping[str, Any]) -> str:
    return f" -> {probe['remedy']}" if probe.get("remedy") and probe["status"] != "unknown" else ""


def _state(result: Mapping[str, Any]) -> Nagios:
    return Nagios[str(result.get("status", "unknown")).upper()]


def _probed(engine: Engine, targets: Sequence[str], more: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the status of each node and what its probes said.

    Raises:
        ToolError: The probes could not be run at all.
    """
    outcome = engine.gate.call("check_nodes", {"nodes": list(targets), **more}, why="asked for by hand", by=f"cli:{user()}")
    if not outcome.ok:
        raise ToolError(outcome.error)
    return dict(outcome.value["nodes"])


@nodes_app.command(
    "cordon",
    epilog=examples('nightshift nodes cordon node07 --why "fan is loud"', "nightshift nodes cordon -w node[1-3] --dry-run"),
)
def cordon(
    context: typer.Context,
    names: Names = None,
    node_set: NodesOption = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Stands in the scheduler's reason.")] = "asked for by hand",
    hours: Annotated[
        float, typer.Option("--hours", metavar="H", help="How long the lease runs; then it asks to be looked at.")
    ] = 24.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take nodes out of scheduling for a while; jobs on them go on."""
    options = {"reason": why, "hours": hours}
    _change(context, "cordon_node", names, node_set, why=why, options=options, dry_run=dry_run, yes=yes, as_json=as_json)


@nodes_app.command(
    "uncordon",
    epilog=examples(
        "nightshift nodes uncordon node07",
        "nightshift nodes uncordon -w node[1-3] --dry-run",
        'nightshift nodes uncordon node07 --force --why "GPU 3 was replaced, the XID is old"',
    ),
)
def uncordon(
    context: typer.Context,
    names: Names = None,
    node_set: NodesOption = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Test nothing; needs --why.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put nodes back that Nightshift took out, once probes and a collective test pass.

    The test runs with idle nodes of the same partition. What somebody else cordoned stays out, with --force, too.
    """
    if force and not why:
        raise UsageError("--force needs a reason: nightshift nodes uncordon node07 --force --why TEXT")
    options = {"force": why} if force else {}
    why = why or "asked for by hand"
    _change(context, "uncordon_node", names, node_set, why=why, options=options, dry_run=dry_run, yes=yes, as_json=as_json)


@nodes_app.command("renew", epilog=examples("nightshift nodes renew node07", "nightshift nodes renew -w node[1-3] --hours 72"))
def renew(
    context: typer.Context,
    names: Names = None,
    node_set: NodesOption = "",
    hours: Annotated[float, typer.Option("--hours", metavar="H", help="How long from now.")] = 24.0,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "asked for by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give cordons of Nightshift's own a later end."""
    _change(context, "renew_cordon", names, node_set, why=why, options={"hours": hours}, dry_run=dry_run, yes=yes, as_json=as_json)


def _change(
    context: typer.Context,
    tool: str,
    names: Sequence[str] | None,
    node_set: str,
    *,
    why: str,
    options: Mapping[str, Any],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make one call for each node; one that is refused or fails does not keep the others from being made."""
    engine = invocation_of(context).engine(yes=yes)
    if not names and not node_set:
        raise UsageError("name nodes: nightshift nodes cordon node[1-3]")
    codes = [
        make_call(engine, tool, {"node": node, **options}, why=why, yes=yes, dry_run=dry_run, as_json=as_json)
        for node in _targets(engine.scheduler.nodes(), names, node_set)
    ]
    raise typer.Exit(max(codes, default=Exit.DONE))


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
    engine = invocation_of(context).engine(yes=yes)
    if not settle:
        _list(engine, as_json)
        return
    from assistant.engine.reconciliation import CordonLeases

    keeper = CordonLeases(engine.store, engine.gate, engine.scheduler, engine.clock, f"cli:{user()}")
    raise typer.Exit(_foresee(keeper, as_json, approved_by=keeper.by if yes else None) if dry_run else _settle(keeper, as_json))


def _list(engine: Engine, as_json: bool) -> None:
    from assistant.recover.identity import parse

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


def _settle(leases: CordonLeases, as_json: bool) -> Exit:
    from assistant.engine.reconciliation import CordonEnding

    codes = {
        CordonEnding.KEPT: Exit.ERROR,
        CordonEnding.ESCALATED: Exit.ERROR,
        CordonEnding.REFUSED: Exit.REFUSED,
        CordonEnding.WAITS: Exit.WAITS,
        CordonEnding.UNKNOWN: Exit.TRY_AGAIN,
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


def _foresee(leases: CordonLeases, as_json: bool, *, approved_by: str | None) -> Exit:
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


LEDGER_EXAMPLES = examples("nightshift nodes ledger", "nightshift nodes ledger --days 14 --json | jq -r 'select(.score > 1).node'")


def ledger(
    context: typer.Context,
    days: Annotated[float, typer.Option("--days", min=0.1, metavar="N", help="How far back.")] = 60.0,
    include_all: Annotated[bool, typer.Option("--all", help="Also nodes that were never to blame.")] = False,
    as_json: Json = False,
) -> None:
    """List the nodes that were to blame for failed jobs, worst first.

    A blame counts half after 14 days. Below stand what the nodes to blame share, more than chance explains.
    """
    from assistant.diagnose.learning.ledger import patterns, scores
    from assistant.engine.node_ledger import fleet, known_traits

    engine = invocation_of(context).engine()
    now = engine.clock.now()
    sightings = engine.store.sightings(now - timedelta(days=days))
    listed = [score for score in scores(sightings, now) if include_all or score.blamed]
    shared = (
        patterns(sightings, [score.node for score in listed], known_traits(fleet(engine.scheduler), sightings), now)
        if sightings
        else ()
    )
    if as_json:
        for score in listed:
            print_json(_as_object(score))
        for pattern in shared:
            print_record(pattern)
        return
    rows = [
        (
            score.node,
            f"{score.score:.2f}",
            len(score.blamed),
            score.present,
            _reasons(score.blamed),
            age(score.blamed[-1].at, now) if score.blamed else "",
        )
        for score in listed
    ]
    print_table(("node", "score", "to blame", "failed jobs", "of what", "last"), rows)
    _show(shared)


def _show(shared: tuple[NodePattern, ...]) -> None:
    for number, pattern in enumerate(pattern for pattern in shared if pattern.kind != "repeat"):
        if not number:
            print_line()
        odds = f" (by chance {pattern.chance:.1g})" if pattern.chance is not None else ""
        print_line(f"{pattern.text}{odds}")


def _as_object(score: Score) -> dict[str, object]:
    return {
        "node": score.node,
        "score": score.score,
        "blamed": len(score.blamed),
        "present": score.present,
        "reasons": dict(Counter(sighting.reason for sighting in score.blamed)),
        "incidents": [sighting.incident for sighting in score.blamed],
        "last": score.blamed[-1].at.isoformat() if score.blamed else None,
    }


def _reasons(blamed: tuple[Sighting, ...]) -> str:
    counted = Counter(sighting.reason for sighting in blamed).most_common()
    return ", ".join(f"{reason} x {count}" if count > 1 else reason for reason, count in counted)


nodes_app.command("leases", epilog=LEASES_EXAMPLES)(leases)
nodes_app.command("ledger", epilog=LEDGER_EXAMPLES)(ledger)
