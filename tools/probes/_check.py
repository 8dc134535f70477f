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
from datetime import UTC, datetime
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
    """A command of the round, and how much of its output is wanted."""

    command: tuple[str, ...]
    keeps: str = "head"
    """Which end is kept of an output that is too long: `head` or `tail`."""


def round_command(commands: Sequence[RoundCommand], command_s: int = 4) -> tuple[str, ...]:
    """Return the one command that runs all of them, in the folder in which it is started itself.

    Args:
        commands: The commands; they run side by side.
        command_s: After so long a command is told to end, a second later it is killed; after another the script reports.
    """
    values = {
        "{command_s}": command_s,
        "{blocks}": KEPT_BYTES // 512,
        "{kept}": KEPT_BYTES,
        "{polls}": (command_s + 2) * 10,
        "{count}": len(commands),
        "{err_lines}": KEPT_ERROR_LINES,
        "{begin}": _BEGIN,
        "{home}": '"$w"',
    }
    asks = "".join(f"{command.keeps} {number} {shlex.join(command.command)}; " for number, command in enumerate(commands))
    head, tail = _HEAD, _TAIL
    for name, value in values.items():
        head, tail = head.replace(name, str(value)), tail.replace(name, str(value))
    return ("sh", "-c", "w=$(pwd); " + head + asks + tail)


def framed_replies(reply: Reply, count: int) -> list[Reply] | None:
    """Return what each command answered, in their order; None when the reply is not that of the script.

    A command that still ran has no status; one of which nothing came back was not reached.
    """
    _, begin, framed = f"\n{reply.out}".partition(f"\n{_BEGIN}\n")
    if not begin:
        return None
    outputs: dict[tuple[int, str], list[str]] = {}
    for line in framed.split("\n"):
        match = _LINE.match(line)
        if match:
            outputs.setdefault((int(match[1]), match[2]), []).append(match[3])
    return [_framed_reply(reply.node, outputs, number) for number in range(count)]


def _framed_reply(node: str, outputs: Mapping[tuple[int, str], list[str]], number: int) -> Reply:
    status = "".join(outputs.get((number, "rc"), [])).strip()
    out, err = (_joined_lines(outputs.get((number, kind), [])) for kind in ("out", "err"))
    return Reply(node, True, int(status) if status.isdigit() else None, out, err[:KEPT_ERROR_CHARACTERS])


def _joined_lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


NO_PROGRAM = (126, 127)
COMMAND_S = range(2, 9)
"""Least and most that one command may take: under half of what a node may take, so that Slurm's prolog need not wait for long."""
FACTS = {"hardware": RoundCommand(PCI_COMMAND), "uptime": RoundCommand(UPTIME_COMMAND)}
"""Commands whose answers the parsers of other probes need."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """What the probes say of one node."""

    findings: list[tuple[Probe, Finding]] = field(default_factory=list)

    @property
    def status(self) -> Health:
        """Status of the worst finding."""
        return worst(finding.status for _, finding in self.findings)

    @property
    def events(self) -> set[str]:
        """Identities of the log lines that were counted."""
        return {event for _, finding in self.findings for event in finding.events}

    @property
    def release_problems(self) -> list[str]:
        """Critical findings, and probes that should have answered and did not: they keep a node from going back into service."""
        bad = (Health.CRITICAL, Health.UNKNOWN)
        return [
            f"{probe.name}: {finding.text}" for probe, finding in self.findings if finding.status in bad and not finding.missing
        ]

    @property
    def faulty(self) -> bool:
        """Whether the findings suffice to take the node out of service."""
        witnesses: dict[str, list[Finding]] = {}
        for probe, finding in self.findings:
            witnesses.setdefault(probe.witness, []).append(finding)
        return guilty(witnesses)


def check(context: Context, nodes: Sequence[str], shared: Circumstances, busy: Mapping[str, bool]) -> dict[str, NodeHealth]:
    """Run all probes on nodes.

    Args:
        context: The way to the nodes; its `commands` replace those of probes by the name of the probe or of its reading.
        nodes: Names of the nodes.
        shared: Circumstances that hold for all nodes.
        busy: Whether a job runs on a node, where that is known.
    """
    first, *other_probes = probes()
    answers = context.transport.run(nodes, first.command, timeout_s=context.command_timeout_s)
    answering = [node for node in nodes if answers[node].reached and not answers[node].status]
    asked_at = context.clock.now()
    replies = _ask(context, answering, other_probes)
    circumstances = replace(shared, asked=asked_at, now=context.clock.now())
    counters = NodeCounters(context, answering)
    checked: dict[str, NodeHealth] = {}
    for node in nodes:
        if node in replies:
            own = replace(circumstances, busy=busy.get(node, shared.busy))
            own = counters.with_past(node, _booted(replies[node], own))
            checked[node] = NodeHealth(
                [(first, ok("it answers")), *_judge(other_probes, replies[node], own, context, counters.counts_of(node))]
            )
        else:
            checked[node] = NodeHealth(
                [(first, unknown(_why_not(answers[node], first) or "it did not answer", "look at it from its console"))]
            )
    counters.keep()
    return checked


def _booted(replies: Mapping[Command, Reply], circumstances: Circumstances) -> Circumstances:
    uptime = replies[FACTS["uptime"].command]
    readable = uptime.reached and uptime.status == 0
    return replace(circumstances, booted=boot_time(uptime, circumstances.now)) if readable else circumstances


def _command(probe: Probe, context: Context) -> RoundCommand:
    own = context.commands.get(probe.name) or context.commands.get(probe.reading)
    return RoundCommand(tuple(own) if own else probe.command, probe.keeps)


def _ask(context: Context, nodes: list[str], other_probes: Sequence[Probe]) -> dict[str, dict[Command, Reply]]:
    """Return the reply of each node to each command; empty without nodes."""
    if not nodes:
        return {}
    commands = list(dict.fromkeys([*FACTS.values(), *(_command(probe, context) for probe in other_probes)]))
    command_s = min(max(int(context.command_timeout_s / 2), COMMAND_S[0]), COMMAND_S[-1])
    timeout_s = max(context.command_timeout_s, command_s + 4.0)
    replies = context.transport.run(nodes, round_command(commands, command_s), timeout_s=timeout_s)
    replies_by_node: dict[str, dict[Command, Reply]] = {}
    one_by_one: list[str] = []
    for node, reply in replies.items():
        framed = framed_replies(reply, len(commands))
        if framed is not None:
            replies_by_node[node] = {command.command: answer for command, answer in zip(commands, framed, strict=True)}
        elif reply.reached:
            # no shell that can do it, or a transport that only knows single commands
            one_by_one.append(node)
        else:
            replies_by_node[node] = {command.command: reply for command in commands}
    for command in commands if one_by_one else ():
        for node, reply in context.transport.run(one_by_one, command.command, timeout_s=command_s).items():
            replies_by_node.setdefault(node, {})[command.command] = reply
    return replies_by_node


def _judge(
    other_probes: Sequence[Probe],
    replies: Mapping[Command, Reply],
    circumstances: Circumstances,
    context: Context,
    counts: dict[str, int],
) -> Iterator[tuple[Probe, Finding]]:
    hardware = replies[FACTS["hardware"].command]
    kinds = hardware_kinds(hardware) if hardware.reached and hardware.status == 0 else None
    for probe in other_probes:
        reply = replies[_command(probe, context).command]
        if probe.counts is not None and reply.reached and reply.status == 0:
            counts |= probe.counts(reply, circumstances)
        for finding in judged_by(probe, reply, circumstances, kinds):
            yield probe, finding


def judged_by(probe: Probe, reply: Reply, circumstances: Circumstances, kinds: frozenset[str] | None = None) -> Sequence[Finding]:
    """Return what a probe says to a reply.

    Args:
        probe: The probe.
        reply: What its command answered.
        circumstances: Time, limits and earlier counters of the node.
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
    output = (reply.err or reply.out).strip()[:200]
    return f"{probe.needs} ended with status {reply.status}: {output}" if reply.status else ""


def checked_values(checked: NodeHealth) -> dict[str, Any]:
    """Return status, faultiness and findings of a node as JSON values; empty fields are left out."""
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


def parsed_time(text: str, argument: str) -> datetime | None:
    """Return a time that was given as text; None for an empty one.

    Raises:
        ValueError: It is no RFC 3339 time; the message says so.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{argument} must be a time such as 2026-03-01T12:00:00Z, not {text!r}") from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
