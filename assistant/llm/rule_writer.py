"""A language model as a writer of filter rules: it proposes, the votes and the proof decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assistant.llm.trial import writer_of

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


class ModelWriter:
    """A `RuleWriter` over a language model."""

    def __init__(self, name: str, chat: BaseChatModel) -> None:
        """Take a model.

        Args:
            name: Under which its rules are kept, such as the file's name.
            chat: Asked anew for every proposal; it should not always give the same answer.
        """
        self.name = name
        self._write = writer_of(chat)

    def propose(self, lines: Sequence[str]) -> str:
        """Return a pattern for lines like these.

        Raises:
            Unavailable: The model did not answer.
            ModelError: It cannot be asked this.
        """
        return self._write(lines)
