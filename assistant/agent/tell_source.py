"""A source of the last answer, shown whole: `show 1`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, cut_text
from assistant.agent.request_names import MODE

MOST_SHOWN = 60_000


def source_shown(sources: Sequence[AnswerSource], number: int) -> Answer:
    """Return a source of the last answer with all that it holds."""
    cited = next((source for source in sources if source.number == number), None)
    if cited is None:
        numbers = ", ".join(str(source.number) for source in sources)
        return Answer(f"The last answer has no source {number}; it has {numbers}.", AnswerKind.UNKNOWN, MODE, "show")
    text = cited.value if isinstance(cited.value, str) else json.dumps(cited.value, ensure_ascii=False, indent=2)
    body = cut_text(cited.error or text, MOST_SHOWN)
    return Answer(f"[{number}] {cited.call}\n{body}", AnswerKind.ANSWER, MODE, "show", sources=(cited,))
