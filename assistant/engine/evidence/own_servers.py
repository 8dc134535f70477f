"""A server that a job starts itself, as a step beside its training, and that has died: nothing outside brings it back.

Its address has the host of one of the job's own nodes, and its script starts something in the background that serves. Dead it is
only where all of that agrees: nobody listens on the port there, no process of that program is left of the job, and its log or the
kernel says that something of it ended on that node. A process that lives, a port that is held, a loop that starts it again and a
node that does not answer prove nothing. Only looked at, never connected to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from assistant.accounts import uid_of
from assistant.diagnose.case import numbered
from assistant.diagnose.facts import foreign_lines
from assistant.diagnose.readers.kernel import read_kernel
from assistant.engine.evidence.ended_servers import short_host
from assistant.engine.evidence.remote_hosts import Address, addresses_in
from assistant.engine.gather import ask
from assistant.errors import NightshiftError
from assistant.records import Event, Incident, Job, JobState
from assistant.records.jobs import NONE_THERE
from assistant.recover.directives import start_line
from assistant.recover.joblog import log_lines
from assistant.redact import head_of
from assistant.untrusted import LOOK_S, reading_as, within
from assistant.watch.hang import TASK_ENDED, WAITS

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

__all__ = [
    "OwnServer", "ServerCommand", "awaited_own_server", "background_servers", "last_kill", "own_commands", "step_end",
]  # fmt: skip

MOST_NODES, KERNEL_LINES, LINE_SHOWN = 8, 200, 200
LAUNCHERS = frozenset("srun mpirun mpiexec nohup nice time timeout env exec setsid stdbuf numactl singularity apptainer".split())
SHELLS = frozenset(("bash", "sh", "zsh"))
_SERVES = re.compile(
    r"serv(?:e|er|ing)\b|--(?:port|listen|bind)\b"
    r"|(?:^|[/._ -])(?:vllm|sglang|tgi|uvicorn|gunicorn|hypercorn|redis|mongod|postgres|ray|triton|flask|api)(?:\b|[-_])",
    re.IGNORECASE,
)
"""Words of a command that serves others."""
_LOCAL = re.compile(r"localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[?::1\]?")
_SILENT = re.compile(r"connection refused|Errno 111\b|ECONNREFUSED", re.IGNORECASE)
_LOOP, _LOOP_END = re.compile(r"^(?:while|until|for)\b"), re.compile(r"(?:^|;\s{0,8})done\b")
_RESTARTS = re.compile(r"\b(?:while|until)\b|supervisor|--restart\b")
"""Words of a command that starts its program again when that ends."""
_KILLED = re.compile(r"\bKilled process (?P<pid>\d{1,10}) \((?P<name>[^)]{1,64})\)(?P<rest>.{0,400})")
_ACCOUNT = re.compile(r"\bUID:(\d{1,10})\b")
_BACKGROUND = re.compile(r"(?<![&>])&\s*(?:#.*)?$")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=[\"']?([\w./:-]*)[\"']?\s*(?:#.*)?$", re.MULTILINE)


class ServerCommand(NamedTuple):
    """A command that a script starts in the background."""

    program: str
    """What runs, as the list of processes names it: `reward_server.py`; empty where that cannot be told."""
    line: str
    restarts: bool = False
    """Whether the script may start it again by itself: it stands in a loop."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A part of a job for which the job itself waits."""

    address: Address
    command: ServerCommand
    node: str = ""
    """Where it ended; empty while that it has ended is not proven."""
    step_end: str = ""
    """The line of the job's log that says so."""
    kill: str = ""
    """The kernel's line of that node; empty where it ended no process of the job's user."""

    @property
    def dead(self) -> bool:
        """Whether it is proven to have ended, so that the wait never does."""
        return bool(self.node)

    @property
    def program(self) -> str:
        """Its name, for people."""
        return self.command.program or "what serves there"

    def sentence(self, job: Job) -> str:
        """Return what is known of it, for people."""
        command = head_of(self.command.line, LINE_SHOWN)
        origin = f"{self.address.text} is served by job {job.id} itself: its script starts it by `{command}`"
        if not self.dead:
            return f"{origin}. Whether that has ended is not known"
        ends = [f"its log says: {head_of(self.step_end.strip(), LINE_SHOWN)}"] if self.step_end else []
        ends += [f"the kernel of {self.node} ended it: {head_of(self.kill.strip(), LINE_SHOWN)}"] if self.kill else []
        return f"{origin}. {self.program} is gone from {self.node}, and nobody listens there; {'; '.join(ends)}"

    def remedy(self, job: Job) -> str:
        """Return what brings the job back, for people."""
        ways = f"scancel {job.id}, then {start_line(job)}" if job.spec is not None else f"scancel {job.id}, and submit it again"
        if not self.dead:
            return f"See whether {self.program} of job {job.id} still lives. If it does not, nothing outside brings it back: {ways}"
        more = f" If {self.program} runs out of memory again, it has to hold less." if self.kill else ""
        return (
            f"Nothing outside brings {self.program} back, and one started by hand beside the job is none of its steps. End the job "
            f"and start it again unchanged, from its newest checkpoint: {ways}.{more}"
        )


def awaited_own_server(engine: EnginePort, incident: Incident, job: Job, wait: Event) -> OwnServer | None:
    """Return the part of a waiting job for which it waits; None where the address is not known to be one of its own.

    Args:
        engine: Which asks the job's nodes.
        incident: Of the job.
        job: Living.
        wait: The event by which it was seen to wait.
    """
    if job.state is not JobState.RUNNING or not 0 < len(job.nodes) <= MOST_NODES:
        return None
    try:
        full = job if job.spec is not None else engine.scheduler.job(job.id)
        with reading_as(job.account):
            texts = within(LOOK_S, lambda: [line.text for line in log_lines(full)], f"the log of job {job.id}")
    except (NightshiftError, OSError):
        return None
    line = str(wait.detail.get(WAITS, ""))
    addresses = addresses_in(line, [*job.nodes, "localhost"])
    if not addresses or not all(address.is_same(addresses[0]) for address in addresses) or full.spec is None:
        return None
    address = addresses[0]
    places = _own_places(job, address)
    commands = own_commands(full, address)
    if not commands:
        return None
    server = OwnServer(address, commands[0])
    if len(commands) > 1 or commands[0].restarts or not _SILENT.search(line):
        return server
    if not _is_unheld(engine, incident, places, address.port) or not _is_gone(engine, incident, job, places, commands[0].program):
        return server
    end, kill = step_end(texts, places), last_kill(engine, incident, job, places)
    node = end[0] or kill[0]
    return OwnServer(address, commands[0], node, end[1], kill[1] if kill[0] == node else "") if node else server


def own_commands(job: Job, address: Address) -> list[ServerCommand]:
    """Return the commands of a job's script that may serve an address on its own nodes; none where it starts none, or elsewhere.

    Args:
        job: With its spec.
        address: That it asks.
    """
    is_own = job.spec is not None and _own_places(job, address)
    return background_servers(job.spec.script, address.port) if is_own and job.spec is not None else []


def _own_places(job: Job, address: Address) -> list[str]:
    if _LOCAL.fullmatch(address.host):
        return list(job.nodes)
    return [node for node in job.nodes if short_host(node) == short_host(address.host)]


def background_servers(script: str, port: str) -> list[ServerCommand]:
    """Return the commands that a script starts in the background and that serve: those that name a port, where one does. Pure."""
    values = dict(_ASSIGNED.findall(script))
    commands: list[ServerCommand] = []
    depth = 0
    for raw in re.sub(r"\\\n\s*", " ", script).splitlines():
        line = raw.strip()
        depth += 1 if _LOOP.match(line) else 0
        if _BACKGROUND.search(line) and not line.startswith(("#", "done", "}", ")")):
            text = re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), line)
            commands.append(ServerCommand(_program_of(text), text, depth > 0 or _RESTARTS.search(line) is not None))
        depth -= 1 if depth and _LOOP_END.search(line) else 0
    with_port = [command for command in commands if re.search(rf"(?<![\w.]){re.escape(port)}(?!\w)", command.line)]
    return with_port or [command for command in commands if _SERVES.search(command.line)]


def _program_of(line: str) -> str:
    """Return the name of the program that a command starts, by its file or module; empty where it is a shell or not told."""
    try:
        words = shlex.split(re.sub(r"&\s*(?:#.*)?$", "", line))
    except ValueError:
        return ""
    for place, word in enumerate(words):
        if word == "-m" and place + 1 < len(words) and "python" in words[place - 1]:
            return words[place + 1]
        if word.endswith(".py"):
            return PurePosixPath(word).name
    plain = [word for word in words if not word.startswith("-") and "=" not in word]
    if not plain or PurePosixPath(plain[0]).name in LAUNCHERS | SHELLS or "$" in plain[0]:
        return ""
    return PurePosixPath(plain[0]).name


def step_end(lines: Iterable[str], nodes: Sequence[str]) -> tuple[str, str]:
    """Return the node and the last line by which srun says that a step failed on one of some nodes; empty where none does."""
    last_end = ("", "")
    for line in lines:
        match = TASK_ENDED.search(line[:2_000])
        node = next((node for node in nodes if match is not None and short_host(node) == short_host(match["node"])), "")
        last_end = (node, line) if node else last_end
    return last_end


def _is_unheld(engine: EnginePort, incident: Incident, nodes: Sequence[str], port: str) -> bool:
    """Tell whether nodes answer that nobody holds a port."""
    answer = ask(engine.store, engine.gate, incident, "port_holders", {"nodes": list(nodes), "port": int(port)}) or {}
    free = answer.get("free")
    return isinstance(free, Sequence) and set(nodes) <= set(free)


def _is_gone(engine: EnginePort, incident: Incident, job: Job, nodes: Sequence[str], program: str) -> bool:
    """Tell whether nodes answer that no process of a program, or none at all, is left of a job."""
    answer = ask(engine.store, engine.gate, incident, "job_processes", {"job": job.id, "most_nodes": MOST_NODES}) or {}
    programs, unknown = answer.get("programs"), answer.get("unknown") or {}
    if not isinstance(programs, Mapping) or not isinstance(unknown, Mapping):
        return False
    for node in nodes:
        if unknown.get(node) == NONE_THERE:
            continue
        if node not in programs or not program:
            return False
        if any(program in name.split() or name.endswith(f" {program}") for name in map(str, programs[node])):
            return False
        if any(re.fullmatch(r"python[\d.]*", name) for name in map(str, programs[node])):
            return False  # which program that runs is not told
    return True


def last_kill(engine: EnginePort, incident: Incident, job: Job, nodes: Sequence[str]) -> tuple[str, str]:
    """Return the node and the last line by which a kernel says that it ended a process of a job's user; empty for none."""
    answer = ask(engine.store, engine.gate, incident, "kernel_log", {"nodes": list(nodes), "lines": KERNEL_LINES}) or {}
    texts = answer.get("text")
    sections = [f"# {node}\n{text}" for node, text in texts.items() if text] if isinstance(texts, Mapping) else []
    year = (job.started or incident.opened).year
    lines = read_kernel(numbered("\n".join(sections)), tuple(nodes), year)
    foreign, account = foreign_lines(lines, job), uid_of(job.account or job.user)
    newest = ("", "")
    for line in lines:
        match = _KILLED.search(line.text)
        if match is None or line.number in foreign or line.host not in nodes or line.host is None:
            continue
        owner = _ACCOUNT.search(match["rest"])
        if owner is None or account is None or int(owner[1]) == account:
            newest = (line.host, line.text)
    return newest
