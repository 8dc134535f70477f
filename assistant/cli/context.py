"""What a command reaches the engine by: settings, store and engine, each made when first asked for, and the log on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.cli.output import narrate

if TYPE_CHECKING:
    import typer

    from assistant.config import LoadedConfig, Settings
    from assistant.engine import Engine
    from assistant.policy import PolicyInForce
    from assistant.store import Store


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

        close_state_folder(self.settings.state_folder)
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
        from assistant.cli.changes import TerminalApprover
        from assistant.wiring import build

        listen(self.verbose + narrated, quiet=self.quiet)
        expires_after_s = self.settings.approval_expires_h * 3600
        engine = build(self.settings, approver=lambda store: TerminalApprover(store, expires_after_s, yes=yes))
        self.at_end.append(engine.store.close)
        return engine

    @contextmanager
    def rehearsal(self) -> Iterator[Engine]:
        """Build an engine on a copy of the store, for dry runs: what it writes is gone afterwards."""
        from assistant.engine.rehearsal import rehearsal
        from assistant.wiring import build

        with rehearsal(build(self.settings, store=self.store)) as engine:
            yield engine

    def say(self, text: object) -> None:
        """Narrate on stderr, unless --quiet."""
        if not self.quiet:
            narrate(text)


def user() -> str:
    """Return who runs the command, for `by` of calls and approvals."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


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
