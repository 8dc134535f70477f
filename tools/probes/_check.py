"""Run every probe on nodes in two round trips: does it answer, and then all commands at once; each answer to its own parser.

One constant script runs all commands on a node side by side, each under `timeout`, so the slowest one counts and not the sum. It
never waits for a process: one that hangs in the kernel cannot be killed, and has no exit status then. Every line of an output
comes back with the name of its file before it, so no output can look like another's; what a login shell prints before the
beginning is passed over. Outputs lie in memory for a moment (/dev/shm) and are cut at a limit, so neither a full disk nor
a program that never stops printing does harm.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, guilty, ok, unknown, worst
from assistant.tooling import Context, Probe
from assistant.tools.probes import probes
from assistant.tools.probes._counters import NodeCounters
from assistant.tools.probes.hardware import PCI_COMMAND, hardware_kinds
from assistant.tools.probes.system import UPTIME_COMMAND, boot_time

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
class RoundCommand:
    """A command that is to run."""

    command: tuple[str, ...]
    keeps: str = "head"
    """Which end is kept of an output that is too long: `head` or `tail`."""


def together(wanted: Sequence[RoundCommand], command_s: int = 4) -> tuple[str, ...]:
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
    return [_framed_reply(reply.node, found, number) for number in range(count)]


def _framed_reply(node: str, found: Mapping[tuple[int, str], list[str]], number: int) -> Reply:
    status = "".join(found.get((number, "rc"), [])).strip()
    out, err = (_joined_lines(found.get((number, kind), [])) for kind in ("out", "err"))
    return Reply(node, True, int(status) if status.isdigit() else None, out, err[:KEPT_ERROR_CHARACTERS])


def _joined_lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


NO_PROGRAM = (126, 127)
COMMAND_S = range(2, 9)
"""Least and most that one command may take: under half of what a node may take, so that Slurm's prolog need not wait for long."""
FACTS = {"hardware": RoundCommand(PCI_COMMAND), "uptime": RoundCommand(UPTIME_COMMAND)}
"""What the parsers want to know beforehand."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What the probes said about one node."""

    findings: list[tuple[Probe, Finding]] = field(default_factory=list)

    @property
    def status(self) -> Health:
        """The worst of them."""
        return worst(finding.status for _, finding in self.findings)

    @property
    def events(self) -> set[str]:
        """Identities of the log lines that were counted."""
        return {event for _, finding in self.findings for event in finding.events}

    @property
    def in_the_way(self) -> list[str]:
        """What keeps a node from going back into service: what is critical, and what should have been answered and was not."""
        bad = (Health.CRITICAL, Health.UNKNOWN)
        return [
            f"{probe.name}: {finding.text}" for probe, finding in self.findings if finding.status in bad and not finding.missing
        ]

    @property
    def faulty(self) -> bool:
        """Whether what was found suffices to take the node out of service."""
        witnesses: dict[str, list[Finding]] = {}
        for probe, finding in self.findings:
            witnesses.setdefault(probe.witness, []).append(finding)
        return guilty(witnesses)


def check(context: Context, nodes: Sequence[str], known: Circumstances, busy: Mapping[str, bool]) -> dict[str, Checked]:
    """Run all probes on nodes.

    Args:
        context: The way to the nodes; its `commands` replace those of probes by the name of the probe or of its reading.
        nodes: Their names.
        known: What holds for all of them.
        busy: Whether a job runs on a node, where that is known.
    """
    first, *others = probes()
    answers = context.transport.run(nodes, first.command, timeout_s=context.command_timeout_s)
    there = [node for node in nodes if answers[node].reached and not answers[node].status]
    asked = context.clock.now()
    said = _ask(context, there, others)
    circumstances = replace(known, asked=asked, now=context.clock.now())
    memory = NodeCounters(context, there)
    found: dict[str, Checked] = {}
    for node in nodes:
        if node in said:
            own = replace(circumstances, busy=busy.get(node, known.busy))
            own = memory.told(node, _booted(said[node], own))
            found[node] = Checked([(first, ok("it answers")), *_judge(others, said[node], own, context, memory.of(node))])
        else:
            found[node] = Checked(
                [(first, unknown(_why_not(answers[node], first) or "it did not answer", "look at it from its console"))]
            )
    memory.keep()
    return found


def _booted(said: Mapping[Command, Reply], circumstances: Circumstances) -> Circumstances:
    uptime = said[FACTS["uptime"].command]
    readable = uptime.reached and uptime.status == 0
    return replace(circumstances, booted=boot_time(uptime, circumstances.now)) if readable else circumstances


def _command(probe: Probe, context: Context) -> RoundCommand:
    own = context.commands.get(probe.name) or context.commands.get(probe.reading)
    return RoundCommand(tuple(own) if own else probe.command, probe.keeps)


def _ask(context: Context, nodes: list[str], others: Sequence[Probe]) -> dict[str, dict[Command, Reply]]:
    """Return what each node answered to each command."""
    if not nodes:
        return {}
    wanted = list(dict.fromkeys([*FACTS.values(), *(_command(probe, context) for probe in others)]))
    command_s = min(max(int(context.command_timeout_s / 2), COMMAND_S[0]), COMMAND_S[-1])
    timeout_s = max(context.command_timeout_s, command_s + 4.0)
    replies = context.transport.run(nodes, together(wanted, command_s), timeout_s=timeout_s)
    said: dict[str, dict[Command, Reply]] = {}
    one_by_one: list[str] = []
    for node, reply in replies.items():
        framed = frames(reply, len(wanted))
        if framed is not None:
            said[node] = {one.command: answer for one, answer in zip(wanted, framed, strict=True)}
        elif reply.reached:
            # no shell that can do it, or a transport that only knows single commands
            one_by_one.append(node)
        else:
            said[node] = {one.command: reply for one in wanted}
    for one in wanted if one_by_one else ():
        for node, reply in context.transport.run(one_by_one, one.command, timeout_s=command_s).items():
            said.setdefault(node, {})[one.command] = reply
    return said


def _judge(
    others: Sequence[Probe], said: Mapping[Command, Reply], circumstances: Circumstances, context: Context, counts: dict[str, int]
) -> Iterator[tuple[Probe, Finding]]:
    hardware = said[FACTS["hardware"].command]
    kinds = hardware_kinds(hardware) if hardware.reached and hardware.status == 0 else None
    for probe in others:
        reply = said[_command(probe, context).command]
        if probe.counts is not None and reply.reached and reply.status == 0:
            counts |= probe.counts(reply, circumstances)
        for finding in judged_by(probe, reply, circumstances, kinds):
            yield probe, finding


def judged_by(probe: Probe, reply: Reply, circumstances: Circumstances, kinds: frozenset[str] | None = None) -> Sequence[Finding]:
    """Return what a probe says to a reply.

    Args:
        probe: The probe.
        reply: What its command answered.
        circumstances: What is known besides.
        kinds: The kinds of hardware that the node has; None when that is unknown.
    """
    missing = reply.reached and reply.status in NO_PROGRAM
    if missing and probe.hardware and kinds is not None and probe.hardware not in kinds:
        return [ok(f"does not apply: no {probe.hardware} hardware here")]
    why = _why_not(reply, probe)
    cut = len(reply.out) >= KEPT_BYTES and probe.keeps == "head"
    if missing or not reply.reached or cut or (why and not probe.reads_failures):
        remedy = f"install {probe.package}" if missing and probe.package else ""
        return [unknown(why, remedy, missing=missing)]
    return probe.parse(reply, circumstances)


def _why_not(reply: Reply, probe: Probe) -> str:
    """Return why a reply says nothing about the node; empty when it does."""
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status in NO_PROGRAM:
        return f"{probe.needs} is not there" + (f"; install {probe.package}" if probe.package else "")
    if reply.status in ENDLESS or (len(reply.out) >= KEPT_BYTES and probe.keeps == "head"):
        return f"{probe.needs} printed more than {KEPT_BYTES // 1024} KiB and was stopped"
    if reply.status in STOPPED:
        return f"{probe.needs} did not end in time and was stopped"
    said = (reply.err or reply.out).strip()[:200]
    return f"{probe.needs} ended with status {reply.status}: {said}" if reply.status else ""


def checked_values(checked: Checked) -> dict[str, Any]:
    """Return what was found as JSON values, what is empty left out."""
    rows = []
    for probe, finding in checked.findings:
        row: dict[str, Any] = {"probe": probe.name, "status": finding.status.value, "text": finding.text}
        row |= {key: value for key in ("value", "limit") if (value := getattr(finding, key)) is not None}
        if finding.status is not Health.OK:
            row |= {"remedy": finding.remedy, "source": finding.source or probe.source, "weight": finding.weight.value}
        if finding.unit:
            row["unit"] = finding.unit
        rows.append(row)
    return {"status": checked.status.value, "faulty": checked.faulty, "probes": rows}


def parsed_time(text: str, what: str) -> datetime | None:
    """Return a time that was given as text; None for an empty one.

    Raises:
        ValueError: It is no RFC 3339 time; the message says so.
    """
    from datetime import UTC

    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{what} must be a time such as 2026-03-01T12:00:00Z, not {text!r}") from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
