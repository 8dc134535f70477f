"""A GGUF model as a chat model of LangChain: every turn with tools is held to a grammar, an answer streams as it is said."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from assistant.llm.grammar import to_gbnf
from assistant.llm.process import AnswerPiece, AnswerSummary, Ask, ModelProcess
from assistant.llm.turn import AnswerReader, Inventory, Tool, bounded, chosen, plain, turn_of

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
        tools, answer = chosen(bound_tools, tool_choice)
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
