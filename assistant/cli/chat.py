"""`nightshift chat`: the full-screen chat."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.cli.context import door_of
from assistant.cli.group import app, examples

chat_app = app(help="Talk with Nightshift beside live incidents, approvals, jobs and nodes.")


@chat_app.command(
    epilog=examples(
        "nightshift chat",
        "nightshift chat --resume    # go on with the newest conversation",
        "nightshift chat --resume 2026-01-05-0210 --no-model",
    )
)
def chat(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the conversation; by default it is named by the time.", show_default=False)
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with that conversation; without a name with the newest.")] = False,
    no_model: Annotated[bool, typer.Option("--no-model", help="Answer without the configured language model.")] = False,
    theme: Annotated[
        str, typer.Option("--theme", metavar="NAME", help="Colours: nightshift, nightshift-light, or a theme of Textual.")
    ] = "nightshift",
) -> None:
    """Talk with Nightshift beside live incidents, approvals, jobs and nodes.

    What is wrong, what waits for you and what happened is one key away; / lists the commands, F1 the keys. Every change shows its
    exact command before anybody allows it. Conversations are kept; --resume goes on with one.
    """
    from assistant.cli.terminal import need_terminal

    need_terminal()
    from assistant.tui.start import run

    raise typer.Exit(run(door_of(context).settings, thread=name, resume=resume, theme=theme, model=not no_model))
