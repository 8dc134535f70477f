"""Chat models of LangChain that call tools: one turn of the conversation, and a GGUF model that takes it.

A turn is one line of JSON, `{"answer": …}` or `{"tool": …, "args": {…}}`, whatever form of tool calls a model was trained on: the
grammar leaves it no other way, so one form serves all models. An answer streams as it is written.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from assistant.errors import ModelError
from assistant.llm.grammar import Node, Text, choice, to_gbnf
from assistant.llm.grammar_schema import object_of, of_schema, text_in_quotes
from assistant.llm.process import AnswerPiece, AnswerSummary, Ask, ModelProcess
from assistant.redact import head_of

Tool = Mapping[str, Any]
"""As OpenAI writes it: `type`, `function` with `name`, `description`, `parameters`."""
Inventory = Mapping[str, Sequence[str]]
"""By name of an argument, what exists: `{"job": ["4821", …]}`; what matters most first."""
MOST_NAMES = 400
"""Names that an argument may be given; more only make a request to an endpoint longer."""
_WORDS = re.compile(r"[\w.-]{2,}")
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "user"}
_BEGINNING = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json)?\s*+(.*\S)\s*```\Z", re.DOTALL)
_REPLACEMENT = "\ufffd"
"""Stands for half a character."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def offered_tools(tools: Sequence[Tool], tool_choice: Any) -> tuple[list[Tool], bool]:
    """Return the tools of a turn, and whether it may be an answer instead.

    Args:
        tools: All that were bound.
        tool_choice: `tool_choice` of LangChain: None or `auto`, `none`, `any`, `required`, True, a name, or OpenAI's form of
            a name.

    Raises:
        ModelError: There is no tool of that name.
    """
    if isinstance(tool_choice, Mapping):
        tool_choice = tool_choice.get("function", {}).get("name", "")
    if tool_choice in (None, False, "auto"):
        return list(tools), True
    if tool_choice == "none":
        return [], True
    if tool_choice in ("any", "required") or tool_choice is True:
        return list(tools), False
    named_tools = [tool for tool in tools if tool["function"]["name"] == tool_choice]
    if not named_tools:
        raise ModelError(
            f"the tool {tool_choice!r} was to be called; bound are: {', '.join(tool['function']['name'] for tool in tools)}"
        )
    return named_tools, False


def bounded(tools: Sequence[Tool], inventory: Inventory, conversation: str) -> list[Tool]:
    """Return the tools with arguments that can only be what exists.

    Args:
        tools: As they were bound.
        inventory: What exists, by name of an argument; an argument without an entry, or with an empty one, stays as it is.
        conversation: What was said so far: of too many names, those that stand in it come first.
    """
    fitting_names = {name: fitting(values, conversation) for name, values in inventory.items() if values}
    return [{**tool, "function": {**tool["function"], "parameters": _bound(_parameters(tool), fitting_names)}} for tool in tools]


def fitting(names: Sequence[str], conversation: str, most: int = MOST_NAMES) -> list[str]:
    """Return at most so many names: those that were said, those that begin alike, then the first ones; in their own order."""
    if len(names) <= most:
        return list(names)
    words = set(_WORDS.findall(conversation))
    starts = {word[:size] for word in words for size in range(3, len(word) + 1)}
    nearness = [(0 if name in words else 1 if name[:-1] in starts or name[:4] in starts else 2, n) for n, name in enumerate(names)]
    return [names[n] for n in sorted(n for _, n in sorted(nearness)[:most])]


def _bound(schema: Mapping[str, Any], inventory: Inventory) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return dict(schema)
    return {
        **schema,
        "properties": {name: _one_of(inner, inventory[name]) if name in inventory else inner for name, inner in properties.items()},
    }


def _one_of(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    about = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    if "anyOf" in schema:
        return {**about, "anyOf": [_one_of(option, names) for option in schema["anyOf"]]}
    match schema.get("type"):
        case "string":
            # a narrower list of the tool itself stays
            return dict(schema) if "enum" in schema or "const" in schema else {**about, "type": "string", "enum": list(names)}
        case "integer":
            numbers = [int(name) for name in names if name.isdecimal()]
            return {**about, "type": "integer", "enum": numbers} if numbers else dict(schema)
        case "array":
            return {**schema, "items": _one_of(schema.get("items", {}), names)}
        case _:
            return dict(schema)


def turn_of(tools: Sequence[Tool], *, answer: bool) -> Node:
    """Return what may be said in a turn.

    Raises:
        ModelError: A tool's arguments cannot be held by a grammar; the message names the tool.
    """
    options = [object_of([("answer", text_in_quotes(1, None))], ["answer"])] if answer else []
    for tool in tools:
        name = tool["function"]["name"]
        try:
            arguments = of_schema(_parameters(tool))
        except ModelError as error:
            raise ModelError(f"tool {name}: {error}") from error
        options.append(object_of([("tool", Text(json.dumps(name))), ("args", arguments)], ["tool", "args"]))
    return choice(options)


def schema_of_turn(tools: Sequence[Tool], *, answer: bool) -> dict[str, Any]:
    """Return what may be said in a turn as a JSON schema, for endpoints that hold a model to one."""

    def of(properties: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False}

    options = [of({"answer": {"type": "string"}})] if answer else []
    for tool in tools:
        name = {"type": "string", "enum": [tool["function"]["name"]]}
        options.append(of({"tool": name, "args": {"additionalProperties": False, **_parameters(tool)}}))
    return options[0] if len(options) == 1 else {"anyOf": options}


def read_turn(raw: str) -> tuple[str, dict[str, Any] | None]:
    """Return the answer and the call (`name`, `args`) of a turn that no grammar held; text that is no turn is an answer.

    Raises:
        ModelError: It is neither: JSON of another form, or cut off in the middle.
    """
    text = _FENCED.sub(r"\1", _THOUGHT.sub("", raw).strip())
    if not text.startswith("{"):
        return text, None
    try:
        turn, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the turn {head_of(text, 60)!r} is cut or no JSON") from error
    if isinstance(turn.get("answer"), str):
        return turn["answer"], None
    if isinstance(turn.get("tool"), str) and isinstance(turn.get("args", {}), dict):
        return "", {"name": turn["tool"], "args": turn.get("args", {})}
    raise ModelError(f"the turn {head_of(text, 60)!r} is neither an answer nor a call")


def _parameters(tool: Tool) -> Mapping[str, Any]:
    parameters: Mapping[str, Any] = tool["function"].get("parameters") or {"type": "object", "properties": {}}
    return parameters


def plain(messages: Sequence[BaseMessage], tools: Sequence[Tool], *, answer: bool) -> list[dict[str, str]]:
    """Return messages as roles and texts; the tools are told with the system message, which stays the same from turn to turn."""
    wire_messages = [{"role": _ROLES.get(message.type, "user"), "content": _content(message)} for message in messages]
    if not tools:
        return wire_messages
    rules = _instructions(tools, answer=answer)
    if wire_messages and wire_messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{wire_messages[0]['content']}\n\n{rules}"}, *wire_messages[1:]]
    return [{"role": "system", "content": rules}, *wire_messages]


def _instructions(tools: Sequence[Tool], *, answer: bool) -> str:
    end = ' or {"answer": "your text"} to answer' if answer else ""
    lines = [f'Reply with one line of JSON: {{"tool": "its name", "args": {{its arguments}}}} to use a tool{end}. The tools:']
    for tool in tools:
        function = tool["function"]
        about = " ".join(str(function.get("description", "")).split())
        lines.append(
            f"- {function['name']}: {about} Arguments: {json.dumps(_without_titles(_parameters(tool)), ensure_ascii=False)}"
        )
    return "\n".join(lines)


def _without_titles(schema: Any) -> Any:
    """Return a schema without what only programs read."""
    if isinstance(schema, Mapping):
        return {key: _without_titles(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    return [_without_titles(item) for item in schema] if isinstance(schema, list) else schema


def _content(message: BaseMessage) -> str:
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = (json.dumps({"tool": call["name"], "args": call["args"]}, ensure_ascii=False) for call in message.tool_calls)
        return "\n".join(calls)
    text = str(message.text)
    return f"Result of {message.name or 'the tool'}:\n{text}" if isinstance(message, ToolMessage) else text


def _escaped(raw: str, at: int) -> tuple[str, int] | None:
    """Return what an escape in a JSON string means and where it ends; None while its end has not come."""
    kind = raw[at + 1 : at + 2]
    if kind != "u":
        return (_ESCAPES.get(kind, kind), at + 2) if kind else None
    first = raw[at + 2 : at + 6]
    if len(first) < 4:
        return None
    point = _point(first)
    if not 0xD800 <= point < 0xDC00:
        return (_REPLACEMENT if point < 0 or 0xDC00 <= point < 0xE000 else chr(point)), at + 6
    follows = raw[at + 6 : at + 12]
    if not "\\u".startswith(follows[:2]):
        return _REPLACEMENT, at + 6
    if len(follows) < 6:
        return None
    low = _point(follows[2:])
    if not 0xDC00 <= low < 0xE000:
        return _REPLACEMENT, at + 6
    return chr(0x10000 + ((point - 0xD800) << 10) + low - 0xDC00), at + 12


def _point(digits: str) -> int:
    return int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]{4}", digits) else -1


class AnswerReader:
    """Takes a turn piece by piece and gives the text of its answer as it comes."""

    def __init__(self) -> None:
        self.raw = ""
        """All that was said so far."""
        self._at: int | None = None
        self._over = False

    def feed(self, piece: str) -> str:
        """Return what the piece adds to the answer; nothing while the turn is, or may be, a tool call."""
        self.raw += piece
        if self._at is None:
            match = _BEGINNING.match(self.raw)
            self._at = match.end() if match else None
        if self._at is None or self._over:
            return ""
        added = []
        while self._at < len(self.raw):
            sign, after = self.raw[self._at], self._at + 1
            if sign == '"':
                self._over = True
                break
            if sign == "\\":
                unescaped = _escaped(self.raw, self._at)
                if unescaped is None:
                    break
                sign, after = unescaped
            added.append(sign)
            self._at = after
        return "".join(added)

    @property
    def answers(self) -> bool:
        """Whether the turn is an answer."""
        return self._at is not None


CUT = "\n[cut here: the limit of {tokens} tokens was reached]"
"""What stands behind an answer that did not come to its end."""


def nothing_known() -> Inventory:
    """Return the inventory of nobody: arguments stay free."""
    return {}


class ToolChat(BaseChatModel):
    """What the chat models share: tools are bound as OpenAI writes them, their arguments limited to what exists in each turn."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inventory: Callable[[], Inventory] = Field(default=nothing_known, exclude=True)
    """Tells what exists, by name of an argument; asked in every turn."""
    max_tokens: int = 1024
    """Of one answer."""
    temperature: float = 0.0

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: Any = None, **more: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with tools that it may call."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **more)

    def tools_of(
        self, messages: Sequence[BaseMessage], bound_tools: Sequence[Tool], tool_choice: Any
    ) -> tuple[list[Tool], list[Tool], bool]:
        """Return the tools of a turn as they were bound, the same limited to what exists, and whether it may be an answer."""
        tools, answer = offered_tools(bound_tools, tool_choice)
        inventory = self.inventory() if tools else {}
        conversation = "\n".join(str(message.text) for message in messages) if inventory else ""
        return tools, bounded(tools, inventory, conversation), answer

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        whole: AIMessageChunk | None = None
        for chunk in self._stream(messages, stop, run_manager, **more):
            assert isinstance(chunk.message, AIMessageChunk)
            whole = chunk.message if whole is None else whole + chunk.message
        assert whole is not None
        message = AIMessage(
            content=whole.content,
            tool_calls=whole.tool_calls,
            invalid_tool_calls=whole.invalid_tool_calls,
            usage_metadata=whole.usage_metadata,
            response_metadata=whole.response_metadata,
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class ChatLocalModel(ToolChat):
    """Speaks with a model in its own process."""

    process: ModelProcess = Field(exclude=True)
    seed: int = 0
    opening: str = ""
    """What the model is given to say first, see `Ask`."""

    @property
    def _llm_type(self) -> str:
        return "nightshift-gguf"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"path": str(self.process.path), "max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}

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
        ask = Ask(
            plain(messages, shown_tools, answer=answer),
            to_gbnf(turn_of(callable_tools, answer=answer)) if callable_tools else "",
            self.max_tokens,
            self.temperature,
            self.seed,
            # inside JSON a stop word would cut the turn in two
            () if callable_tools else tuple(stop or ()),
            self.opening,
        )
        reader = AnswerReader()
        for part in self.process.say(ask):
            if isinstance(part, AnswerPiece):
                text = reader.feed(part.text) if callable_tools else part.text
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=text))
            else:
                chunk = ChatGenerationChunk(message=self._last(part, reader, structured=bool(callable_tools)))
                text = str(chunk.message.text)
            if text or not isinstance(part, AnswerPiece):
                if run_manager is not None and text:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk

    def _last(self, summary: AnswerSummary, reader: AnswerReader, *, structured: bool) -> AIMessageChunk:
        cut = summary.finish != "stop"
        content = CUT.format(tokens=summary.limit or self.max_tokens) if cut else ""
        call = [] if not structured or reader.answers else [_call(reader.raw, cut=cut)]
        total = summary.input_tokens + summary.output_tokens
        usage = UsageMetadata(
            input_tokens=summary.input_tokens,
            output_tokens=summary.output_tokens,
            total_tokens=total,
            input_token_details={"cache_read": summary.cached_tokens},
        )
        about = {"finish_reason": summary.finish, "model_name": self.process.path.name}
        return AIMessageChunk(
            content=content, tool_call_chunks=call, usage_metadata=usage, response_metadata=about, chunk_position="last"
        )


def _call(raw: str, *, cut: bool) -> Any:
    """Return a tool call; one that was cut short stays unreadable, so that LangChain does not mend it into a call nobody made."""
    identity = f"call_{uuid.uuid4().hex[:12]}"
    try:
        turn = json.loads(raw)
    except ValueError:
        cut = True
    if cut:
        return {"type": "tool_call_chunk", "name": None, "args": f"cut short: {raw}", "id": identity, "index": 0}
    return {"type": "tool_call_chunk", "name": turn["tool"], "args": json.dumps(turn["args"]), "id": identity, "index": 0}
