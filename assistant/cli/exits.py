"""Exit codes of every command, in this one place.

     0  done; also: nothing had to be done
     1  error: something failed, stderr says what
     2  wrong usage or bad input: an option, a file, an id, a setting
     3  refused by the policy, the kill switch or a person
     4  waits for an approval: `nightshift approvals`
    75  try again later: another process holds the store
   130  interrupted with Ctrl-C; nothing is lost: `nightshift resume`

`nightshift nodes check` and `nightshift status` answer as Nagios plugins do instead: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, and 3
also for wrong usage, because a check that could not run knows nothing.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command hands back to the shell."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    WAITS = 4
    TRY_AGAIN = 75
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """128 + SIGPIPE, as other programs in a pipeline end; said nowhere, because nobody is left to read it."""


class Nagios(IntEnum):
    """What `nodes check` and `status` hand back."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


HELP = "Exit codes:\n" + (__doc__ or "").split("\n\n", 1)[1].strip("\n")
"""The table above, for `nightshift --help` and docs/commands.md."""
