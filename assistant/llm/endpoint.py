"""Any OpenAI-compatible endpoint (vLLM, llama-server, Ollama, a provider) as a chat model of LangChain.

A turn with tools is asked for in the strictest form that the endpoint takes: held to a JSON schema (`response_format`, which vLLM,
llama-server, Ollama and providers share), else as tools of OpenAI's kind, else in words alone. What an endpoint refused once, or
took without holding to it, it is not asked again by this process. In every form names are limited to what exists.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk
from pydantic import Field

from assistant.errors import ConfigError, ModelError
from assistant.llm.chat import CUT, AnswerReader, Tool, ToolChat, plain, read_turn, schema_of_turn
from assistant.llm.sse import Endpoint, RefusedRequest, masked, unmasked
from assistant.redact import Mask

SCHEMA, TOOLS, WORDS = "schema", "tools", "words"
FORMS = (SCHEMA, TOOLS, WORDS)
"""Forms of a turn with tools, the strictest first."""
_NOT_TAKEN: dict[tuple[str, str], set[str]] = {}
"""By URL and model: forms that it does not take."""
CHARS_PER_TOKEN = 4
"""Of plain English; logs have fewer, so what does not fit by this does not fit at all."""


def key_of(path: Path | None) -> str:
    """Return the key that a file holds; empty without a file.

    Raises:
        ConfigError: It cannot be read, or everybody may read it.
    """
    if path is None:
        return ""
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"model.key_file: {path} can be read by everybody; chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model.key_file: {path} cannot be read: {error}") from error


class ChatEndpoint(ToolChat):
    """Speaks with an endpoint."""

    endpoint: Endpoint = Field(exclude=True)
    name_there: str
    """What the endpoint calls the model."""
    context: int = 0
    """Tokens that it has room for; 0 when unknown: then the endpoint itself refuses what is too long."""

    mask: Callable[[], Mask] | None = Field(default=None, exclude=True)
    """Hides names from the endpoint; None hides none."""

    @property
    def _llm_type(self) -> str:
        return "nightshift-endpoint"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"url": self.endpoint.url, "model": self.name_there, "max_tokens": self.max_tokens, "temperature": self.temperature}

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[Tool] = (),
        tool_choice: Any = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        shown_tools, callable_tools, answer = self.tools_of(messages, tools, tool_choice)
        refused: list[str] = []
        for form in self._forms() if callable_tools else (WORDS,):
            payload = self._payload(messages, shown_tools if form != TOOLS else callable_tools, form=form, answer=answer, stop=stop)
            if form == SCHEMA:
                schema = {"name": "turn", "strict": True, "schema": schema_of_turn(callable_tools, answer=answer)}
                payload["response_format"] = {"type": "json_schema", "json_schema": schema}
            turn_so_far = _StreamedTurn(structured=bool(callable_tools) and form != TOOLS)
            try:
                yield from self._stream_turn(payload, turn_so_far, run_manager)
            except RefusedRequest:
                if form == FORMS[-1] or not callable_tools:
                    raise
                refused.append(form)
                continue
            # only now it is sure that the form was what it refused
            self._not_taken().update(refused)
            if form == SCHEMA and turn_so_far.free:
                self._not_taken().add(form)
            return

    def _stream_turn(
        self, payload: Mapping[str, Any], turn_so_far: _StreamedTurn, run_manager: CallbackManagerForLLMRun | None
    ) -> Iterator[ChatGenerationChunk]:
        names = self.mask() if self.mask is not None else None
        objects = self.endpoint.stream(payload if names is None else masked(payload, names))
        for event in objects if names is None else unmasked(objects, names):
            text = turn_so_far.take(event)
            if text:
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=text))
                if run_manager is not None:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
        yield ChatGenerationChunk(message=turn_so_far.last(self.name_there, self.max_tokens))

    def _not_taken(self) -> set[str]:
        return _NOT_TAKEN.setdefault((self.endpoint.url, self.name_there), set())

    def _forms(self) -> Sequence[str]:
        return [form for form in FORMS if form not in self._not_taken()] or [WORDS]

    def _payload(
        self, messages: Sequence[BaseMessage], tools: Sequence[Tool], *, form: str, answer: bool, stop: list[str] | None
    ) -> dict[str, Any]:
        wire_messages = plain(messages, tools, answer=answer) if tools and form != TOOLS else convert_to_openai_messages(messages)
        size = sum(len(json.dumps(message, ensure_ascii=False)) for message in wire_messages) // CHARS_PER_TOKEN
        if self.context and size + self.max_tokens > self.context:
            raise ModelError(
                f"{self.name_there}: about {size:,} tokens in the messages and {self.max_tokens:,} for the answer, "
                f"the model has room for {self.context:,}; ask about less, or correct model.context"
            )
        payload: dict[str, Any] = {"model": self.name_there, "messages": wire_messages, "max_tokens": self.max_tokens}
        payload |= {"temperature": self.temperature, "stream": True, "stream_options": {"include_usage": True}}
        if tools and form == TOOLS:
            named_choice = {"type": "function", "function": {"name": tools[0]["function"]["name"]}}
            tool_choice = "auto" if answer else named_choice if len(tools) == 1 else "required"
            payload |= {"tools": list(tools), "tool_choice": tool_choice}
        # inside JSON a stop word would cut the turn in two
        return payload | ({"stop": stop} if stop and not tools else {})


class _StreamedTurn:
    """What a stream said so far."""

    def __init__(self, *, structured: bool = False) -> None:
        self.finish = ""
        self.calls: dict[int, dict[str, str]] = {}
        self.usage: Mapping[str, Any] = {}
        self._reader = AnswerReader() if structured else None
        self._raw, self._answer_text = "", ""
        """The text of a turn, and what of it was given on as an answer."""

    @property
    def free(self) -> bool:
        """Whether it said something else than a turn, as a model does that is held to nothing."""
        return bool(self._raw.strip()) and not self._raw.lstrip().startswith("{")

    def take(self, event: Mapping[str, Any]) -> str:
        """Return the text that an object adds to the answer; its calls are kept until they are whole."""
        self.usage = event.get("usage") or self.usage
        choices = event.get("choices") or [{}]
        first = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else {}
        self.finish = first.get("finish_reason") or self.finish
        delta = first.get("delta") or {}
        for place, call in enumerate(delta.get("tool_calls") or []):
            entry = self.calls.setdefault(call.get("index", place), {"id": "", "name": "", "args": ""})
            function = call.get("function") or {}
            entry["id"] = entry["id"] or str(call.get("id") or "")
            entry["name"] += str(function.get("name") or "")
            arguments = function.get("arguments") or ""
            entry["args"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
        content = delta.get("content")
        text = content if isinstance(content, str) else ""
        return text if self._reader is None else self._of_turn(text)

    def _of_turn(self, text: str) -> str:
        assert self._reader is not None
        self._raw += text
        added = self._reader.feed(text)
        if self.free and not self._raw.lstrip().startswith(("<", "`")):
            # no turn: it speaks freely
            added = self._raw[len(self._answer_text) :]
        self._answer_text += added
        return added

    def _remaining_turn(self, *, cut: bool) -> tuple[str, list[dict[str, str]]]:
        """Return what is still to be given of the answer, and the call of a turn in JSON."""
        if self._reader is None or self.calls or not self._raw.strip():
            return "", []
        if self._answer_text:
            return "", []
        try:
            answer, call = read_turn(self._raw)
        except ModelError:
            return "", [{"id": "", "name": "", "args": self._raw if cut else f"no turn: {self._raw[:200]}"}]
        return answer, [{"id": "", "name": call["name"], "args": json.dumps(call["args"])}] if call else []

    def last(self, name: str, limit: int) -> AIMessageChunk:
        """Return the end of the message: its calls, why it ended, what it took."""
        cut = self.finish == "length"
        remaining, turn = self._remaining_turn(cut=cut)
        calls: list[Any] = [_call(entry, place, cut=cut) for place, entry in enumerate([*self.calls.values(), *turn])]
        usage = None
        if self.usage:
            input_tokens, output_tokens = int(self.usage.get("prompt_tokens") or 0), int(self.usage.get("completion_tokens") or 0)
            usage = UsageMetadata(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens)
        return AIMessageChunk(
            content=remaining + (CUT.format(tokens=limit) if cut else ""),
            tool_call_chunks=calls,
            usage_metadata=usage,
            response_metadata={"finish_reason": self.finish, "model_name": name},
            chunk_position="last",
        )


def _call(entry: Mapping[str, str], place: int, *, cut: bool) -> dict[str, Any]:
    """Return a tool call; one without whole arguments stays unreadable, so that nobody mends it into another call."""
    arguments = entry["args"] or "{}"
    try:
        whole = isinstance(json.loads(arguments), dict) and not cut
    except ValueError:
        whole = False
    identity = entry["id"] or f"call_{uuid.uuid4().hex[:12]}"
    return {
        "type": "tool_call_chunk",
        "name": entry["name"],
        "args": arguments if whole else f"cut short: {arguments}",
        "id": identity,
        "index": place,
    }
