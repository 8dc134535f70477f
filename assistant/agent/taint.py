"""The taint rule: an argument of a changing tool comes from the operator or from a diagnosis, exists, and never from a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant.agent.answer import AnswerSource
from assistant.agent.inventory import NameInventory
from assistant.errors import Denied, UsageError
from assistant.nodeset import expand
from assistant.tooling import Tool

NODES = ("node", "nodes", "exclude", "blamed")
JOBS = ("job", "jobs")
DIAGNOSES = ("explain_job", "show_incident", "plan_recovery", "node_ledger", "two_round_test", "check_nodes")
"""Tools whose values name nodes by a rule, a memory of confirmed incidents or a test."""
WORDS = frozenset({"last_healthy", "last", "none", "before_step"})


@dataclass
class Origins:
    """Where names may come from in this conversation."""

    inventory: NameInventory
    said_jobs: set[str] = field(default_factory=set)
    """That the operator named."""
    said_nodes: set[str] = field(default_factory=set)
    said_numbers: set[str] = field(default_factory=set)
    found_nodes: set[str] = field(default_factory=set)
    """That a diagnosis or a test named."""
    checkpoints: set[str] = field(default_factory=set)
    """Paths that a checkpoint tool returned."""

    def learn(self, source: AnswerSource) -> None:
        """Take up what a tool returned, as far as it is no text of a log."""
        if source.tool in DIAGNOSES and source.value is not None:
            self.found_nodes |= set(_blamed(source.value))
        if source.tool in ("list_checkpoints", "choose_checkpoint"):
            self.checkpoints |= set(_paths(source.value))

    def checked(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a changing tool, with the free words replaced by ours.

        Raises:
            Denied: One comes from nowhere that may name it.
        """
        admitted: dict[str, Any] = {}
        for name, value in arguments.items():
            if name == "reason":
                admitted[name] = "asked for by an operator"
            elif value in (None, "", [], 0):
                continue
            else:
                admitted[name] = self._checked_value(tool, name, value)
        if "reason" in tool.arguments and tool.arguments["reason"].required:
            admitted["reason"] = "asked for by an operator"
        return admitted

    def _checked_value(self, tool: Tool, name: str, value: Any) -> Any:
        if name in NODES:
            return self._nodes(tool, name, value)
        if name in JOBS:
            for job in value if isinstance(value, list) else [value]:
                if str(job) not in self.inventory.jobs or str(job) not in self.said_jobs:
                    raise Denied(f"{tool.name}: job {str(job)[:60]!r} was named by nobody who may: only the operator names jobs")
            return value
        if name == "checkpoint" and (value in WORDS or value in self.checkpoints):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and f"{value:g}" in self.said_numbers:
            return value
        raise Denied(f"{tool.name}: {name} may not be set by the agent")

    def _nodes(self, tool: Tool, name: str, value: Any) -> Any:
        try:
            nodes = [node for part in (value if isinstance(value, list) else [value]) for node in expand(str(part))]
        except UsageError as error:
            raise Denied(f"{tool.name}: {error}") from error
        for node in nodes:
            if node not in self.inventory.nodes or node not in self.said_nodes | self.found_nodes:
                raise Denied(f"{tool.name}: node {node[:60]!r} was named by nobody who may: the operator, a diagnosis or a test")
        return value if name == "node" else nodes


def _blamed(value: Any) -> Sequence[str]:
    """Return the nodes that a diagnosis or test blames: values under keys that are ours, never texts."""
    nodes: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("nodes_to_blame", "faulty") and isinstance(item, list):
                nodes += [str(element) for element in item]
            elif key == "nodes" and isinstance(item, list):
                nodes += [str(element["node"]) for element in item if isinstance(element, Mapping) and "node" in element]
            elif key == "diagnosis":
                nodes += _blamed(item)
    return nodes


def _paths(value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        own = [str(value[key]) for key in ("path", "restart_from") if value.get(key)]
        return own + [path for item in value.values() for path in _paths(item)]
    return [path for item in value for path in _paths(item)] if isinstance(value, list) else []
