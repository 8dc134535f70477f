"""An endpoint elsewhere hears no names, and answers with them all the same, however its stream is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from assistant.config import Settings
from assistant.config.settings import ModelSettings
from assistant.engine.report import mask_for
from assistant.errors import Unavailable
from assistant.llm.models import close_models, open_chat
from assistant.llm.sse import is_here, masked, unmasked
from assistant.ports import JumpingClock
from assistant.redact import Mask
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from tests.unit.gate_world import SPEC, START
from tests.unit.openai_here import Asked, serving

MASK = Mask(["node042", "node043"], ["ada"], key=b"k")
ADA, NODE = MASK.hide("ada"), MASK.hide("node042")


@tool
def show_node(node: str) -> str:
    """Show a node."""
    return node


def _deltas(text: str, size: int) -> Iterator[dict[str, Any]]:
    for start in range(0, len(text), size):
        yield {"choices": [{"delta": {"content": text[start : start + size]}}]}
    yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 100])
def test_an_answer_speaks_of_names_however_it_is_cut(size: int) -> None:
    said = f"{ADA} ran on {NODE}; hush, us users, host-ffffff and ghosts: {NODE}"
    told = list(unmasked(_deltas(said, size), MASK))
    text = "".join(one["choices"][0]["delta"].get("content") or "" for one in told)
    assert text == "ada ran on node042; hush, us users, host-ffffff and ghosts: node042"


def test_an_answer_that_is_cut_off_loses_nothing() -> None:
    told = list(unmasked(iter([{"id": "x", "choices": [{"delta": {"content": f"on {NODE}"}}]}]), MASK))
    assert "".join(one["choices"][0]["delta"]["content"] for one in told) == "on node042"


@pytest.mark.parametrize("size", [1, 4, 50])
def test_arguments_of_a_call_name_what_they_mean(size: int) -> None:
    arguments = json.dumps({"node": NODE, "why": f"first\n{ADA} said so"})
    pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    objects = [{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": p}}]}}]} for p in pieces]
    told = list(unmasked(iter(objects), MASK))
    found = "".join(one["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for one in told)
    assert json.loads(found) == {"node": "node042", "why": "first\nada said so"}


def test_a_request_holds_no_name_in_messages_tools_or_schemas() -> None:
    request = {
        "model": "node042-llm",
        "messages": [{"role": "user", "content": "why did ada's job on node[042-043] die?"}],
        "tools": [{"function": {"parameters": {"properties": {"node": {"enum": ["node042", "node043"]}}}}}],
        "temperature": 0.1,
    }
    sent = masked(request, MASK)
    assert sent["model"] == "node042-llm", "it is the endpoint's own name for it"
    assert "node04" not in json.dumps({**sent, "model": ""})
    assert "node[" not in json.dumps(sent)
    assert '"ada' not in json.dumps(sent)
    assert sent["temperature"] == 0.1


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:11434/v1", True),
        ("http://[::1]:1/v1", True),
        ("https://api.example.com/v1", False),
        ("http://gpu01:8000/v1", False),
        ("http://localhost.evil.example/v1", False),
    ],
)
def test_only_this_machine_is_here(url: str, here: bool) -> None:
    assert is_here(url) is here


def test_a_whole_turn_with_an_endpoint_elsewhere() -> None:
    def answers(asked: Asked) -> None:
        asked.stream({"choices": [{"delta": {"content": json.dumps({"tool": "show_node", "args": {"node": NODE}})}}]}, *_end())

    with serving(answers) as server:
        chat = open_chat(ModelSettings(url=server.url, name="m", timeout_s=5), mask=lambda: MASK)
        assert chat is not None
        message = chat.bind_tools([show_node]).invoke("what is wrong with node042 of ada?")
        close_models()
    assert [call["args"] for call in message.tool_calls] == [{"node": "node042"}]
    sent = json.dumps(server.asked[0].json)
    assert "node042" not in sent
    assert NODE in sent


def _end() -> Iterator[Any]:
    yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    yield "data: [DONE]\n\n"


def _settings(**model: Any) -> Settings:
    return replace(Settings(), model=ModelSettings(name="m", **model))


def test_names_come_from_the_scheduler_and_stay_the_same_in_later_conversations(tmp_path: Path) -> None:
    clock = JumpingClock(START)
    cluster = SimulatedCluster(clock, tmp_path, nodes=["rack1-n1", "rack1-n2"])
    cluster.submit(replace(SPEC, user="grace"))
    hides = []
    for _ in range(2):
        with Store(tmp_path / "s.db", clock) as store:
            mask = mask_for(_settings(url="https://api.example.com/v1"), store, cluster)
            assert mask is not None
            hides.append(mask().hide("grace on rack1-n2"))
    assert hides[0] == hides[1]
    assert "grace" not in hides[0]
    assert "rack1" not in hides[0]


@pytest.mark.parametrize("model", [{"url": "http://127.0.0.1:1/v1"}, {"url": "https://a.example/v1", "mask": False}, {}])
def test_nothing_is_masked_where_nothing_leaves_or_the_site_says_so(tmp_path: Path, model: dict[str, Any]) -> None:
    with Store(tmp_path / "s.db", JumpingClock(START)) as store:
        assert mask_for(_settings(**model), store) is None


def test_a_scheduler_that_does_not_answer_leaves_what_the_store_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Silent(SimulatedCluster):
        def nodes(self) -> Any:
            raise Unavailable("no answer")

    clock = JumpingClock(START)
    with Store(tmp_path / "s.db", clock) as store:
        mask = mask_for(_settings(url="https://a.example/v1"), store, Silent(clock, tmp_path, nodes=["n1"]))
        assert mask is not None
        mask()
    assert "are not masked" in caplog.text
