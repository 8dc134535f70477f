"""The command `nightshift drill`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import invocation_of, user
from assistant.cli.group import app, examples
from assistant.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assistant.content.faults import Drill

drill_app = app(help="Let things go wrong on purpose and compare what comes of it.")


@drill_app.callback(invoke_without_command=True, epilog=examples("nightshift drill", "nightshift drill --cluster --only link_cut"))
def drill(
    context: typer.Context,
    cluster: Annotated[bool, typer.Option("--cluster", help="On the rig's real Slurm cluster, not on this machine.")] = False,
    rig: Annotated[
        Path | None,
        typer.Option("--rig", metavar="PROGRAM", help="What hurts and heals the cluster; default $NIGHTSHIFT_DEVCLUSTER."),
    ] = None,
    home: Annotated[Path | None, typer.Option("--home", metavar="FOLDER", help="The rig's folder, where it has several.")] = None,
    shared: Annotated[
        Path | None, typer.Option("--shared", metavar="FOLDER", help="A folder at the same path here and on every node.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this drill; may repeat.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a drill.")] = False,
) -> None:
    """Let things go wrong on purpose and compare what comes of it.

    Without --cluster it is `nightshift demo --all`. With it a job of four ranks trains on four nodes of a test cluster and is hit
    by each drill in turn. Exit status 0 when each ended as its file says. Never point it at a cluster in service.

    The drills act by themselves; all other terms of the site's policy hold for them, its kill switches, too. At the end only nodes
    that the drill itself took out are put back.
    """
    if not cluster:
        _local(only or [], as_json)
        return
    from assistant.content.faults import drills
    from assistant.demo.rehearsal import play
    from assistant.drill.cluster import ClusterDrill, Rig

    invocation, by = invocation_of(context), f"cli:{user()}"
    program = rig or Path(os.environ.get("NIGHTSHIFT_DEVCLUSTER", ""))
    if program == Path():
        raise UsageError("--cluster needs --rig PROGRAM or NIGHTSHIFT_DEVCLUSTER: it must be able to hurt and heal the cluster")
    selected_drills = _selected(only or [], drills())
    the_rig = Rig(program.absolute(), home)
    root = the_rig.share(shared) / f"drill-{int(time.time())}"
    try:
        rehearsals = (
            (
                drill_case.title,
                drill_case.name,
                lambda drill_case=drill_case: ClusterDrill(
                    drill_case, the_rig, _new_folder(root / drill_case.name), invocation.in_force, by=by
                ),
            )
            for drill_case in selected_drills
        )
        results = play(rehearsals, as_json=as_json, whole=False)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        the_rig.close()
    if any(result.problems for result in results):
        raise typer.Exit(1)


def _local(only: list[str], as_json: bool) -> None:
    from assistant.demo.command import run_demo

    if len(only) == 1:
        run_demo(fault=only[0], every=False, list_faults=False, folder=None, as_json=as_json)
    elif only:
        raise UsageError("--only can be given once without --cluster")
    else:
        run_demo(fault="ecc", every=True, list_faults=False, folder=None, as_json=as_json)


def _selected(only: list[str], drills_by_name: Mapping[str, Drill]) -> list[Drill]:
    unknown = [name for name in only if name not in drills_by_name]
    if unknown:
        raise UsageError(f"drill {unknown[0]!r} is unknown; known: {', '.join(drills_by_name)}")
    return [drills_by_name[name] for name in only] if only else list(drills_by_name.values())


def _new_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
