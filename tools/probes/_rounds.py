"""Run many commands on a node in one round trip: one constant script that frames what each printed, and the parser of frames.

All commands run side by side, each under `timeout`, so the slowest one counts and not the sum. The script never waits for a
process: one that hangs in the kernel cannot be killed, and has no exit status then. Every line of an output comes back with the
name of its file before it, so no output can look like another's; what a login shell prints before the beginning is passed over.
Outputs lie in memory for a moment (/dev/shm) and are cut at a limit, so neither a full disk nor a program that never stops
printing does harm.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assistant.ports import Reply

KEPT_BYTES = 524_288
"""More of one output than this is cut off: eight GPUs in full detail print 60,000."""
KEPT_ERROR_CHARACTERS = 2_000
KEPT_ERROR_LINES = 40
ENDLESS = (141, 153)
"""Exit statuses of what printed beyond the limit: SIGPIPE and SIGXFSZ."""
STOPPED = (124, 137, None)
"""Exit statuses of what did not end by itself: `timeout` stopped it, it was killed, or it still runs."""

_BEGIN = "#nightshift round"
_LINE = re.compile(r"(\d+)\.(out|err|rc):(.*)", re.DOTALL)
_HEAD = (
    "umask 077; LC_ALL=C LANG=C; export LC_ALL LANG; "
    "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin; export PATH; "
    'd=; for t in /dev/shm /run /tmp; do d=$(mktemp -d "$t/nightshift.XXXXXX" 2>/dev/null) && break; done; '
    '[ -d "$d" ] && cd "$d" || exit 98; trap \'cd /; rm -rf "$d"\' EXIT; trap "exit 97" HUP INT TERM; ulimit -f {blocks}; '
    "exec </dev/null; "
    'head() { n=$1; shift; { (cd {home}; exec timeout -k 1 {command_s} "$@") >"$d/$n.out" 2>"$d/$n.err"; '
    'echo $? >"$d/$n.rc"; : >"$d/$n.end"; } >/dev/null 2>&1 & }; '
    'tail() { n=$1; shift; { { (cd {home}; exec timeout -k 1 {command_s} "$@") 2>"$d/$n.err"; echo $? >"$d/$n.rc"; } '
    '| command tail -c {kept} >"$d/$n.out"; : >"$d/$n.end"; } >/dev/null 2>&1 & }; '
)
_TAIL = (
    'sleep 0.5 || sleep 1; i=0; while [ $i -lt {polls} ]; do set -- *.end; [ $# -ge {count} ] && [ -e "$1" ] && break; '
    'sleep 0.1 || sleep 1; i=$((i+1)); done; echo; echo "{begin}"; grep -a "" /dev/null *.rc *.out; '
    'grep -a -m {err_lines} "" /dev/null *.err; exit 0'
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A command that is to run."""

    command: tuple[str, ...]
    keeps: str = "head"
    """Which end is kept of an output that is too long: `head` or `tail`."""


def together(wanted: Sequence[Wanted], command_s: int = 4) -> tuple[str, ...]:
    """Return the one command that runs all of them, in the folder in which it is started itself.

    Args:
        wanted: What is to run.
        command_s: After so long a command is told to end, a second later it is killed; after another the script reports.
    """
    values = {
        "{command_s}": command_s,
        "{blocks}": KEPT_BYTES // 512,
        "{kept}": KEPT_BYTES,
        "{polls}": (command_s + 2) * 10,
        "{count}": len(wanted),
        "{err_lines}": KEPT_ERROR_LINES,
        "{begin}": _BEGIN,
        "{home}": '"$w"',
    }
    asks = "".join(f"{one.keeps} {number} {shlex.join(one.command)}; " for number, one in enumerate(wanted))
    head, tail = _HEAD, _TAIL
    for name, value in values.items():
        head, tail = head.replace(name, str(value)), tail.replace(name, str(value))
    return ("sh", "-c", "w=$(pwd); " + head + asks + tail)


def frames(reply: Reply, count: int) -> list[Reply] | None:
    """Return what each command answered, in their order; None when the reply is not that of the script.

    A command that still ran has no status; one of which nothing came back was not reached.
    """
    _, begin, rest = f"\n{reply.out}".partition(f"\n{_BEGIN}\n")
    if not begin:
        return None
    found: dict[tuple[int, str], list[str]] = {}
    for line in rest.split("\n"):
        match = _LINE.match(line)
        if match:
            found.setdefault((int(match[1]), match[2]), []).append(match[3])
    return [_answer(reply.node, found, number) for number in range(count)]


def _answer(node: str, found: Mapping[tuple[int, str], list[str]], number: int) -> Reply:
    status = "".join(found.get((number, "rc"), [])).strip()
    out, err = (_text(found.get((number, kind), [])) for kind in ("out", "err"))
    return Reply(node, True, int(status) if status.isdigit() else None, out, err[:KEPT_ERROR_CHARACTERS])


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
