"""What a model is given of a long conversation: what it has room for. The whole of it is kept, and `show N` shows a result in full.

Nothing is summed up by a model: that would cost a call, and could invent. First the oldest results of tools are cleared, then
the oldest questions shrink to a line each, then the newest results are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from assistant.agent.wording import one_line

CHARACTERS_A_TOKEN = 3
"""Logs and JSON take more tokens than English."""
KEPT_RESULTS = 2
"""Newest results that are given whole as long as there is room."""
LEAST = 4_000
"""Characters that are given in any case; a model without room for that says so itself."""
LINE = 160


class Shortener(AgentMiddleware[Any, Any]):
    """Gives a model as much of the conversation as it has room for."""

    def __init__(self, most: int) -> None:
        """Take how many characters there is room for, without the system message and the tools."""
        super().__init__()
        self._most = max(most, LEAST)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model with the shortened conversation; the state keeps the whole."""
        return handler(request.override(messages=shortened(request.messages, self._most)))


def shortened(messages: Sequence[Any], most: int) -> list[Any]:
    """Return messages that hold at most about so many characters; the newest question always, and no call without its result."""
    remaining = _answered(messages)
    if _size(remaining) <= most:
        return remaining
    remaining = _cleared(remaining, most)
    remaining = _summed_up(remaining, most)
    return _cut(remaining, most)


def _size(messages: Sequence[BaseMessage]) -> int:
    return sum(
        len(str(message.text)) + sum(len(str(call["args"])) + 40 for call in getattr(message, "tool_calls", ()))
        for message in messages
    )


def _answered(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Leave out calls that broke off before their result: no model goes on with such a conversation."""
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    unanswered = {
        id(message)
        for message in messages
        if isinstance(message, AIMessage) and {call["id"] for call in message.tool_calls} - results
    }
    unanswered_calls = {
        call["id"]
        for message in messages
        if id(message) in unanswered and isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    return [
        message
        for message in messages
        if id(message) not in unanswered and not (isinstance(message, ToolMessage) and message.tool_call_id in unanswered_calls)
    ]


def _cleared(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    cleared = list(messages)
    for place in [n for n, message in enumerate(cleared) if isinstance(message, ToolMessage)][:-KEPT_RESULTS]:
        if _size(cleared) <= most:
            break
        head = str(cleared[place].text).split("\n", 1)[0][:12]
        cleared[place] = cleared[place].model_copy(
            update={"content": f"{head} (cleared to make room; make the call again to read it)"}
        )
    return cleared


def _summed_up(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """Shrink the oldest questions, with all that was done for them, to a line each."""
    starts = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    remaining, lines = list(messages), list[str]()
    for begin, end in pairwise(starts):
        if _size(remaining) + sum(map(len, lines)) <= most:
            break
        reply = next(
            (
                str(message.text)
                for message in reversed(messages[begin:end])
                if isinstance(message, AIMessage) and str(message.text)
            ),
            "",
        )
        lines.append(f"- asked: {one_line(messages[begin].text, LINE)} / answered: {one_line(reply, LINE) or 'nothing'}")
        remaining = list(messages[end:])
    if not lines:
        return remaining
    # so many lines, too, must find room: the newest
    room = max(most // 4, 2 * LINE)
    while len(lines) > 1 and sum(map(len, lines)) > room:
        lines.pop(0)
    return [HumanMessage("Earlier in this conversation, shortened:\n" + "\n".join(lines)), *remaining]


def _cut(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    trimmed = list(messages)
    over = _size(trimmed) - most
    places = [n for n, message in enumerate(trimmed) if isinstance(message, ToolMessage)]
    for place in places if over > 0 else ():
        text = str(trimmed[place].text)
        length = max(len(text) - over, 400)
        if length < len(text):
            over -= len(text) - length
            short = f"{text[:length]}\n[cut to make room: {len(text) - length:,} more characters]\n</data>"
            trimmed[place] = trimmed[place].model_copy(update={"content": short})
    return trimmed
