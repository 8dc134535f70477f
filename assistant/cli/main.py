"""The root of `nightshift`: the table of commands, the global options, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from assistant.cli import exits, termination
from assistant.cli.context import Door
from assistant.cli.exits import Exit
from assistant.cli.extras import missing_extra
from assistant.cli.group import CommandEntry, LazyGroup, app
from assistant.cli.output import flush, print_block, print_line
from assistant.errors import NightshiftError

_PACKAGE = "assistant.cli"
_LOOK, _ACT, _KNOW, _SYSTEM = "Look", "Act", "What Nightshift knows", "Nightshift itself"

COMMANDS = {
    "chat": CommandEntry(
        f"{_PACKAGE}.chat:chat_app", "Talk with Nightshift beside live incidents, approvals, jobs and nodes.", _LOOK
    ),
    "ask": CommandEntry(f"{_PACKAGE}.ask:ask_app", "Ask about jobs, nodes and incidents in plain words.", _LOOK),
    "explain": CommandEntry(f"{_PACKAGE}.ask:explain_app", "Write the report of an incident.", _LOOK),
    "diagnose": CommandEntry(f"{_PACKAGE}.diagnose:diagnose_app", "Find out why a run failed, from its log or folder.", _LOOK),
    "jobs": CommandEntry(f"{_PACKAGE}.jobs:jobs_app", "List the jobs that the scheduler knows.", _LOOK),
    "job": CommandEntry(f"{_PACKAGE}.job_check:job_app", "Show or check one job.", _LOOK),
    "incidents": CommandEntry(f"{_PACKAGE}.incidents:incidents_app", "List incidents, newest first.", _LOOK),
    "incident": CommandEntry(f"{_PACKAGE}.corrections:incident_app", "Show, report, correct or close one incident.", _LOOK),
    "logs": CommandEntry(f"{_PACKAGE}.logs:logs_app", "Read, compress or search a log.", _LOOK),
    "checkpoints": CommandEntry(
        f"{_PACKAGE}.checkpoints:checkpoints_app", "List and verify checkpoints, and say how often to save.", _LOOK
    ),
    "nodes": CommandEntry(f"{_PACKAGE}.nodes:nodes_app", "List, check, cordon and uncordon nodes.", _LOOK),
    "status": CommandEntry(f"{_PACKAGE}.status:status_app", "Show whether a watch is alive and what waits.", _LOOK),
    "backtest": CommandEntry(
        f"{_PACKAGE}.backtest:backtest_app", "Replay history and report what Nightshift would have done.", _LOOK
    ),
    "evaluate": CommandEntry(
        f"{_PACKAGE}.evaluate:evaluate_app", "Evaluate a checkpoint on many datasets, each node loading it once.", _ACT
    ),
    "recover": CommandEntry(f"{_PACKAGE}.recover:recover_app", "Bring a failed job back by its playbook.", _ACT),
    "resume": CommandEntry(f"{_PACKAGE}.recover:resume_app", "Go on with every unfinished incident.", _ACT),
    "watch": CommandEntry(f"{_PACKAGE}.watch:watch_app", "Watch the cluster for failed, hanging and diverging jobs.", _ACT),
    "approvals": CommandEntry(f"{_PACKAGE}.approvals:approvals_app", "List what waits for an approval.", _ACT),
    "approve": CommandEntry(f"{_PACKAGE}.approvals:approve_app", "Allow a call that waits.", _ACT),
    "deny": CommandEntry(f"{_PACKAGE}.approvals:deny_app", "Refuse a call that waits.", _ACT),
    "undo": CommandEntry(f"{_PACKAGE}.undo:undo_app", "Take back a change that Nightshift made.", _ACT),
    "stop": CommandEntry(f"{_PACKAGE}.stop:stop_app", "Stop every change, or let changes be made again.", _ACT),
    "breaker": CommandEntry(f"{_PACKAGE}.breaker:breaker_app", "Show, reset or open the breaker that stops all changes.", _ACT),
    "rules": CommandEntry(
        f"{_PACKAGE}.rules:rules_app", "List, show, learn, test and retire signatures, herrings and filters.", _KNOW
    ),
    "learn": CommandEntry(f"{_PACKAGE}.learn:learn_app", "Teach Nightshift from labelled logs.", _KNOW),
    "playbooks": CommandEntry(f"{_PACKAGE}.playbooks:playbooks_app", "List, show and try playbooks.", _KNOW),
    "model": CommandEntry(f"{_PACKAGE}.model:model_app", "Get, choose and test language models; train the line ranker.", _KNOW),
    "audit": CommandEntry(f"{_PACKAGE}.audit:audit_app", "Show and verify the record of every decision.", _SYSTEM),
    "config": CommandEntry(f"{_PACKAGE}.config:config_app", "Show and check the settings.", _SYSTEM),
    "notify": CommandEntry(f"{_PACKAGE}.notify:notify_app", "Send a trial message to those who are told.", _SYSTEM),
    "doctor": CommandEntry(f"{_PACKAGE}.doctor:doctor_app", "Check that everything Nightshift needs is there.", _SYSTEM),
    "demo": CommandEntry("assistant.demo.command:demo", "Watch a real training job fail and come back, on this machine.", _SYSTEM),
    "drill": CommandEntry(
        "assistant.drill.command:drill_app", "Let things go wrong on purpose and compare what comes of it.", _SYSTEM
    ),
    "bench": CommandEntry(f"{_PACKAGE}.bench:bench_app", "Measure start-up, scanning and diagnosis on this machine.", _SYSTEM),
}
"""Every command: where it is, the first line of its help, its section."""


class RootGroup(LazyGroup):
    """`nightshift` itself."""

    table = COMMANDS


root = app(cls=RootGroup, add_completion=True, epilog="\b\n" + exits.HELP)


def _version(show: bool) -> None:
    if show:
        from assistant import __version__

        print_line(f"nightshift {__version__}")
        raise typer.Exit


@root.callback(invoke_without_command=True)
def nightshift(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Read the settings from this file.")] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="Use this store instead of the configured one.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Narrate on stderr; twice for every command run.")
    ] = 0,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Diagnose failed training jobs and bring them back.

    Results go to stdout, narration to stderr. With --json a command prints one JSON object per line. Nothing asks a question
    without a terminal: what needs an approval then waits in `nightshift approvals`.
    """
    context.obj = door = Door(config=config, store_path=store, quiet=quiet, verbose=verbose)
    context.call_on_close(door.close)
    if context.invoked_subcommand is None:
        print_block(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors made on purpose become one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = typer.main.get_command(root).main(args=words, prog_name="nightshift", standalone_mode=False)
    except NightshiftError as error:
        if "_NIGHTSHIFT_COMPLETE" in os.environ:
            # a shell that completes a word must not write over the line that is being typed
            return Exit.ERROR
        return termination.complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        message = missing_extra(error)
        if not message:
            raise
        return termination.complain(message, Exit.ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return termination.interrupted()
    except termination.BAD_COMMAND_LINE as error:
        return termination.usage(error)
    if code == Exit.INTERRUPTED:
        return termination.interrupted()
    flush()
    return code if isinstance(code, int) else Exit.DONE


def run() -> NoReturn:
    """Be the `nightshift` program."""
    sys.excepthook = termination.crashed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a log line of another language must not end the program in a shell with an old locale
            stream.reconfigure(errors="backslashreplace")
    raise SystemExit(main())
