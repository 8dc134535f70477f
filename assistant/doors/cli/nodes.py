"""`nightshift nodes`: list, check, cordon and uncordon nodes; what changes goes through the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.doors.cli.calls import make
from assistant.doors.cli.door import door_of, user
from assistant.doors.cli.exits import Exit, Nagios
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import DryRun, Json, Yes
from assistant.doors.cli.output import print_json, print_line, print_record, print_table
from assistant.errors import NightshiftError, ToolError, UsageError
from assistant.nodeset import expand, fold

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.records import Node

nodes_app = app(help="List, check, cordon and uncordon nodes.", invoke_without_command=True)

WORST_FIRST = (Nagios.CRITICAL, Nagios.WARNING, Nagios.UNKNOWN, Nagios.OK)
"""What was seen counts more than what could not be seen."""


def node_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of nodes for the shell to complete, with the state as help."""
    found = door_of(context).engine().scheduler.nodes()
    return [(node.name, str(node.state)) for node in found if node.name.startswith(incomplete)]


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODES", help="Names or sets: node[001-016].", autocompletion=node_names),
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
    known = door_of(context).engine().scheduler.nodes()
    wanted = set(_chosen(known, None, where)) if where else {node.name for node in known}
    found = [node for node in known if node.name in wanted]
    if as_json:
        for node in found:
            print_record(node)
        return
    alike: dict[tuple[str, ...], list[Node]] = {}
    for node in found:
        alike.setdefault((node.state, node.partition, node.reason), []).append(node)
    rows = [
        (
            fold(node.name for node in group),
            len(group),
            *key[:2],
            ",".join(dict.fromkeys(j for node in group for j in node.jobs)),
            key[2],
        )
        for key, group in alike.items()
    ]
    print_table(("nodes", "count", "state", "partition", "jobs", "reason"), rows, colour_of=2)


def _chosen(known: Sequence[Node], names: Sequence[str] | None, where: str) -> list[str]:
    """Return the nodes that were named, all of which the scheduler must know."""
    wanted = expand(",".join([*(names or []), *([where] if where else [])]))
    missing = sorted(set(wanted) - {node.name for node in known})
    if missing:
        raise UsageError(f"the scheduler knows no node {fold(missing)}; known: {fold(node.name for node in known)}")
    return wanted


@nodes_app.command(
    "check",
    epilog=examples("nightshift nodes check", "nightshift nodes check node[1-3]", "nightshift nodes check -w node07 --json"),
)
def check(context: typer.Context, names: Names = None, where: Where = "", as_json: Json = False) -> None:
    """Run the health probes on nodes; output and exit code as a Nagios plugin's.

    0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. Without names all nodes are checked. What could not be asked is unknown, never bad.
    """
    try:
        engine = door_of(context).engine()
        known = engine.scheduler.nodes()
        chosen = _chosen(known, names, where) if names or where else [node.name for node in known]
        found = _probed(engine, chosen)
    except NightshiftError as error:
        print_line(f"NODES UNKNOWN - {error}")
        raise typer.Exit(Nagios.UNKNOWN) from error
    states = {node: _state(result) for node, result in found.items()}
    worst = next((state for state in WORST_FIRST if state in states.values()), Nagios.UNKNOWN)
    if as_json:
        for node, result in found.items():
            print_json({"node": node, **result})
        raise typer.Exit(worst)
    _print_nagios(found, states, worst)
    raise typer.Exit(worst)


def _print_nagios(found: Mapping[str, Mapping[str, Any]], states: Mapping[str, Nagios], worst: Nagios) -> None:
    counts = {state: [node for node, own in states.items() if own is state] for state in Nagios}
    said = ", ".join(f"{len(counts[state])} {state.name} ({fold(counts[state])})" for state in WORST_FIRST if counts[state])
    figures = " ".join(f"{state.name.lower()}={len(counts[state])}" for state in Nagios)
    print_line(f"NODES {worst.name} - {said or 'no nodes'} | nodes={len(states)} {figures}")
    for node, result in found.items():
        for probe in result.get("probes", []):
            if probe["status"] != "ok":
                print_line(f"{node}: {probe['status'].upper()} {probe['probe']}: {probe['text']}")


def _state(result: Mapping[str, Any]) -> Nagios:
    return Nagios[str(result.get("status", "unknown")).upper()]


def _probed(engine: Engine, chosen: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the status of each node and what its probes said.

    Raises:
        ToolError: The probes could not be run at all.
    """
    outcome = engine.gate.call("check_nodes", {"nodes": list(chosen)}, why="asked for by hand", by=f"cli:{user()}")
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
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take nodes out of scheduling; jobs on them go on."""
    _change(context, "cordon_node", names, where, why=why, more={"reason": why}, dry_run=dry_run, yes=yes, as_json=as_json)


@nodes_app.command(
    "uncordon", epilog=examples("nightshift nodes uncordon node07", "nightshift nodes uncordon -w node[1-3] --dry-run")
)
def uncordon(
    context: typer.Context,
    names: Names = None,
    where: Where = "",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "asked for by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put nodes back that Nightshift took out; what somebody else cordoned stays."""
    _change(context, "uncordon_node", names, where, why=why, more={}, dry_run=dry_run, yes=yes, as_json=as_json)


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
        for node in _chosen(engine.scheduler.nodes(), names, where)
    ]
    raise typer.Exit(max(codes, default=Exit.DONE))
