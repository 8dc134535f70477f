"""The root of `nightshift`: the table of commands, the global options, and what becomes of errors.

An error that is made on purpose is one line on stderr and an exit code; a bug leaves its traceback in a file only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NoReturn

import typer

from assistant.cli.context import CommandEntry, Invocation, LazyGroup, app
from assistant.cli.output import HELP, Exit, Nagios, flush, narrate, narrate_block, print_block, print_line
from assistant.display import block, shell_words
from assistant.errors import NightshiftError

_PACKAGE = "assistant.cli"
_LOOK, _ACT, _KNOW, _SYSTEM = "Look", "Act", "What Nightshift knows", "Nightshift itself"

COMMANDS = {
    "chat": CommandEntry(
        f"{_PACKAGE}.ask:chat_app", "Talk with Nightshift beside live incidents, approvals, jobs and nodes.", _LOOK
    ),
    "ask": CommandEntry(f"{_PACKAGE}.ask:ask_app", "Ask about jobs, nodes and incidents in plain words.", _LOOK),
    "explain": CommandEntry(f"{_PACKAGE}.ask:explain_app", "Write the report of an incident.", _LOOK),
    "diagnose": CommandEntry(f"{_PACKAGE}.diagnose:diagnose_app", "Find out why a run failed, from its log or folder.", _LOOK),
    "jobs": CommandEntry(f"{_PACKAGE}.jobs:jobs_app", "List the jobs that the scheduler knows.", _LOOK),
    "job": CommandEntry(f"{_PACKAGE}.jobs:job_app", "Show or check one job.", _LOOK),
    "incidents": CommandEntry(f"{_PACKAGE}.incidents:incidents_app", "List incidents, newest first.", _LOOK),
    "incident": CommandEntry(f"{_PACKAGE}.incidents:incident_app", "Show, report, correct or close one incident.", _LOOK),
    "logs": CommandEntry(f"{_PACKAGE}.diagnose:logs_app", "Read, compress or search a log.", _LOOK),
    "checkpoints": CommandEntry(
        f"{_PACKAGE}.checkpoints:checkpoints_app", "List and verify checkpoints, and say how often to save.", _LOOK
    ),
    "nodes": CommandEntry(f"{_PACKAGE}.nodes:nodes_app", "List, check, cordon and uncordon nodes.", _LOOK),
    "status": CommandEntry(f"{_PACKAGE}.watch:status_app", "Show whether a watch is alive and what waits.", _LOOK),
    "backtest": CommandEntry(
        f"{_PACKAGE}.measure.backtest:backtest_app", "Replay history and report what Nightshift would have done.", _LOOK
    ),
    "report": CommandEntry(
        f"{_PACKAGE}.report:report_app", "Report where the GPU hours went, from accounting and incidents.", _LOOK
    ),
    "memory": CommandEntry(f"{_PACKAGE}.memory:memory_app", "Plan how a run fits into the memory of its GPUs.", _LOOK),
    "evaluate": CommandEntry(
        f"{_PACKAGE}.measure.evaluate:evaluate_app", "Evaluate a checkpoint on many datasets, each node loading it once.", _ACT
    ),
    "recover": CommandEntry(f"{_PACKAGE}.watch:recover_app", "Bring a failed job back by its playbook.", _ACT),
    "resume": CommandEntry(f"{_PACKAGE}.changes:resume_app", "Go on with every unfinished incident.", _ACT),
    "watch": CommandEntry(f"{_PACKAGE}.watch:watch_app", "Watch the cluster for failed, hanging and diverging jobs.", _ACT),
    "approvals": CommandEntry(
        f"{_PACKAGE}.changes:approvals_app", "List what waits for an approval, or was allowed and not made yet.", _ACT
    ),
    "approve": CommandEntry(f"{_PACKAGE}.changes:approve_app", "Allow a call that waits.", _ACT),
    "deny": CommandEntry(f"{_PACKAGE}.changes:deny_app", "Refuse a call that waits.", _ACT),
    "undo": CommandEntry(f"{_PACKAGE}.changes:undo_app", "Take back a change that Nightshift made.", _ACT),
    "stop": CommandEntry(f"{_PACKAGE}.changes:stop_app", "Stop every change, or let changes be made again.", _ACT),
    "breaker": CommandEntry(f"{_PACKAGE}.changes:breaker_app", "Show, reset or open the breaker that stops all changes.", _ACT),
    "rules": CommandEntry(
        f"{_PACKAGE}.rules:rules_app", "List, show, learn, test and retire signatures, herrings and filters.", _KNOW
    ),
    "learn": CommandEntry(f"{_PACKAGE}.diagnose:learn_app", "Teach Nightshift from labelled logs.", _KNOW),
    "playbooks": CommandEntry(f"{_PACKAGE}.playbooks:playbooks_app", "List, show and try playbooks.", _KNOW),
    "model": CommandEntry(f"{_PACKAGE}.model:model_app", "Get, choose and test language models; train the line ranker.", _KNOW),
    "audit": CommandEntry(f"{_PACKAGE}.audit:audit_app", "Show and verify the record of every decision.", _SYSTEM),
    "config": CommandEntry(f"{_PACKAGE}.config:config_app", "Show and check the settings.", _SYSTEM),
    "notify": CommandEntry(f"{_PACKAGE}.watch:notify_app", "Send a trial message to those who are told.", _SYSTEM),
    "doctor": CommandEntry(f"{_PACKAGE}.doctor:doctor_app", "Check that everything Nightshift needs is there.", _SYSTEM),
    "demo": CommandEntry("assistant.demo.command:demo", "Watch a real training job fail and come back, on this machine.", _SYSTEM),
    "drill": CommandEntry(
        "assistant.demo.command:drill_app", "Let things go wrong on purpose and compare what comes of it.", _SYSTEM
    ),
    "bench": CommandEntry(
        f"{_PACKAGE}.measure.bench:bench_app", "Measure start-up, scanning and diagnosis on this machine.", _SYSTEM
    ),
}
"""Every command: where it is, the first line of its help, its section."""


class RootGroup(LazyGroup):
    """`nightshift` itself."""

    table = COMMANDS


root = app(cls=RootGroup, add_completion=True, epilog="\b\n" + HELP)


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
    context.obj = invocation = Invocation(config=config, store_path=store, quiet=quiet, verbose=verbose)
    context.call_on_close(invocation.close)
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
        return complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        message = missing_extra(error)
        if not message:
            raise
        return complain(message, Exit.ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except BAD_COMMAND_LINE as error:
        return usage(error)
    if code == Exit.INTERRUPTED:
        return interrupted()
    flush()
    return code if isinstance(code, int) else Exit.DONE


def run() -> NoReturn:
    """Be the `nightshift` program."""
    sys.excepthook = crashed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a log line of another language must not end the program in a shell with an old locale
            stream.reconfigure(errors="backslashreplace")
    raise SystemExit(main())


BAD_COMMAND_LINE: type[Exception] = typer.BadParameter.__mro__[2]
"""What the parser raises; Typer keeps the class in different places from version to version."""

_PLUGINS = {"nightshift nodes check": "NIGHTSHIFT NODES", "nightshift status": "NIGHTSHIFT STATUS"}
_GLOBAL = ("--config", "--store", "--quiet", "-q", "--verbose", "-v")


def complain(message: str, code: int) -> int:
    """Say what went wrong, in one line, and return the exit code."""
    narrate(f"nightshift: error: {message}")
    return code


def interrupted() -> int:
    """Say after Ctrl-C that all is kept."""
    narrate("nightshift: interrupted; nothing is lost: nightshift resume")
    return Exit.INTERRUPTED


def usage(error: Any) -> int:
    """Say what is wrong with the command line and where its help is.

    Returns:
        2; 3 (unknown) for `nodes check` and `status`, whose caller is a Nagios.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "nightshift"
    if type(error).__name__ == "NoArgsIsHelpError":
        narrate_block(error.format_message())
        return Exit.USAGE
    message = error.format_message().rstrip(".")
    if getattr(error, "option_name", None) in _GLOBAL:
        message = f"{error.option_name} stands before the command: nightshift {error.option_name} ..."
    code = complain(f"{message} (see {path} --help)", Exit.USAGE)
    if path in _PLUGINS:
        print_line(f"{_PLUGINS[path]} UNKNOWN - {message}")
        return Nagios.UNKNOWN
    return code


def crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Keep the traceback of a bug in a file and say where; the interpreter then exits with 1."""
    import traceback

    from assistant.redact import redact

    text = redact("".join(traceback.format_exception(kind, error, trace)))
    narrate(f"nightshift: bug: {kind.__name__}: {error}")
    place = _keep(text)
    narrate(f"the traceback is in {place}; please report it") if place else narrate_block(text)
    narrate("what was begun is kept: nightshift resume")


def _keep(text: str) -> Path | None:
    import os
    import tempfile

    from assistant.cli.output import now
    from assistant.errors import ConfigError
    from assistant.private_files import append_private, private_folder
    from assistant.redact import redact

    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    for folder in (home / "nightshift", Path(tempfile.gettempdir()) / f"nightshift-{os.getuid()}"):
        try:
            private_folder(folder)
            with append_private(folder / "crashes.log", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"--- {now().isoformat()} nightshift {redact(shell_words(sys.argv[1:]))}\n{block(text)}\n")
        except (OSError, ConfigError):
            continue
        return folder / "crashes.log"
    return None


DISTRIBUTION = "nightshift-ops"
"""The name in pyproject.toml."""
EXTRAS = {
    "agent": ("langchain", "langchain_core", "langgraph", "httpx"),
    "gguf": ("llama_cpp",),
    "chat": ("textual", "textual_plot", "textual_hires_canvas"),
    "notify": ("apprise", "prometheus_client"),
    "report": ("duckdb",),
}
"""The packages that are imported from each extra in pyproject.toml."""


def missing_extra(error: ModuleNotFoundError) -> str:
    """Return what to type where a package of an extra is missing; empty where the package is of none."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"this needs the package {package}, which is not installed: {install_command(extra)}" if extra else ""


def install_command(extra: str) -> str:
    """Return the command that adds an extra to the Python that runs this program.

    It names the packages of the extra, as the metadata of the installation has them, and not the extra: that works for an
    installation from an index, a checkout or a wheel, also after the wheel was deleted.
    """
    import importlib.util

    # an environment without pip was made by uv, which installs from outside of it
    has_pip = importlib.util.find_spec("pip") is not None
    words = [sys.executable, "-m", "pip", "install"] if has_pip else ["uv", "pip", "install", "--python", sys.executable]
    checkout = Path(__file__).resolve().parents[2]
    return shell_words([*words, *(extra_requirements(extra) or [f"{checkout}[{extra}]"])])


def extra_requirements(extra: str) -> list[str]:
    """Return the requirements of an extra and of those that it includes; none where Nightshift runs without an installation."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    requirements: list[str] = []
    for requirement, _, marker in (line.partition(";") for line in lines):
        if f'extra == "{extra}"' in marker.replace("'", '"'):
            name, _, inner = requirement.strip().rstrip("]").partition("[")
            included = inner.split(",") if name == DISTRIBUTION else ()
            requirements += [entry for word in included for entry in extra_requirements(word)] or [requirement.strip()]
    return requirements
