"""Everything that Nightshift raises on purpose, and the exit code of each.

    NightshiftError                1
    ├── UsageError                 2   the person asked for something that cannot be
    │   ├── ConfigError            2   a settings file or variable is wrong
    │   ├── ContentError           2   a playbook, reason, filter or fault file is wrong
    │   └── InputError             2   a path to read is missing, unreadable, empty or no log
    │       ├── UnreadableFile     2   a path is no regular file or too large; an OSError, too
    │       ├── OwnerDenied        2   the owner of a job may not read the file; a PermissionError, too
    │       └── MalformedContent   2   the content of a file is not in its format; a ValueError, too
    ├── Denied                     3   the policy or a person refused the call
    │   └── ChangesStopped         3   kill switch, or no whole policy: the call and its approval stay, and go on afterwards
    ├── Parked                     4   the call waits for an approval
    ├── StoreError                 1   the store cannot be opened, read or written
    │   ├── StoreBusy             75   another process holds it: try again later
    │   ├── StoreTooNew            1   written by a newer Nightshift
    │   └── Fenced                75   another watch leads now: this one may write nothing more
    ├── Unavailable                1   the scheduler, a node or a service did not answer: unknown, not bad, not gone
    │   └── RestartPending         1   a held restart of the same run is neither released nor withdrawn yet
    ├── ModelError                 1   a language model could not do it: its room, its grammar or its file does not allow it
    └── ToolError                  1   a tool could not do it, for a reason its caller can act on
        ├── CommandRefused         1   the gate did not let a command through, behind a first one or for being another one
        └── PartlyMade             1   a change was broken off; what was made of it stands, and can be taken back

Every message says what was wanted, what was found and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping


class NightshiftError(Exception):
    """Root of the tree."""

    exit_code = 1


class UsageError(NightshiftError):
    """The person asked for something that cannot be."""

    exit_code = 2


class ConfigError(UsageError):
    """A settings file, key or environment variable is wrong."""


class ContentError(UsageError):
    """A file of playbooks/ or knowledge/ is wrong; the message names file, line and key."""


class InputError(UsageError):
    """A path to read is missing, unreadable, empty, binary or cut short."""


class UnreadableFile(InputError, OSError):
    """A path that users write names a pipe, a device, a socket or a folder, or holds more than its kind may."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.strerror = message


class OwnerDenied(InputError, PermissionError):
    """A file that may be read with our rights and not with those of the job's owner."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.strerror = message


class MalformedContent(InputError, ValueError):
    """The content of a file is not in the format that its name promises, or nests or counts beyond all use."""


class Denied(NightshiftError):
    """The policy, the kill switch or a person refused the call."""

    exit_code = 3


class ChangesStopped(Denied):
    """No change is made for now: a kill switch is set or the policy is not whole; the call goes on once that is over."""


class Parked(NightshiftError):
    """The call was written down and waits for an approval; `approval` is its id."""

    exit_code = 4

    def __init__(self, message: str, approval: int) -> None:
        super().__init__(message)
        self.approval = approval


class StoreError(NightshiftError):
    """The store cannot be opened, read or written."""


class StoreBusy(StoreError):
    """Another process held the store for longer than the busy timeout."""

    exit_code = 75  # EX_TEMPFAIL: cron tries again


class StoreChanged(StoreError):
    """The store was written between what a person was shown and the answer; nothing was done."""

    exit_code = 75


class TargetBusy(StoreBusy):
    """Another change of the same node, job or run has begun and is not decided yet; an approval of this one is kept."""


class StoreTooNew(StoreError):
    """The store was written by a newer Nightshift; nothing was touched."""


class Fenced(StoreError):
    """This process led and no longer does: another took over while it slept, so it may write nothing more."""

    exit_code = 75


class Unavailable(NightshiftError):
    """A scheduler, node or service did not answer in time: the state is unknown, neither bad nor gone."""


class RestartPending(Unavailable):
    """A restart of the same run by another call waits held: nobody knows yet what becomes of it, so this one is tried later."""


class ModelError(NightshiftError):
    """A language model could not do what was asked: too long for it, a grammar it must not get, no template."""


class ToolError(NightshiftError):
    """A tool could not do what was asked, for a reason its caller can act on."""


class CommandRefused(ToolError):
    """The gate did not let a command through: it is allowed no more, or is another one than was allowed; none may follow it."""


class PartlyMade(ToolError):
    """A change was broken off between two of its steps, and what was made of it stands."""

    def __init__(self, message: str, value: Mapping[str, object]) -> None:
        """Say what stands.

        Args:
            message: For people, with the steps that were made.
            value: What the tool would return had these steps been all: an undo takes its arguments from it.
        """
        super().__init__(message)
        self.value = value
