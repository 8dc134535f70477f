"""The start of the chat on the settings of this machine."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from assistant.config import Settings
from assistant.errors import UsageError
from assistant.overall_state import longest_gap
from assistant.ports import SystemClock
from assistant.process_memory import Garbage, give_back
from assistant.tui.app import ChatApp
from assistant.tui.backend import ChatBackend
from assistant.tui.frame import DARK
from assistant.tui.sessions import Talks, checked
from assistant.tui.terminal import KEEP_TITLE, RESTORE_TITLE, write_outside

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.wiring import Agent


class FromSettings:
    """Builds engine and agent as the settings want them."""

    def __init__(self, settings: Settings, *, model: bool = True, configured: bool = True) -> None:
        self._settings, self._model, self._configured = settings, model, configured

    def engine(self) -> Engine:
        """Return an engine whose questions wait in the inbox."""
        from assistant.wiring import build

        return build(self._settings, configured=self._configured)

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


def run(
    settings: Settings,
    *,
    thread: str = "",
    resume: bool = False,
    theme: str = DARK.name,
    model: bool = True,
    configured: bool = True,
) -> int:
    """Run the chat until the person leaves, and return the exit code.

    Args:
        settings: Of this machine.
        thread: Name of the conversation; empty for a new one named by the time, or for the newest one.
        resume: Whether to go on with a conversation that is kept.
        theme: Colours.
        model: Whether the configured language model answers.
        configured: Whether anybody has said where jobs run; else the chat says how to begin.

    Raises:
        UsageError: There is no such conversation, or one of that name where a new one is wanted; there is no such theme.
    """
    app = app_on(settings, thread=thread, resume=resume, model=model, configured=configured)
    if theme not in app.available_themes:
        raise UsageError(f"there is no theme {theme!r}; known: {', '.join(sorted(app.available_themes))}")
    app.theme = theme
    give_back()
    write_outside(KEEP_TITLE)
    try:
        app.run()
    finally:
        write_outside(RESTORE_TITLE)
    return app.return_code or 0


def app_on(settings: Settings, *, thread: str = "", resume: bool = False, model: bool = True, configured: bool = True) -> ChatApp:
    """Return the chat, not yet running; see `run`."""
    from assistant.accounts import own_name
    from assistant.engine.ownership import owner_name

    by = f"chat:{own_name()}"
    starts, clock = FromSettings(settings, model=model, configured=configured), SystemClock()
    gap = longest_gap(settings.watch.poll_s)
    talks = Talks(settings.state_folder / "conversations")
    name = conversation_name(talks, thread, resume=resume, now=clock.now())
    owner = owner_name(by)
    return ChatApp(
        lambda post: ChatBackend(starts, post, by=by, owner=owner, clock=clock, gap=gap, configured=configured),
        thread=name,
        talks=talks,
        garbage=Garbage(),
        settings=settings.chat,
    )


def conversation_name(talks: Talks, name: str, *, resume: bool, now: datetime) -> str:
    """Return the name of the conversation to begin or to go on with.

    Raises:
        UsageError: There is none to go on with, or one of that name already.
    """
    if resume:
        return talks.existing_name(name)
    if name and checked(name) in [session.name for session in talks.names()]:
        raise UsageError(f"there is a conversation {name!r} already; to go on with it: nightshift chat --resume {name}")
    return name or talks.free_name(now)
