"""The commands `nightshift demo` and `nightshift drill`."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import app, examples, invocation_of
from assistant.cli.output import narrate, print_json, print_line, user
from assistant.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assistant.content.faults import Drill, Fault


demo = app(help="Watch a real training job fail and come back, on this machine.")


@demo.callback(invoke_without_command=True)
def run_demo(
    fault: Annotated[str, typer.Option("--fault", metavar="NAME", help="What goes wrong; --list shows the names.")] = "ecc",
    every: Annotated[bool, typer.Option("--all", help="Run every fault, one after the other, and print a table.")] = False,
    list_faults: Annotated[bool, typer.Option("--list", help="List the faults and end.")] = False,
    folder: Annotated[Path | None, typer.Option("--folder", help="Keep everything in this empty folder.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Watch it in the chat instead: nothing is changed before you say yes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a run.")] = False,
) -> None:
    """Run a real training job on this machine, let it fail, and bring it back.

    Several processes train a small language model over TCP, write checkpoints and log like Megatron. The chosen fault strikes in
    the middle. Exit status 0 when the incident ended as its playbook says.

    With --chat the same happens beside a chat: the incident appears there, each change waits for you, and the job comes back when
    you allow it.

    Example: nightshift demo --fault hang
    """
    from assistant.content.faults import faults, find_fault
    from assistant.demo import rehearsal

    if list_faults:
        for fault_entry in faults().values():
            if as_json:
                print_json({"fault": fault_entry.name, "title": fault_entry.title})
            else:
                print_line(f"{fault_entry.name:20} {fault_entry.title}")
        return
    if chat:
        _chat(find_fault(fault), folder, alone=not (every or as_json))
        return
    chosen_faults = list(faults().values()) if every else [find_fault(fault)]
    root = _root(folder)
    try:
        results = rehearsal.run(chosen_faults, root, as_json=as_json, whole=not every)
    finally:
        if folder is None:
            shutil.rmtree(root, ignore_errors=True)
    if any(result.problems for result in results):
        raise typer.Exit(1)


def _chat(fault: Fault, folder: Path | None, *, alone: bool) -> None:
    """Open the chat on a night in which a job fails."""
    from assistant.cli.output import need_terminal
    from assistant.demo import job

    if not alone:
        raise UsageError("--chat shows one fault to a person: it goes neither with --all nor with --json")
    need_terminal()
    root = _root(folder)
    try:
        settings = job.prepare(root)
        with job.watched(fault, root):
            from assistant.tui.launch import run

            run(settings, thread="", theme="nightshift", model=False)
    finally:
        if folder is None:
            shutil.rmtree(root, ignore_errors=True)


def _root(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="nightshift-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--folder {folder}: cannot be made: {error.strerror}") from error
    if any(folder.iterdir()):
        raise UsageError(f"--folder {folder}: is not empty; name a new folder")
    return folder.absolute()


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

    The drills act by themselves; all other terms of the site's policy hold for them, its kill switches, too, and it must have hard
    limits. At the end their jobs are ended and the nodes that they took out are put back, as far as the policy allows then; what
    stays is named.
    """
    if not cluster:
        _local(only or [], as_json)
        return
    from assistant.content.faults import drills
    from assistant.demo.cluster_drill import ClusterDrill, Rig
    from assistant.demo.rehearsal import play

    invocation, by = invocation_of(context), f"cli:{user()}"
    program = rig or Path(os.environ.get("NIGHTSHIFT_DEVCLUSTER", ""))
    if program == Path():
        raise UsageError("--cluster needs --rig PROGRAM or NIGHTSHIFT_DEVCLUSTER: it must be able to hurt and heal the cluster")
    selected_drills = _selected(only or [], drills())
    the_rig = Rig(program.absolute(), home)
    root = the_rig.share(shared) / f"drill-{int(time.time())}"
    cluster_drills: list[ClusterDrill] = []

    def begin(drill_case: Drill) -> ClusterDrill:
        cluster_drills.append(ClusterDrill(drill_case, the_rig, _new_folder(root / drill_case.name), invocation.in_force, by=by))
        return cluster_drills[-1]

    try:
        rehearsals = ((drill_case.title, drill_case.name, partial(begin, drill_case)) for drill_case in selected_drills)
        results = play(rehearsals, as_json=as_json, whole=False)
    finally:
        if any(ended.leftovers for ended in cluster_drills):
            # jobs that go on write there, and the record of what was changed lies there
            narrate(f"nightshift: not all could be put back; {root} and the link to it stay")
        else:
            shutil.rmtree(root, ignore_errors=True)
            the_rig.close()
    if any(result.problems for result in results):
        raise typer.Exit(1)


def _local(only: list[str], as_json: bool) -> None:

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
