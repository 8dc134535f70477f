"""Run many commands on a node in one round trip: one constant script that frames what each printed, and the parser of frames.

All commands run side by side, each under `timeout`, so the slowest one counts and not the sum. The script never waits for a
process: one that hangs in the kernel cannot be killed, and its frame then says `running`. Every line of an output is prefixed, so
no output can look like a frame; what a login shell prints before the first frame is passed over. Outputs lie in memory for a
moment (/dev/shm) and are cut at a limit, so neither a full disk nor a program that never stops printing does harm.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from assistant.ports import Reply

COMMAND_S = 4
"""After so long a command is told to end, one second later it is killed."""
WAIT_S = 6
"""After so long the script reports what it has."""
KEPT_BYTES = 524_288
"""More of one output than this is cut off: eight GPUs in full detail print 60,000."""
KEPT_ERROR_BYTES = 2_000
STOPPED = (124, 137, None)
"""Exit statuses of what did not end by itself: `timeout` stopped it, it was killed, or it still runs."""

_FRAME = re.compile(r"^#nightshift (\d+) (\d+|running)$")
_HEAD = (
    "umask 077; LC_ALL=C LANG=C; export LC_ALL LANG; "
    "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin; export PATH; "
    'd=; for t in /dev/shm /run /tmp; do d=$(mktemp -d "$t/nightshift.XXXXXX" 2>/dev/null) && break; done; '
    '[ -d "$d" ] || exit 98; trap \'rm -rf "$d"\' EXIT; trap "exit 97" HUP INT TERM; '
    "ask() { n=$1; k=$2; shift 2; "
    '{ { { timeout -k 1 {command_s} "$@" 2>&3; echo $? >"$d/$n.rc"; } | "$k" -c {kept} >"$d/$n.out"; } 3>&1 '
    '| head -c {kept_err} >"$d/$n.err"; : >"$d/$n.end"; } </dev/null >/dev/null 2>&1 & }; '
)
_TAIL = (
    'i=0; while [ $i -lt {polls} ]; do set -- "$d"/*.end; [ $# -ge {count} ] && [ -e "$1" ] && break; '
    "sleep 0.05 || sleep 1; i=$((i+1)); done; "
    'n=0; while [ $n -lt {count} ]; do r=; [ -e "$d/$n.rc" ] && read -r r <"$d/$n.rc"; printf \'\\n#nightshift %s %s\\n\' $n '
    '"${r:-running}"; if [ -s "$d/$n.out" ]; then sed "s/^/|/" "$d/$n.out"; fi; '
    'if [ -s "$d/$n.err" ]; then echo; sed "s/^/!/" "$d/$n.err"; fi; n=$((n+1)); done; exit 0'
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A command that is to run."""

    command: tuple[str, ...]
    keeps: str = "head"
    """Which end is kept of an output that is too long: `head` or `tail`."""


def together(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """Return the one command that runs all of them."""
    head = (
        _HEAD.replace("{command_s}", str(COMMAND_S)).replace("{kept}", str(KEPT_BYTES)).replace("{kept_err}", str(KEPT_ERROR_BYTES))
    )
    asks = "".join(f"ask {number} {one.keeps} {shlex.join(one.command)}; " for number, one in enumerate(wanted))
    tail = _TAIL.replace("{polls}", str(WAIT_S * 20)).replace("{count}", str(len(wanted)))
    return ("sh", "-c", head + asks + tail)


def frames(reply: Reply, count: int) -> list[Reply] | None:
    """Return what each command answered, in their order; None when the reply is not that of the script.

    A command that still ran has no status; one whose frame is missing was not reached.
    """
    found: dict[int, tuple[int | None, list[str], list[str]]] = {}
    out: list[str] = []
    err: list[str] = []
    for line in reply.out.split("\n"):
        frame = _FRAME.match(line.rstrip("\r"))
        if frame:
            out, err = [], []
            status = None if frame[2] == "running" else int(frame[2])
            found[int(frame[1])] = (status, out, err)
        elif found and line.startswith("|"):
            out.append(line[1:])
        elif found and line.startswith("!"):
            err.append(line[1:])
    if not found:
        return None
    missing = Reply(reply.node, False, None, "", "the answer was cut off before this command's")
    return [
        Reply(reply.node, True, found[n][0], _text(found[n][1]), _text(found[n][2])) if n in found else missing
        for n in range(count)
    ]


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
