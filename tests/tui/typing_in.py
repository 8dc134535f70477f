"""What a person does at the prompt, and what they see in the conversation."""

from __future__ import annotations

from textual.pilot import Pilot
from textual.widgets import Static

from assistant.tui.app import ChatApp
from assistant.tui.frame import Plain
from assistant.tui.widgets.conversation import Conversation
from assistant.tui.widgets.exchange import AnswerMarkdown, Exchange
from assistant.tui.widgets.prompt import Prompt
from tests.tui.waiting import until


def conversation(app: ChatApp) -> Conversation:
    return app.main.query_one(Conversation)


def prompt(app: ChatApp) -> Prompt:
    return app.main.query_one(Prompt)


def exchange(app: ChatApp, number: int) -> Exchange:
    return next(one for one in conversation(app).query(Exchange) if one.number == number)


def seen_text(app: ChatApp, number: int | None = None) -> str:
    """Return all that the conversation holds, or one exchange of it, on the screen or scrolled away."""
    exchanges = [one for one in conversation(app).query(Exchange) if one.number == number]
    if number is not None and not exchanges:
        return ""
    texts = []
    for one in (exchanges[0] if exchanges else conversation(app)).query("*"):
        if isinstance(one, AnswerMarkdown):
            texts.append(one.source)
        elif isinstance(one, (Static, Plain)) and one.display:
            texts.append(str(one.render()))
    return "\n".join(texts)


async def say(pilot: Pilot[int], text: str) -> None:
    """Type a line and hand it over."""
    assert isinstance(pilot.app, ChatApp)
    line = prompt(pilot.app)
    line.fill(text)
    await pilot.pause()
    line.completion.show([])
    await pilot.press("enter")
    await pilot.pause()


async def answered(pilot: Pilot[int], number: int) -> None:
    """Wait for the answer to a question."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(
        pilot,
        lambda: any(one.number == number and one.reply.answer for one in conversation(app).query(Exchange)),
        f"the answer to {number}; seen:\n{seen_text(app)}",
    )
