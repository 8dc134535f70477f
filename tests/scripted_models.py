"""Models for tests that answer what they were told to: an embedder whose nearness is chosen, and a chat model.

The chat model also answers what a function makes of the conversation, as an adversary would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field, PrivateAttr, SkipValidation

from assistant.errors import ModelError
from assistant.llm.chat import Tool, ToolChat
from assistant.llm.embedded import vector_of


class ScriptedEmbedder:
    """An `Embedder` whose vectors stand in a table; a text that holds a key gets the key's vector, others are hashed."""

    def __init__(self, script: Mapping[str, Sequence[float]], *, name: str = "scripted-1", dims: int = 4) -> None:
        self.script, self.name, self.dims = dict(script), name, dims
        self.requests: list[str] = []
        """Every text so far."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vector of the first key that stands in each text; of other texts the hashed one, cut to the dimensions."""
        self.requests += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        for key, vector in self.script.items():
            if key in text:
                return _unit(vector)
        return _unit(vector_of(text)[: self.dims])


def _unit(vector: Sequence[float]) -> list[float]:
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector] if length else list(vector)


Says = Callable[[Sequence[BaseMessage], Sequence[Tool]], AIMessage]
"""Makes a turn of the messages so far and the tools that are bound."""


class Breaks(NamedTuple):
    """A turn that ends in its middle, as when the process of a model dies."""

    text: str
    error: Exception


def calls(name: str, **arguments: Any) -> AIMessage:
    """Return a turn that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"scripted_{name}", "type": "tool_call"}])


class ScriptedChat(ToolChat):
    """A chat model whose turns stand in a list, or come from a function; a turn that is an exception is raised."""

    script: Annotated[Sequence[AIMessage | str | Exception | Breaks], SkipValidation] = Field(default=(), exclude=True)
    """One for each turn; a text stands for an answer."""
    says: Says | None = Field(default=None, exclude=True)
    """Instead of the script, for as many turns as are asked."""
    forced: Says | None = Field(default=None, exclude=True)
    """What it says where a call is demanded; default: the same as else."""
    _remaining_script: list[AIMessage | str | Exception | Breaks] = PrivateAttr(default_factory=list)
    _requests: list[tuple[list[BaseMessage], list[str]]] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        """Begin the script."""
        super().model_post_init(context)
        self._remaining_script = list(self.script)

    @property
    def requests(self) -> list[tuple[list[BaseMessage], list[str]]]:
        """The messages and the names of the tools of every turn so far."""
        return self._requests

    @property
    def _llm_type(self) -> str:
        return "nightshift-scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[Tool] = (),
        tool_choice: Any = None,
        **_: Any,
    ) -> ChatResult:
        bound_tools, _callable_tools, answer = self.tools_of(messages, tools, tool_choice)
        self._requests.append((list(messages), [tool["function"]["name"] for tool in bound_tools]))
        says = self.says if answer or self.forced is None else self.forced
        if says is None and not self._remaining_script:
            raise ModelError(f"the script of the model ended after {len(self._requests) - 1} turns; write one more")
        turn = says(messages, bound_tools) if says is not None else self._remaining_script.pop(0)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, Breaks):
            _tell(turn.text, run_manager)
            raise turn.error
        message = AIMessage(turn) if isinstance(turn, str) else turn.model_copy(deep=True)
        _tell(str(message.text), run_manager)
        for call in message.tool_calls:
            # the same call twice would otherwise have one id
            call["id"] = f"{call['id']}_{len(self._requests)}"
        return ChatResult(generations=[ChatGeneration(message=message)])


def _tell(text: str, run_manager: CallbackManagerForLLMRun | None) -> None:
    """Tell listeners a text word by word, as models that stream do."""
    if run_manager is not None:
        for word in re.findall(r"\s*\S+\s*", text):
            run_manager.on_llm_new_token(word)
