"""What every command is put together of: settings, store and engine, each made when first asked for, and groups of commands.

The root group imports a module only when its command is called, and options are shared. `nightshift --help` prints the one-line
helps that stand in the table, so it starts fast; a test holds them equal to the commands' own. Words of a command line become
values without Pydantic, which newer versions of Typer load for it (90 ms a start): only what is plainly right is taken here;
anything else, and every wrong value, goes Typer's own way and gets its messages. Versions of Typer that do not know this way are
left as they are; a test of what `nightshift incidents` imports shows when a new one goes another.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer
import typer.core
from typer.core import TyperGroup

from assistant.cli.output import (
    completions,
    narrate,
)
from assistant.errors import UsageError
from assistant.redact import head_of

if TYPE_CHECKING:
    import typer

    from assistant.config import LoadedConfig, Settings
    from assistant.engine import Engine
    from assistant.policy import PolicyInForce
    from assistant.records import Incident
    from assistant.store import Store


def incident_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of incidents for the shell to complete, with the job as help."""
    listed = invocation_of(context).store.incidents()
    return completions(((str(incident.id), f"{incident.state} {incident_subject(incident)}") for incident in listed), incomplete)


def incident_subject(incident: Incident) -> str:
    """Return what an incident is about, in words."""
    if incident.job is None:
        return incident.subject
    return f"job {incident.job}" + (f", attempt {incident.attempt}" if incident.attempt else "")


def job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of jobs for the shell to complete, with the name as help."""
    listed = invocation_of(context).engine().scheduler.jobs()
    return completions(((job.id, f"{job.name} {job.state}") for job in listed), incomplete)


@dataclass
class Invocation:
    """One run of the command line, with its global options."""

    config: Path | None = None
    """Settings file instead of the usual ones."""
    store_path: Path | None = None
    """Store instead of the configured one."""
    quiet: bool = False
    verbose: int = 0
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """What to let go of when the command has ended."""

    def close(self) -> None:
        """Let go of everything that was opened."""
        for let_go in self.at_end:
            let_go()
        self.at_end.clear()

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The settings with their origins, the options of this run on top.

        Raises:
            ConfigError: A file or variable is wrong.
        """
        from assistant.config import load

        return load(overrides={"store": self.store_path}, config=self.config)

    @property
    def settings(self) -> Settings:
        """The settings that hold for this run."""
        return self.loaded.settings

    @property
    def site(self) -> Path | None:
        """The folder with the site's own playbooks and knowledge; None where there is none."""
        return self.settings.content

    @cached_property
    def store(self) -> Store:
        """The store, opened.

        Raises:
            StoreError: It cannot be opened, is damaged, locked or newer.
        """
        # not by way of wiring: reading commands start without the engine
        from assistant.ports import SystemClock
        from assistant.private_files import close_state_folder
        from assistant.store import Store

        close_state_folder(self.settings.state_folder, self.settings.store)
        opened = Store(self.settings.store, SystemClock(), busy_timeout_s=self.settings.busy_timeout_s)
        self.at_end.append(opened.close)
        return opened

    @cached_property
    def in_force(self) -> PolicyInForce:
        """The policy of the site, read anew whenever it is looked at."""
        from assistant.policy import PolicyInForce

        # a store is not made for it: before the first one there was no policy of the site to be missed
        return PolicyInForce(self.site, record=self.store if self.settings.store.exists() else None)

    def engine(self, *, yes: bool = False, narrated: bool = False) -> Engine:
        """Build the engine, whose questions go to this terminal.

        Args:
            yes: Whether the person approves what the policy asks about.
            narrated: Whether each row of the flow is said on stderr.
        """
        from assistant.cli.questions import TerminalApprover
        from assistant.wiring import build

        listen(self.verbose + narrated, quiet=self.quiet)
        expires_after_s = self.settings.approval_expires_h * 3600
        engine = build(self.settings, approver=lambda store: TerminalApprover(store, expires_after_s, yes=yes))
        self.at_end.append(engine.store.close)
        return engine

    @contextmanager
    def rehearsal(self) -> Iterator[Engine]:
        """Build an engine on a copy of the store, for dry runs: what it writes is gone afterwards."""
        from assistant.engine.dry_runs import rehearsal
        from assistant.wiring import build

        with rehearsal(build(self.settings, store=self.store)) as engine:
            yield engine

    def say(self, text: object) -> None:
        """Narrate on stderr, unless --quiet."""
        if not self.quiet:
            narrate(text)


def invocation_of(context: typer.Context) -> Invocation:
    """Return the invocation that a command belongs to."""
    return context.find_root().ensure_object(Invocation)


_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def listen(verbosity: int, *, quiet: bool) -> None:
    """Let the engine's log speak on stderr.

    Args:
        verbosity: 0 warnings, 1 each row of the flow, 2 each command.
        quiet: Only errors, whatever the verbosity.
    """
    from assistant.display import line

    class OneLine(logging.Formatter):
        """A message is one line; the lines of a traceback follow it, indented."""

        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
            return line(super().formatMessage(record))

        def formatException(self, ei: Any) -> str:  # noqa: N802
            return "\n".join(f"    {line(text)}" for text in super().formatException(ei).split("\n"))

    logger = logging.getLogger("assistant")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if quiet else _LEVELS[min(verbosity, len(_LEVELS) - 1)])


class _Unsure(Exception):
    """The quick way cannot read the value for sure: Typer itself has to."""


class _Quick:
    """Stands where Typer expects what turns a word into a value."""

    def __init__(self, descriptor: Any, slow: Any) -> None:
        self._descriptor = descriptor
        self._slow = slow

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value, or let Typer find it or complain."""
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            return _plain(value, self._descriptor.annotation, self._descriptor.parameter_info)
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise
        except _Unsure:
            return self._slow(self._descriptor).coerce(value, param=param, ctx=ctx)


def quicken() -> None:
    """Let Typer go the quick way first, where this version of it has the place for that."""
    slow = getattr(typer.core, "build_runtime_param", None)
    if slow is not None and not isinstance(slow, _Builder):
        setattr(typer.core, "build_runtime_param", _Builder(slow))  # noqa: B010


class _Builder:
    """Stands where Typer expects the function that makes what coerces."""

    def __init__(self, slow: Any) -> None:
        self._slow = slow

    def __call__(self, descriptor: Any) -> _Quick:
        return _Quick(descriptor, self._slow)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    if get_origin(kind) is list and isinstance(value, (list, tuple)):
        return [_plain(item, get_args(kind)[0], info) for item in value]
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind is Path and isinstance(value, str) and not info.exists and not info.resolve_path:
        return Path(value)
    if kind is int and not isinstance(value, bool):
        return _number(value, info)
    if isinstance(kind, type) and issubclass(kind, Enum):
        member_value = value if isinstance(value, kind) else {str(member.value): member for member in kind}.get(value)
        if member_value is not None:
            return member_value
    raise _Unsure


def _number(value: Any, info: Any) -> int:
    if getattr(info, "parser", None) is not None:
        return int(info.parser(value))
    number = _whole_number(value, -LARGEST_NUMBER, LARGEST_NUMBER)
    if (info.min is not None and number < info.min) or (info.max is not None and number > info.max):
        raise _Unsure
    return number


def row_number(text: str | int) -> int:
    """Return the number of a row of the store, or of rows: `parser` of every argument and option that takes one.

    Raises:
        typer.BadParameter: It is none from 1 to 2^63-1 in decimal digits of ASCII, without sign, space or `_`.
    """
    return _whole_number(text, 1, LARGEST_NUMBER)


def row_number_or_0(text: str | int) -> int:
    """Return as `row_number` does, where 0 stands for a place before all rows."""
    return _whole_number(text, 0, LARGEST_NUMBER)


LARGEST_NUMBER = 2**63 - 1
"""The largest number that a row of the store can have; no option or argument takes a larger one."""
_DIGITS = re.compile(r"-?[0-9]{1,19}")


def _whole_number(text: str | int, least: int, most: int) -> int:
    if _DIGITS.fullmatch(str(text)) and least <= (number := int(text)) <= most:
        return number
    raise typer.BadParameter(f"wanted a number from {least} to {most}, in the digits 0 to 9, found {head_of(str(text), 40, '…')!r}")


quicken()


class CommandEntry(NamedTuple):
    """Where a command of the root group is found."""

    place: str
    """`module:attribute` of its Typer app."""
    help: str
    """First line of its help."""
    section: str
    """Heading under which `nightshift --help` lists it."""


def app(**settings: Any) -> typer.Typer:
    """Return a Typer app with the settings that all commands share."""
    shared = {
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
        "add_completion": False,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
    return typer.Typer(**{**shared, **settings})


def examples(*lines: str) -> str:
    """Return the epilog that shows examples as they are, one a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class LazyGroup(TyperGroup):
    """A group whose commands are in a table until one is called."""

    table: Mapping[str, CommandEntry] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None when there is none of that name."""
        entry = self.table.get(cmd_name)
        if entry is not None and cmd_name not in self.commands:
            module, _, attribute = entry.place.partition(":")
            command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with.

        Raises:
            UsageError: There is none; the message has the nearest names.
        """
        if args and not args[0].startswith("-") and args[0] not in self.table and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], self.table, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; see nightshift --help"
            raise UsageError(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the one-line helps of the table, nothing imported."""
        for section in dict.fromkeys(entry.section for entry in self.table.values()):
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in self.table.items() if entry.section == section])


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what the policy asks about; what it forbids stays forbidden.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be done, and do nothing.")]
Limit = Annotated[int, typer.Option("--limit", parser=row_number, metavar="N", help="Print at most N.")]

ChoiceValue = TypeVar("ChoiceValue")


def one_of(name: str, choices: Mapping[str, ChoiceValue], kind: str, see: str) -> ChoiceValue:
    """Return the value of a name.

    Args:
        name: As the person wrote it.
        choices: All that there is.
        kind: The word for such a thing, for the message.
        see: The command that lists them.

    Raises:
        UsageError: There is none of that name; the message has the nearest ones.
    """
    if name in choices:
        return choices[name]
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known ones: {see}"
    raise UsageError(f"there is no {kind} {name!r}; {hint}")


PROGRESS_EVERY_S = 5.0


class DownloadProgress:
    """Says every few seconds how far a download is."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation, self.next = invocation, time.monotonic() + PROGRESS_EVERY_S

    def __call__(self, loaded: int, size: int) -> None:
        """Take what has come."""
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + PROGRESS_EVERY_S
        share = f" of {size / 1e9:.2f} GB, {100 * loaded / size:.0f} %" if size else ""
        self.invocation.say(f"{loaded / 1e9:.2f} GB{share}")
