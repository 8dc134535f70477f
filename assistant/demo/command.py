"""The command `nightshift demo`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.group import app
from assistant.cli.output import print_json, print_line
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.content.faults import Fault

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
    from assistant.demo import night

    if not alone:
        raise UsageError("--chat shows one fault to a person: it goes neither with --all nor with --json")
    need_terminal()
    root = _root(folder)
    try:
        settings = night.prepare(root)
        with night.watched(fault, root):
            from assistant.tui.start import run

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
