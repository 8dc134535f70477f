"""What every tool must be, whoever wrote it: described, typed, of an honest risk."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Risk
from assistant.tooling import Context, Tool, found, to_json
from tests.scenarios.scene import Scene

TOOLS = list(found().values())
READING = [tool for tool in TOOLS if tool.risk is Risk.READ]
PLAUSIBLE: dict[str, Any] = {
    "job": "1",
    "before_job": "1",
    "nodes": ["node01"],
    "pattern": "iteration",
    "timeout_s": 0.0,
    "advice": "look at the log",
    "why": "nothing holds",
    "reason": "type_error",
    "incident": 1,
    "word": "ecc error",
    "cause": "/nowhere/pile",
    "port": 29500,
    "place": "/",
    "user": "ada",
    "since_s": 0,
    "paths": ["/nowhere/pile"],
    "host": "metrics.example",
    "name": "augment",
    "folders": ["/nowhere/bin"],
}


def named(tool: Tool) -> str:
    return tool.name


@pytest.mark.parametrize("tool", TOOLS, ids=named)
def test_a_tool_says_what_it_does_and_what_each_argument_is(tool: Tool) -> None:
    assert len(tool.doc) > 20
    assert tool.doc.endswith(".")
    undescribed = [name for name, argument in tool.arguments.items() if len(argument.doc) < 5]
    assert not undescribed


@pytest.mark.parametrize("tool", TOOLS, ids=named)
def test_a_tool_has_the_kind_of_its_risk(tool: Tool) -> None:
    assert (tool.kind == "read") == (tool.risk is Risk.READ)
    if tool.risk is Risk.READ:
        assert tool.undo is None


@pytest.mark.parametrize("tool", READING, ids=named)
def test_a_reading_tool_leaves_the_cluster_as_it_was(tool: Tool, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    scene.cluster.jobs()
    before = (list(scene.cluster.changes), list(scene.cluster.nodes()), [job.state for job in scene.cluster.jobs()])
    context = Context(scene.cluster, scene.cluster, scene.clock, random.Random(1), scene.engine.store, {"kernel_log": ("dmesg",)})
    needed = [name for name, argument in tool.arguments.items() if argument.required or name in PLAUSIBLE]
    # what no other tool has yet is given as text that is a number as well
    arguments = {name: PLAUSIBLE.get(name, "1") for name in needed}
    if "path" in tool.arguments:
        arguments["path"] = str(tmp_path / "checkpoints" / "iter_0000020")
    with suppress(ToolError):  # a refusal is an answer as well
        to_json(tool.run(context, **tool.checked(arguments)))
    after = (list(scene.cluster.changes), list(scene.cluster.nodes()), [job.state for job in scene.cluster.jobs()])
    assert after == before
