"""Every setting of Nightshift. The line below a field is its manual: `nightshift config show` prints it.

All have defaults that work on one machine. Whole folders of content (playbooks, reasons, filters, the policy) are no settings:
they lie in `content`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["SCHEDULERS", "TRANSPORTS", "Settings", "WatchSettings"]

SCHEDULERS = ("local", "simulated")
TRANSPORTS = ("local", "recorded")


@dataclass(frozen=True)
class WatchSettings:
    """When the watch speaks up."""

    poll_s: float = 30.0
    """Seconds between two looks at the queue and the logs."""
    hang_after_s: float = 1800.0
    """Seconds without a new line in a job's log after which it counts as hanging, while its rhythm is not known yet."""
    hang_factor: float = 5.0
    """Once the rhythm is known: how many times the longest silence that the job came back from."""
    spike_patience_steps: int = 50
    """Logged steps for which a raised loss may still come back by itself; after that it is a loss spike."""

    def __post_init__(self) -> None:
        _above("watch.poll_s", self.poll_s, 0)
        _above("watch.hang_after_s", self.hang_after_s, 0)
        _above("watch.hang_factor", self.hang_factor, 1)
        _above("watch.spike_patience_steps", self.spike_patience_steps, 0)


@dataclass(frozen=True)
class Settings:
    """How Nightshift runs here."""

    scheduler: str = "local"
    """Where jobs run: local (processes on this machine) or simulated (a cluster in memory)."""
    transport: str = "local"
    """How commands get to nodes: local, or recorded (answers from a file)."""
    state_folder: Path = Path()
    """Folder of everything that Nightshift keeps; default $XDG_STATE_HOME/nightshift."""
    store: Path = Path()
    """The store, one SQLite file on a local disk; default nightshift.db in the state folder."""
    content: Path | None = None
    """Folder with the site's own playbooks/ and knowledge/; a file there replaces the shipped one of the same name."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"kernel_log": ("dmesg", "--time-format", "iso")})
    """Programs that the site's nodes have for a purpose, as lists of words; `kernel_log` prints the kernel's messages."""
    command_timeout_s: float = 20.0
    """Seconds that a command on a node may take before the node counts as not reached."""
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    """Checkpoint folder by glob of the job's name, where neither the job's script nor its log says it: `"llm-*" = "/ckpt/llm"`."""
    approval_expires_h: float = 24.0
    """Hours after which a question that nobody answered is refused."""
    lease_s: float = 300.0
    """Seconds for which a process holds an incident without renewing; then another one may go on with it."""
    busy_timeout_s: float = 5.0
    """Seconds to wait while another process writes to the store."""
    watch: WatchSettings = field(default_factory=WatchSettings)
    """When the watch speaks up."""

    def __post_init__(self) -> None:
        _one_of("scheduler", self.scheduler, SCHEDULERS)
        _one_of("transport", self.transport, TRANSPORTS)
        _above("command_timeout_s", self.command_timeout_s, 0)
        _above("approval_expires_h", self.approval_expires_h, 0)
        _above("lease_s", self.lease_s, 0)
        _above("busy_timeout_s", self.busy_timeout_s, 0)
        for name, words in self.commands.items():
            if not words:
                raise ValueError(f"commands.{name}: must hold the program and its arguments, found an empty list")

    def checkpoint_folder(self, job_name: str) -> Path | None:
        """Return the checkpoint folder of the first glob that a job's name matches, None when none does."""
        from fnmatch import fnmatchcase

        return next((folder for pattern, folder in self.checkpoints.items() if fnmatchcase(job_name, pattern)), None)


def _above(key: str, value: float, limit: float) -> None:
    # turned round, so that NaN is refused too
    if not value > limit:
        raise ValueError(f"{key}: must be above {limit:g}, not {value:g}")


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    import difflib

    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{key}: {value!r} is unknown;{hint} known: {', '.join(known)}")
