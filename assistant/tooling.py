"""What a tool is: a typed function with a docstring and a risk, found by its name.

One function is at once a tool of the agent, a step of a playbook and a command. It takes a `Context` first, returns a JSON
value or a frozen dataclass of JSON values, and raises `ToolError` for a problem its caller can act on. A changing tool also says
how to undo it and how to find out, after a crash, whether it happened:

    @tool(risk=Risk.CHANGE, kind="cordon", undo="uncordon_node")
    def cordon_node(context: Context, node: str, reason: str) -> str: ...

    @cordon_node.lookup
    def cordoned(context: Context, tag: str, node: str, reason: str) -> object | None: ...

`lookup` gets the tag of the call and its arguments; it returns the call's value when the call took effect, None when it surely
did not, and raises `Unavailable` when that cannot be told now. `withdraw` takes back what a call has begun and not finished.
`stands` returns the call's value when there is nothing to change any more, so that nobody is asked about it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import random
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from assistant.counting import Kept, Reading
from assistant.errors import PartlyMade, ToolError, UsageError
from assistant.ports import Clock, Reply, Scheduler, Transport
from assistant.probing import Circumstances, Finding
from assistant.records import Call, Decision, Diagnosis, Event, Evidence, Incident, Outcome, Risk, Sighting
from assistant.rendering import RenderedChange

__all__ = [
    "PENDING_TAG",
    "Context",
    "History",
    "Pipeline",
    "Probe",
    "Question",
    "Readings",
    "Tool",
    "find_tool",
    "found",
    "to_json",
    "tool",
]


class History(Protocol):
    """What tools may know of the past; the store implements it, read-only."""

    def incidents(
        self, *, job: str | None = None, node: str | None = None, open_only: bool = False, limit: int = 50
    ) -> Sequence[Incident]:
        """Return incidents, newest first."""
        ...

    @property
    def store_id(self) -> str:
        """Random id of the store, made once with it: the part of tags that no other store has."""
        ...

    def runs_of(self, call: int, /) -> Sequence[str]:
        """Return the keys (`records.run_of`) of the runs that a changing call is about, as looked up before it was made."""
        ...

    def incident(self, incident: int, /) -> Incident:
        """Return one incident.

        Raises:
            UsageError: There is none of this id.
        """
        ...

    def unacknowledged(self) -> Sequence[int]:
        """Return the escalated incidents that nobody has acknowledged since, oldest first."""
        ...

    def diagnosis(self, incident: int, /) -> Diagnosis | None:
        """Return the newest diagnosis of an incident."""
        ...

    def events(self, incident: int, /) -> Sequence[Event]:
        """Return the events of an incident, oldest first."""
        ...

    def evidence(self, incident: int, /) -> Sequence[Evidence]:
        """Return the evidence of an incident in the order in which it came."""
        ...

    def stages(self, incident: int, /) -> Mapping[str, datetime]:
        """Return the stages that an incident has reached and when."""
        ...

    def calls(self, incident: int | None = None, /) -> Sequence[Call]:
        """Return calls in the order in which they were made."""
        ...

    def call(self, call: int, /) -> Call:
        """Return one call."""
        ...

    def outcome(self, call: int, /) -> Outcome | None:
        """Return what came of a call; None while that is not known."""
        ...

    def decisions(self, call: int, /) -> Sequence[Decision]:
        """Return the decisions on a call, oldest first."""
        ...

    def sightings(self, since: datetime, node: str | None = None) -> Sequence[Sighting]:
        """Return what the ledger of nodes holds since a time, oldest first."""
        ...

    def approvals(self) -> Sequence[Question]:
        """Return what waits for a person, oldest first."""
        ...


class Question(Protocol):
    """What a person is asked; the store's approvals are such."""

    @property
    def id(self) -> int:
        """By which it is answered."""
        ...

    @property
    def call(self) -> int:
        """The call that waits."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the commands asked about; empty for a question from before 0.16."""
        ...

    @property
    def rule(self) -> str:
        """The policy's rule that asks."""
        ...

    @property
    def why(self) -> str:
        """Why it asks."""
        ...

    @property
    def asked(self) -> datetime:
        """Since when it waits."""
        ...

    @property
    def expires(self) -> datetime:
        """Until when it can be answered."""
        ...


class Pipeline(Protocol):
    """What tools may ask of the pipeline above them; it only looks."""

    def explain(self, job: str) -> Diagnosis:
        """Return why a job failed, found out now and kept nowhere."""
        ...

    def plan(self, job: str) -> Mapping[str, Any]:
        """Return what would be done about a job, as JSON values."""
        ...

    def ledger(self, days: float) -> Sequence[Mapping[str, Any]]:
        """Return how nodes stand in the ledger, worst first, as JSON values."""
        ...

    def watch(self) -> Mapping[str, Any]:
        """Return how the watch stands, what stops changes, and how much is open, as JSON values."""
        ...


class Readings(Protocol):
    """Keeps what counters of nodes stood at, from one check to the next."""

    def kept_readings(self, nodes: Sequence[str]) -> Mapping[str, Kept]:
        """Return what is kept of nodes; what cannot be read is none, and says why."""
        ...

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Replace what is kept of nodes.

        Raises:
            StoreError: It cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a tool may reach. There is no other way out of a tool."""

    scheduler: Scheduler
    transport: Transport
    clock: Clock
    random: random.Random
    history: History
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Site's own commands by name, for instance `kernel_log`."""
    command_timeout_s: float = 20.0
    checkpoint_folders: Mapping[str, Path] = field(default_factory=dict)
    """Checkpoint folder by job id, where the site or the operator has said it."""
    incident: int | None = None
    """The incident the call is made for."""
    tag: str = ""
    """`nightshift:<store>:<incident>:<call>`: what a changing tool leaves on the thing it changes."""
    by: str = ""
    """Who made the call: `cli:alice`, `playbook:ecc_error`, `agent`."""
    site: Path | None = None
    """The site's folder of content; None where there is none."""
    readings: Readings | None = None
    """Where counters are kept between checks; None where nothing is kept."""
    pipeline: Pipeline | None = None
    """Diagnosis, plans and the ledger of nodes; None where there is no engine around."""
    services: Sequence[str] = ()
    """Services that the policy lets be connected to: `HOST` or `HOST:PORT`, with `*` for parts of names."""
    asked: datetime | None = None
    """When the call was written down; None outside of a call. What a command says of time counts from here: see `began`."""
    confirm: Callable[..., None] = field(default=lambda *_: None)
    """Takes the gate's last look and compares commands with the frozen ones: called right before each change that is no command of
    the scheduler, with the lines of that change, or without any before one more step of a change whose lines were given.

    It raises what the scheduler's own commands do: `Fenced`, `Denied`, and `CommandRefused` behind a first command."""

    @property
    def began(self) -> datetime:
        """The time from which a command's own times count: the same when it is shown, stored and run."""
        return self.asked or self.clock.now()


PENDING_TAG = "nightshift:…"
"""The tag in the preview of a call that does not exist yet: the real one has its numbers."""


@dataclass
class Tool:
    """A tool as the gate, the playbooks, the agent and the command line see it."""

    name: str
    doc: str
    """First paragraph of the docstring."""
    risk: Risk
    kind: str
    """Action class of the policy: `read`, `cordon`, `uncordon`, `resubmit`, `cancel`, …"""
    run: Callable[..., Any]
    arguments: dict[str, Argument]
    undo: str | None = None
    """Name of the tool that takes it back, called with the arguments that both have in common."""
    find: Callable[..., Any] | None = None
    show: Callable[..., RenderedChange] | None = None
    """States the exact commands that a call would run; the gate gives no command that is not among them."""
    take_back: Callable[..., None] | None = None
    standing: Callable[..., Any] | None = None
    completed_part: Callable[..., PartlyMade | None] | None = None

    def lookup(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register how to find out whether a call took effect."""
        self.find = function
        return function

    def preview(self, function: Callable[..., RenderedChange]) -> Callable[..., RenderedChange]:
        """Register how to state the exact commands that a call would run."""
        self.show = function
        return function

    def withdraw(self, function: Callable[..., None]) -> Callable[..., None]:
        """Register how to take back what an interrupted or failed call has left half done; it must not fail where nothing is."""
        self.take_back = function
        return function

    def partly(self, function: Callable[..., PartlyMade | None]) -> Callable[..., PartlyMade | None]:
        """Register how to see which of its steps an interrupted call has made, where `lookup` tells that it did not take effect."""
        self.completed_part = function
        return function

    def stands(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register how to see that the cluster is already as the call would make it; None while there is something to change."""
        self.standing = function
        return function

    def __call__(self, context: Context, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself, past the gate: for tools that build on one another and for tests."""
        return self.run(context, *args, **kwargs)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with their types made right and defaults filled in.

        Raises:
            UsageError: One is unknown, missing or of the wrong type; the message names the tool and the argument.
        """
        unknown = [name for name in arguments if name not in self.arguments]
        if unknown:
            raise UsageError(f"{self.name}: unknown argument {unknown[0]!r}; known: {', '.join(self.arguments) or 'none'}")
        checked: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            if name in arguments:
                checked[name] = argument.coerced(self.name, arguments[name])
            elif argument.required:
                raise UsageError(f"{self.name}: argument {name!r} is missing: {argument.doc}")
            else:
                checked[name] = argument.default
        return checked


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool."""

    name: str
    type: Any
    doc: str
    default: Any
    required: bool

    def coerced(self, tool_name: str, value: Any) -> Any:
        """Return the value as the argument's type; text becomes a number where that is exact."""
        target_type = self.type
        options = [option for option in typing.get_args(target_type) if option is not type(None)]
        if value is None and type(None) in typing.get_args(target_type):
            return None
        if options and typing.get_origin(target_type) is not list:
            target_type = options[0]
        if typing.get_origin(target_type) in (list, Sequence):
            items = value.split(",") if isinstance(value, str) else value
            if not isinstance(items, (list, tuple)):
                raise UsageError(f"{tool_name}: {self.name} must be a list of names, not {value!r}")
            return [str(item).strip() for item in items if str(item).strip()]
        try:
            if target_type is bool and isinstance(value, str):
                return {"true": True, "false": False}[value.lower()]
            if target_type in (int, float, str) and not isinstance(value, (dict, list, tuple, bool)):
                return target_type(value)
        except (KeyError, ValueError):
            pass
        else:
            if isinstance(value, target_type):
                return value
        raise UsageError(f"{tool_name}: {self.name} must be {getattr(target_type, '__name__', target_type)}, not {value!r}")


def _argument_docs(function: Callable[..., Any]) -> dict[str, str]:
    """Read the Args section of a Google-style docstring."""
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n((?:[ ]{2,}.*\n?|\n)+)", text, re.MULTILINE)
    found_docs = re.findall(r"^\s{4}(\w+): (.+(?:\n\s{8}.+)*)", section.group(1), re.MULTILINE) if section else []
    return {name: re.sub(r"\s+", " ", doc) for name, doc in found_docs}


def tool(*, risk: Risk, kind: str = "read", undo: str | None = None) -> Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function.

    Args:
        risk: What it may do.
        kind: Its action class in the policy; `read` exactly for `Risk.READ`.
        undo: Name of the tool that takes it back.
    """

    def make(function: Callable[..., Any]) -> Tool:
        hints = typing.get_type_hints(function)
        docs = _argument_docs(function)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        arguments = {
            p.name: Argument(
                name=p.name,
                type=hints[p.name],
                doc=docs.get(p.name, ""),
                default=None if p.default is p.empty else p.default,
                required=p.default is p.empty,
            )
            for p in parameters
        }
        doc = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        return Tool(function.__name__, doc, risk, kind, function, arguments, undo)

    return make


@dataclass(frozen=True, slots=True)
class Probe:
    """A node health check: a command and a pure parser of what it prints."""

    name: str
    command: tuple[str, ...]
    needs: str
    """The program it cannot do without; missing means `unknown`, never `unhealthy`."""
    parse: Callable[[Reply, Circumstances], Sequence[Finding]]
    """Returns what was found: one finding of `ok`, or one for each thing that is wrong."""
    source: str
    """Where the limits come from."""
    package: str = ""
    """What to install where `needs` is missing."""
    witness: str = "system"
    """Who says so. Two signs are independent when different witnesses saw them: `kernel`, `nvml`, `sysfs`, `system`, …"""
    reading: str = ""
    """Name under which probes share the output of one command, and under which a site sets a command of its own."""
    reads_failures: bool = False
    """Whether the parser is asked also when the command failed or was stopped; else that is unknown."""
    keeps: str = "head"
    """Which end of an output beyond the limit is read: `head` or `tail`."""
    counts: Callable[[Reply, Circumstances], Mapping[str, int]] | None = None
    """Reads the counters to be kept until the next check, by name; empty for a reply that cannot be read."""
    hardware: str = ""
    """Kind of device it is about (`nvidia`, `amd`, `infiniband`, `bmc`): without one its program need not be there."""


@cache
def found() -> Mapping[str, Tool]:
    """Return every tool that the package `assistant.tools` holds, by name."""
    package = importlib.import_module("assistant.tools")
    tools: dict[str, Tool] = {}
    for module_info in pkgutil.iter_modules(package.__path__, "assistant.tools."):
        if module_info.ispkg:
            continue
        for value in vars(importlib.import_module(module_info.name)).values():
            if isinstance(value, Tool):
                tools[value.name] = value
    return dict(sorted(tools.items()))


def find_tool(name: str) -> Tool:
    """Return a tool by its name.

    Raises:
        UsageError: There is none; the message lists the nearest names.
    """
    import difflib

    tools = found()
    if name in tools:
        return tools[name]
    near = difflib.get_close_matches(name, tools, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"tool {name!r} is unknown{hint} known: {', '.join(tools)}")


def to_json(value: Any) -> Any:
    """Return a tool's value as a JSON value: dataclasses become objects, times RFC 3339, paths text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ToolError(f"cannot keep a value of type {type(value).__name__}")
