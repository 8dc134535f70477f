"""`nightshift nodes`: list, check, cordon and uncordon nodes; what changes goes through the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.calls import make
from assistant.cli.context import door_of, user
from assistant.cli.exits import Exit, Nagios
from assistant.cli.group import app, examples
from assistant.cli.leases import LEASES_EXAMPLES, leases
from assistant.cli.ledger import LEDGER_EXAMPLES, ledger
from assistant.cli.options import DryRun, Json, Yes
from assistant.cli.output import completions, print_json, print_line, print_record, print_table
from assistant.errors import NightshiftError, ToolError, UsageError
from assistant.nodeset import expand, fold, node_groups

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.records import Node

nodes_app = app(help="List, check, cordon and uncordon nodes.", invoke_without_command=True)

NAME = "NIGHTSHIFT NODES"
"""How the first line of a check begins."""
WORST_FIRST = (Nagios.CRITICAL, Nagios.WARNING, Nagios.UNKNOWN, Nagios.OK)
"""What was seen counts more than what could not be seen."""


def node_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of nodes for the shell to complete, with the state as help."""
    listed = door_of(context).engine().scheduler.nodes()
    return completions(((node.name, node.state) for node in listed), incomplete)


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODES", help="Names, sets, groups: node[001-016],@train,@state:drained.", autocompletion=node_names),
]
Where = Annotated[str, typer.Option("--nodes", "-w", metavar="NODES", help="The same as an option, as in Slurm.")]


@nodes_app.callback(epilog=examples("nightshift nodes", "nightshift nodes check -w node[1-3]", "nightshift nodes --json"))
def nodes(context: typer.Context, where: Where = "", as_json: Json = False) -> None:
    """List, check, cordon and uncordon nodes.

    Without a command lists the nodes, those of the same state and reason on one line.
    """
    if context.invoked_subcommand is not None:
        if where or as_json:
            raise UsageError(f"--nodes and --json stand behind the command: nightshift nodes {context.invoked_subcommand} --json")
        return
    all_nodes = door_of(context).engine().scheduler.nodes()
    names = set(_targets(all_nodes, None, where)) if where else {node.name for node in all_nodes}
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


def _targets(all_nodes: Sequence[Node], names: Sequence[str] | None, where: str) -> list[str]:
    """Return the nodes that were named, all of which the scheduler must know."""
    requested = expand(",".join([*(names or []), *([where] if where else [])]), groups=node_groups(all_nodes))
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
    where: Where = "",
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
    more = {"since": since, "job_started": job_started, "idle": idle}
    try:
        if fail_on not in FAIL_ON:
            raise UsageError(f"--fail-on must be one of {', '.join(name for name in FAIL_ON if name)}, not {fail_on!r}")
        results = _itself(context, names, where, more) if local else _from_here(context, names, where, more)
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


def _itself(context: typer.Context, names: Sequence[str] | None, where: str, more: Mapping[str, Any]) -> dict[str, Any]:
    if names or where:
        raise UsageError("--local checks this machine: leave out the names")
    from assistant.cli.node_self_check import check_itself

    return dict(check_itself(door_of(context).settings, more))


def _from_here(context: typer.Context, names: Sequence[str] | None, where: str, more: Mapping[str, Any]) -> dict[str, Any]:
    engine = door_of(context).engine()
    all_nodes = engine.scheduler.nodes()
    targets = _targets(all_nodes, names, where) if names or where else [node.name for node in all_nodes]
    return _probed(engine, targets, more)


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
    where: Where = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Stands in the scheduler's reason.")] = "asked for by hand",
    hours: Annotated[
        float, typer.Option("--hours", metavar="H", help="How long the lease runs; then it asks to be looked at.")
    ] = 24.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take nodes out of scheduling for a while; jobs on them go on."""
    more = {"reason": why, "hours": hours}
    _change(context, "cordon_node", names, where, why=why, more=more, dry_run=dry_run, yes=yes, as_json=as_json)


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
    where: Where = "",
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
    more = {"force": why} if force else {}
    why = why or "asked for by hand"
    _change(context, "uncordon_node", names, where, why=why, more=more, dry_run=dry_run, yes=yes, as_json=as_json)


@nodes_app.command("renew", epilog=examples("nightshift nodes renew node07", "nightshift nodes renew -w node[1-3] --hours 72"))
def renew(
    context: typer.Context,
    names: Names = None,
    where: Where = "",
    hours: Annotated[float, typer.Option("--hours", metavar="H", help="How long from now.")] = 24.0,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "asked for by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give cordons of Nightshift's own a later end."""
    _change(context, "renew_cordon", names, where, why=why, more={"hours": hours}, dry_run=dry_run, yes=yes, as_json=as_json)


nodes_app.command("leases", epilog=LEASES_EXAMPLES)(leases)
nodes_app.command("ledger", epilog=LEDGER_EXAMPLES)(ledger)


def _change(
    context: typer.Context,
    tool: str,
    names: Sequence[str] | None,
    where: str,
    *,
    why: str,
    more: Mapping[str, Any],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make one call for each node; one that is refused or fails does not keep the others from being made."""
    engine = door_of(context).engine(yes=yes)
    if not names and not where:
        raise UsageError("name nodes: nightshift nodes cordon node[1-3]")
    codes = [
        make(engine, tool, {"node": node, **more}, why=why, yes=yes, dry_run=dry_run, as_json=as_json)
        for node in _targets(engine.scheduler.nodes(), names, where)
    ]
    raise typer.Exit(max(codes, default=Exit.DONE))
