"""What every chat model does, whatever stands behind it: a real llama.cpp, an endpoint, a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from assistant.llm.chat import ChatLocalModel, ToolChat
from assistant.llm.endpoint import ChatEndpoint
from assistant.llm.process import ModelProcess
from assistant.llm.sse import Endpoint
from tests.scripted_models import ScriptedChat, calls
from tests.unit.openai_here import DONE, Asked, said, serving, speak
from tests.unit.tiny_gguf import write_tiny

JOBS = ["4821", "4822", "4830"]


@tool
def show_job(job: str) -> str:
    """Show a job."""
    return f"job {job}: Xid 79 👩‍🚀"


def inventory() -> dict[str, list[str]]:
    return {"job": JOBS}


@contextmanager
def _llama(folder: Path) -> Iterator[ToolChat]:
    if find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed: make deps-llama")
    file = write_tiny(folder / "tiny.gguf", {"a": "b", "b": "c", "c": '"', '"': "a", "{": '"', "\n": "a"})
    process = ModelProcess(file, threads=1)
    yield ChatLocalModel(process=process, inventory=inventory, max_tokens=100)
    process.close()


def _demanded(request: dict[str, Any]) -> bool:
    """Tell whether the request, in whatever form, leaves only a call."""
    if "response_format" in request:
        return '"answer"' not in json.dumps(request["response_format"])
    if "tools" in request:
        return bool(request["tool_choice"] != "auto")
    told = request["messages"][0]["content"]
    return "Reply with one line of JSON" in told and "to answer" not in told


def _server(*takes: str) -> Callable[[Path], Any]:
    def answers(asked: Asked) -> None:
        speak(asked, ("show_job", {"job": "4821"}) if _demanded(asked.json) else "abc", takes=takes)

    @contextmanager
    def made(_: Path) -> Iterator[ToolChat]:
        with serving(answers) as server:
            yield ChatEndpoint(endpoint=Endpoint(server.url, timeout_s=20), name_there="m", inventory=inventory)

    return made


@contextmanager
def _scripted(_: Path) -> Iterator[ToolChat]:
    yield ScriptedChat(
        says=lambda messages, tools: AIMessage("abc"),
        forced=lambda messages, tools: calls("show_job", job="4821"),
        inventory=inventory,
    )


BACKENDS: dict[str, Callable[[Path], Any]] = {
    "llama.cpp": _llama,
    "endpoint held to a schema": _server("schema", "words"),
    "endpoint with tools only": _server("tools", "words"),
    "endpoint with neither": _server("words"),
    "scripted": _scripted,
}


@pytest.fixture(params=BACKENDS)
def chat(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ToolChat]:
    with BACKENDS[request.param](tmp_path) as model:
        yield model


def test_it_answers_with_tools_in_its_reach(chat: ToolChat) -> None:
    message = chat.bind_tools([show_job]).invoke([SystemMessage("be short"), HumanMessage("why did 4821 die? 👩‍🚀 \u202e")])
    assert (message.content, message.tool_calls) == ("abc", [])


def test_what_it_streams_is_what_it_answers(chat: ToolChat) -> None:
    chunks = list(chat.bind_tools([show_job]).stream("why?"))
    assert "".join(str(chunk.content) for chunk in chunks) == "abc"


def test_a_call_that_is_demanded_is_of_something_that_exists(chat: ToolChat) -> None:
    (call,) = chat.bind_tools([show_job], tool_choice="any").invoke("why?").tool_calls
    assert call["name"] == "show_job"
    assert call["args"]["job"] in JOBS
    assert call["id"]


def test_a_conversation_with_a_result_goes_on(chat: ToolChat) -> None:
    call = {"name": "show_job", "args": {"job": "4821"}, "id": "c1", "type": "tool_call"}
    told = [HumanMessage("why?"), AIMessage("", tool_calls=[call]), ToolMessage("Xid 79", tool_call_id="c1", name="show_job")]
    assert chat.bind_tools([show_job]).invoke(told).content == "abc"


def test_an_agent_runs_on_it(chat: ToolChat) -> None:
    agent: Any = create_agent(chat, [show_job], system_prompt="You explain failures.")
    assert agent.invoke({"messages": [HumanMessage("why did 4821 die?")]})["messages"][-1].content == "abc"


def test_it_says_what_an_answer_took_where_it_knows(chat: ToolChat) -> None:
    message = chat.invoke("why?")
    if not isinstance(chat, ScriptedChat):
        assert message.usage_metadata is not None
        assert message.usage_metadata["input_tokens"] > 5
        assert message.response_metadata["finish_reason"] in ("stop", "length")


def test_an_agent_takes_the_turns_of_a_script_and_its_results_are_seen() -> None:
    chat = ScriptedChat(script=[calls("show_job", job="4821"), "It fell off the bus."])
    agent: Any = create_agent(chat, [show_job])
    messages = agent.invoke({"messages": [HumanMessage("why?")]})["messages"]
    assert [one.type for one in messages] == ["human", "ai", "tool", "ai"]
    assert chat.requests[1][0][-1].content == "job 4821: Xid 79 👩‍🚀"
    assert chat.requests[0][1] == ["show_job"]


def test_a_thousand_jobs_do_not_fit_and_the_one_that_was_named_does(tmp_path: Path) -> None:
    jobs = [str(number) for number in range(90_000, 91_500)]
    with serving(lambda asked: asked.stream(said("ok", "stop"), DONE)) as server:
        chat = ChatEndpoint(endpoint=Endpoint(server.url), name_there="m", inventory=lambda: {"job": jobs})
        chat.bind_tools([show_job]).invoke("why did 91499 die?")
    _, call = server.asked[0].json["response_format"]["json_schema"]["schema"]["anyOf"]
    names = call["properties"]["args"]["properties"]["job"]["enum"]
    assert len(names) == 400
    assert "91499" in names
