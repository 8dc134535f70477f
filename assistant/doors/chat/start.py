"""Start the chat on the settings of this machine."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

from assistant.config import Settings
from assistant.doors.chat.app import ChatApp
from assistant.doors.chat.desk import Desk
from assistant.ports import SystemClock

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.wiring import Agent


class FromSettings:
    """Builds engine and agent as the settings want them."""

    def __init__(self, settings: Settings, *, model: bool = True) -> None:
        self._settings, self._model = settings, model

    def engine(self) -> Engine:
        """Return an engine whose questions wait in the inbox."""
        from assistant.wiring import build

        return build(self._settings)

    def agent(self, engine: Engine, thread: str) -> tuple[Agent, str]:
        """Return what answers, and what the status line calls it."""
        from assistant.wiring import open_agent

        agent = open_agent(engine, self._settings, model=self._model, thread=thread)
        return agent, mode_of(self._settings, model=self._model)


def mode_of(settings: Settings, *, model: bool) -> str:
    """Return in a few words what answers questions."""
    from assistant.llm.models import is_set

    if model and is_set(settings.model):
        path = settings.model.path
        return settings.model.name or (path.name if path is not None else "language model")
    from assistant.llm.embedded import intents

    return "embedded model, no language model" if intents(settings.content, "question") is not None else "words only"


def run(settings: Settings, *, thread: str, theme: str, model: bool) -> int:
    """Run the chat until the person leaves, and return the exit code."""
    from assistant.engine.lease import owner_name

    by = f"chat:{getpass.getuser()}"
    starts = FromSettings(settings, model=model)
    app = ChatApp(lambda post: Desk(starts, post, by=by, owner=owner_name(by), clock=SystemClock()), thread=thread, theme=theme)
    app.run()
    return app.return_code or 0
