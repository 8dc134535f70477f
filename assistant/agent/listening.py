"""What a language model says while it says it, told on to whoever listens."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from assistant.agent.answer import Heard


class Ears(BaseCallbackHandler):
    """Tells a listener each piece of text; what the listener raises ends the model's turn."""

    raise_error = True

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def on_llm_new_token(self, token: str | list[str | dict[str, Any]], **_: Any) -> None:
        """Tell a piece."""
        if token and isinstance(token, str):
            self._heard(token)

    def on_llm_end(self, *_: Any, **__: Any) -> None:
        """Tell that a turn of the model is over, and that a call may come."""
        self._heard("")
