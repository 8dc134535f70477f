"""What the gate and the policy rely on in every tool that changes something."""

from __future__ import annotations

import pytest

from assistant.gate.targets import JOB_ARGUMENTS, NODE_ARGUMENTS
from assistant.policy import load_policy
from assistant.records import Risk
from assistant.tooling import Tool, found

CHANGING = [pytest.param(tool, id=name) for name, tool in found().items() if tool.risk > Risk.READ]


def test_there_are_changing_tools() -> None:
    assert CHANGING


@pytest.mark.parametrize("tool", CHANGING)
def test_its_targets_are_named_so_that_the_policy_sees_them(tool: Tool) -> None:
    assert set(tool.arguments) & {*NODE_ARGUMENTS, *JOB_ARGUMENTS}


@pytest.mark.parametrize("tool", CHANGING)
def test_its_action_class_has_terms_in_the_shipped_policy(tool: Tool) -> None:
    assert tool.kind in load_policy().kind


@pytest.mark.parametrize("tool", CHANGING)
def test_it_can_be_looked_up_after_a_crash_and_shown_before(tool: Tool) -> None:
    assert tool.find is not None
    assert tool.show is not None


@pytest.mark.parametrize("tool", [param for param in CHANGING if param.values[0].undo is not None])  # type: ignore[union-attr]
def test_its_undo_is_a_changing_tool_that_gets_all_it_needs(tool: Tool) -> None:
    undo = found()[str(tool.undo)]
    assert undo.risk > Risk.READ
    assert {name for name, argument in undo.arguments.items() if argument.required} <= set(tool.arguments)


@pytest.mark.parametrize("kind", ["cordon"])
def test_what_takes_nodes_away_is_held_by_the_healthy_share(kind: str) -> None:
    assert load_policy().terms(kind).takes_nodes


@pytest.mark.parametrize("tool", [pytest.param(tool, id=name) for name, tool in found().items()])
def test_reading_tools_and_no_others_are_of_the_class_read(tool: Tool) -> None:
    assert (tool.kind == "read") == (tool.risk is Risk.READ)
