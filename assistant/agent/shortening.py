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
    given = _answered(messages)
    if _size(given) <= most:
        return given
    given = _cleared(given, most)
    given = _summed_up(given, most)
    return _cut(given, most)


def _size(messages: Sequence[BaseMessage]) -> int:
    return sum(len(str(one.text)) + sum(len(str(call["args"])) + 40 for call in getattr(one, "tool_calls", ())) for one in messages)


def _answered(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Leave out calls that broke off before their result: no model goes on with such a conversation."""
    results = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
    lost = {id(one) for one in messages if isinstance(one, AIMessage) and {call["id"] for call in one.tool_calls} - results}
    gone = {call["id"] for one in messages if id(one) in lost and isinstance(one, AIMessage) for call in one.tool_calls}
    return [one for one in messages if id(one) not in lost and not (isinstance(one, ToolMessage) and one.tool_call_id in gone)]


def _cleared(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    given = list(messages)
    for place in [n for n, one in enumerate(given) if isinstance(one, ToolMessage)][:-KEPT_RESULTS]:
        if _size(given) <= most:
            break
        head = str(given[place].text).split("\n", 1)[0][:12]
        given[place] = given[place].model_copy(update={"content": f"{head} (cleared to make room; make the call again to read it)"})
    return given


def _summed_up(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """Shrink the oldest questions, with all that was done for them, to a line each."""
    starts = [n for n, one in enumerate(messages) if isinstance(one, HumanMessage)]
    given, lines = list(messages), list[str]()
    for begin, end in pairwise(starts):
        if _size(given) + sum(map(len, lines)) <= most:
            break
        said = next((str(one.text) for one in reversed(messages[begin:end]) if isinstance(one, AIMessage) and str(one.text)), "")
        lines.append(f"- asked: {one_line(messages[begin].text, LINE)} / answered: {one_line(said, LINE) or 'nothing'}")
        given = list(messages[end:])
    if not lines:
        return given
    # so many lines, too, must find room: the newest
    room = max(most // 4, 2 * LINE)
    while len(lines) > 1 and sum(map(len, lines)) > room:
        lines.pop(0)
    return [HumanMessage("Earlier in this conversation, shortened:\n" + "\n".join(lines)), *given]


def _cut(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    given = list(messages)
    over = _size(given) - most
    places = [n for n, one in enumerate(given) if isinstance(one, ToolMessage)]
    for place in places if over > 0 else ():
        text = str(given[place].text)
        kept = max(len(text) - over, 400)
        if kept < len(text):
            over -= len(text) - kept
            short = f"{text[:kept]}\n[cut to make room: {len(text) - kept:,} more characters]\n</data>"
            given[place] = given[place].model_copy(update={"content": short})
    return given
