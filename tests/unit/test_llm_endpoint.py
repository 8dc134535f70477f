"""What an endpoint may do to us, and what we say then."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from assistant.config.settings import ModelSettings
from assistant.errors import ConfigError, ModelError, NightshiftError, Unavailable
from assistant.llm.endpoint import ChatEndpoint, key_of
from assistant.llm.models import close_models, endpoint_of, open_chat
from assistant.llm.sse import Endpoint
from tests.unit.openai_here import DONE, USAGE, Answers, Asked, called, said, serving, speak

KEY = "sk-test-0123456789abcdef0123"


@tool
def show_job(job: str, lines: int = 5) -> str:
    """Show a job."""
    return f"{job} {lines}"


def chat_of(url: str, *, timeout_s: float = 5.0, **more: Any) -> ChatEndpoint:
    return ChatEndpoint(endpoint=Endpoint(url, KEY, timeout_s=timeout_s), name_there="m", **more)


def asked_of(answers: Answers, **more: Any) -> tuple[AIMessage, list[Asked]]:
    with serving(answers) as server:
        return chat_of(server.url, **more).bind_tools([show_job]).invoke([HumanMessage("why did 4821 die?")]), server.asked


def test_an_answer_streams_and_says_what_it_took() -> None:
    with serving(lambda asked: asked.stream(said("It "), said("died."), said("", "stop"), USAGE, DONE)) as server:
        chunks = list(chat_of(server.url).stream("why?"))
    assert [chunk.content for chunk in chunks] == ["It ", "died.", ""]
    assert chunks[-1].usage_metadata == {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert server.asked[0].json["stream"] is True


CALL = ("show_job", {"job": "4821"})


def test_a_tool_call_in_pieces_becomes_one_call() -> None:
    def answers(asked: Asked) -> None:
        if "tools" in asked.json:
            asked.stream(*called("show_job", '{"job": "48', '21"}'), DONE)
        else:
            speak(asked, CALL, takes=["tools"])

    message, asked = asked_of(answers)
    assert message.tool_calls == [{"name": "show_job", "args": {"job": "4821"}, "id": "c1", "type": "tool_call"}]
    assert asked[1].json["tool_choice"] == "auto"
    assert asked[1].json["tools"][0]["function"]["name"] == "show_job"


@pytest.mark.parametrize("form", ["schema", "tools", "words"])
def test_a_turn_is_asked_for_in_the_strictest_form_that_is_taken_and_what_was_refused_is_remembered(form: str) -> None:
    with serving(lambda asked: speak(asked, CALL, takes=[form])) as server:
        for _ in range(2):
            message = chat_of(server.url).bind_tools([show_job]).invoke("why did 4821 die?")
            assert [(call["name"], call["args"]) for call in message.tool_calls] == [CALL]
    assert len(server.asked) == 2 + ["schema", "tools", "words"].index(form)


@pytest.mark.parametrize("form", ["schema", "tools"])
def test_arguments_are_limited_to_what_exists(form: str) -> None:
    _, asked = asked_of(lambda asked: speak(asked, "x", takes=[form]), inventory=lambda: {"job": ["4821", "4822"]})
    request = asked[-1].json
    if form == "schema":
        answer, call = request["response_format"]["json_schema"]["schema"]["anyOf"]
        assert answer["required"] == ["answer"]
        assert call["properties"]["tool"]["enum"] == ["show_job"]
        arguments = call["properties"]["args"]
    else:
        arguments = request["tools"][0]["function"]["parameters"]
    assert arguments["properties"]["job"]["enum"] == ["4821", "4822"]


def test_a_server_that_takes_a_schema_and_does_not_hold_to_it_is_asked_by_tools_from_then_on() -> None:
    with serving(lambda asked: asked.stream(said("It "), said("died.", "stop"), DONE)) as server:
        texts = [chat_of(server.url).bind_tools([show_job]).invoke("why?").content for _ in range(2)]
    assert texts == ["It died.", "It died."]
    assert ["response_format" in one.json for one in server.asked] == [True, False]


def test_the_same_settings_are_one_endpoint_that_keeps_what_was_refused() -> None:
    def answers(asked: Asked) -> None:
        if "stream_options" in asked.json:
            asked.reply(400, {"error": {"message": "'stream_options' is not supported"}})
        else:
            asked.stream(said("ok", "stop"), DONE)

    with serving(answers) as server:
        terms = ModelSettings(url=server.url, name="m", timeout_s=5)
        for _ in range(2):
            chat = open_chat(terms)
            assert chat is not None
            assert chat.invoke("why?").content == "ok"
        assert endpoint_of(terms) is endpoint_of(ModelSettings(url=server.url, name="other", timeout_s=5))
        close_models()
    assert ["stream_options" in one.json for one in server.asked] == [True, False, False]


def test_a_request_that_is_refused_in_every_form_is_an_error_and_nothing_is_remembered() -> None:
    with serving(lambda asked: asked.reply(400, {"error": {"message": "bad messages"}})) as server:
        for _ in range(2):
            with pytest.raises(ModelError, match="bad messages"):
                chat_of(server.url).bind_tools([show_job]).invoke("why?")
    assert len(server.asked) == 6


def test_a_text_that_is_too_long_is_not_sent_in_another_form() -> None:
    refusal = {"error": {"message": "maximum context length is 8"}}
    with serving(lambda asked: asked.reply(400, refusal)) as server, pytest.raises(ModelError, match="ask about less"):
        chat_of(server.url).bind_tools([show_job]).invoke("why?")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("raw", "content", "calls"),
    [
        ('{"answer": "a \\"b\\" 👩‍🚀"}', 'a "b" 👩‍🚀', []),
        ('```json\n{"tool": "show_job", "args": {"job": "1"}}\n```', "", ["show_job"]),
        ('<think>hm {</think>\n{"answer": "yes"}', "yes", []),
        ('{"tool": "show_job"}', "", ["show_job"]),
        ("Job 1 failed.", "Job 1 failed.", []),
        ('{"tool": "show_job", "args": {"job": "1', "", []),
        ('{"verdict": "yes"}', "", []),
        ('{"tool": 7, "args": []}', "", []),
    ],
)
def test_a_turn_that_nothing_held_is_read_or_is_no_call(raw: str, content: str, calls: list[str]) -> None:
    pieces = [said(raw[at : at + 5]) for at in range(0, len(raw), 5)]
    message, _ = asked_of(lambda asked: asked.stream(*pieces, said("", "stop"), DONE))
    assert (message.content, [call["name"] for call in message.tool_calls]) == (content, calls)
    assert bool(message.invalid_tool_calls) is (not content and not calls)


def test_a_call_that_was_cut_is_no_call() -> None:
    message, _ = asked_of(lambda asked: asked.stream(*called("show_job", '{"job": "48', finish="length"), DONE))
    assert message.tool_calls == []
    assert message.invalid_tool_calls[0]["args"] == 'cut short: {"job": "48'
    assert "cut here" in str(message.content)


def test_arguments_that_are_no_json_are_no_call() -> None:
    message, _ = asked_of(lambda asked: asked.stream(*called("show_job", "job=4821"), DONE))
    assert (message.tool_calls, message.invalid_tool_calls[0]["name"]) == ([], "show_job")


def test_an_answer_that_was_cut_says_so() -> None:
    message, _ = asked_of(lambda asked: asked.stream(said("It died of", "length"), DONE), max_tokens=7)
    assert message.content == "It died of\n[cut here: the limit of 7 tokens was reached]"


def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {"choices": [{"message": {"content": "It died."}, "finish_reason": "stop"}], "usage": USAGE["usage"]}
    message, _ = asked_of(lambda asked: asked.reply(200, whole))
    assert message.content == "It died."


def test_results_of_tools_go_back_as_the_endpoint_knows_them() -> None:
    call = {"name": "show_job", "args": {"job": "4821"}, "id": "c1", "type": "tool_call"}
    told = [
        SystemMessage("be short"),
        HumanMessage("why?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("Xid 79 👩‍🚀", tool_call_id="c1"),
    ]
    with serving(lambda asked: asked.stream(said("ok", "stop"), DONE)) as server:
        chat_of(server.url).invoke(told)
    assert [one["role"] for one in server.asked[0].json["messages"]] == ["system", "user", "assistant", "tool"]
    assert server.asked[0].json["messages"][3]["content"] == "Xid 79 👩‍🚀"


@pytest.mark.parametrize("key", ["max_tokens", "stream_options", "temperature"])
def test_a_server_that_does_not_know_a_key_is_asked_without_it(key: str) -> None:
    def answers(asked: Asked) -> None:
        if key in asked.json:
            instead = ", use 'max_completion_tokens'" if key == "max_tokens" else ""
            asked.reply(400, {"error": {"message": f"'{key}' is not supported{instead}"}})
        else:
            asked.stream(said("ok", "stop"), DONE)

    message, asked = asked_of(answers)
    assert message.content == "ok"
    assert len(asked) == 2


def _drip(asked: Asked) -> None:
    asked.stream(*[part for n in range(50) for part in (said(str(n)), 0.1)])


def _redirect(asked: Asked) -> None:
    asked.reply(302, "", location="https://elsewhere.example/v1")


def _unknown_model(asked: Asked) -> None:
    if asked.path.endswith("/models"):
        asked.reply(200, {"data": [{"id": "llama"}, {"id": "qwen"}]})
    else:
        asked.reply(404, {"error": {"message": "no such model"}})


BAD: dict[str, tuple[Answers, type[NightshiftError], str]] = {
    "a web page": (
        lambda asked: asked.reply(200, "<!DOCTYPE html><p>hi", content_type="text/html"),
        Unavailable,
        "answers a web page",
    ),
    "a web page that says it is JSON": (lambda asked: asked.reply(200, "<html>"), Unavailable, "answers a web page"),
    "a refused key": (
        lambda asked: asked.reply(401, {"error": {"message": f"bad key {KEY}"}}),
        ConfigError,
        "model.key_file (HTTP 401)",
    ),
    "no right": (lambda asked: asked.reply(403, "no"), ConfigError, "HTTP 403"),
    "an unknown model": (_unknown_model, ConfigError, "has no model 'm' (model.name); it has: llama, qwen"),
    "no such path": (lambda asked: asked.reply(404, "<h1>Not Found"), ConfigError, "does model.url end with /v1?"),
    "a redirect": (_redirect, ConfigError, "sends on to https://elsewhere.example/v1"),
    "too many": (
        lambda asked: asked.reply(429, {"detail": "slow down"}, retry_after="17"),
        Unavailable,
        "try again in 17 s: slow down",
    ),
    "overloaded": (lambda asked: asked.reply(503, "loading"), Unavailable, "try again later: loading"),
    "broken": (lambda asked: asked.reply(500, "Traceback"), Unavailable, "answers HTTP 500: Traceback"),
    "too long": (
        lambda asked: asked.reply(400, {"error": {"message": "maximum context length is 8"}}),
        ModelError,
        "ask about less",
    ),
    "garbage in the stream": (lambda asked: asked.stream("data: {nonsense\n\n"), Unavailable, "streams '{nonsense'"),
    "bytes in the stream": (
        lambda asked: asked.stream("\x00\x01 binary \udcff: x\n".encode("utf-8", "ignore").decode()),
        Unavailable,
        "no chat completion",
    ),
    "a list in the stream": (lambda asked: asked.stream("data: [1]\n\n"), Unavailable, "streams '[1]'"),
    "an error in the stream": (
        lambda asked: asked.stream(said("a"), {"error": {"message": "out of memory"}}),
        Unavailable,
        "says: out of memory",
    ),
    "no end": (lambda asked: asked.stream(said("It died")), Unavailable, "closed the line before the answer's end"),
    "other JSON": (lambda asked: asked.reply(200, {"hello": 1}), Unavailable, "no chat completion"),
    "silence": (lambda asked: time.sleep(1.5), Unavailable, "no whole answer within 0.7 s"),
    "a drip": (_drip, Unavailable, "no whole answer within 0.7 s"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_goes_wrong_is_named_and_the_key_never_shown(name: str) -> None:
    answers, kind, why = BAD[name]
    with serving(answers) as server, pytest.raises(kind) as caught:
        chat_of(server.url, timeout_s=0.7).invoke("why?")
    assert why in str(caught.value)
    assert server.url in str(caught.value)
    assert KEY not in str(caught.value)


def test_an_endpoint_that_is_down_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="cannot be reached"):
            chat_of(f"http://127.0.0.1:{taken.getsockname()[1]}/v1").invoke("why?")


def test_a_question_of_a_megabyte_is_refused_before_it_is_sent() -> None:
    with serving(lambda asked: asked.stream(DONE)) as server, pytest.raises(ModelError, match="has room for 8,192"):
        chat_of(server.url, context=8192).invoke("why? " * 200_000)
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("localhost:8000", "", "must begin with http"),
        ("http://h/v1", "two words", "key alone"),
        ("http://h/v1", "ключ", "key alone"),
        ("http://[::1", "", "model.url"),
    ],
)
def test_settings_that_cannot_work_are_named(url: str, key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        list(Endpoint(url, key).stream({}))


def test_a_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        key_of(file)
    file.chmod(0o600)
    assert key_of(file) == KEY


def test_a_key_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.key_file: .* cannot be read"):
        key_of(tmp_path / "nowhere")
