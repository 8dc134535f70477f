"""`nightshift ask`, `explain` and `chat`: a question in words, the report of an incident, and the full-screen chat."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation, Json, app, examples, incident_ids, invocation_of, row_number
from assistant.cli.output import Exit, print_block, print_line, print_record

if TYPE_CHECKING:
    from assistant.agent.answer import Answer
    from assistant.engine import Engine


ask_app = app(help="Ask about jobs, nodes and incidents in plain words.")
explain_app = app(help="Write the report of an incident.")

READ_CHARACTERS = 1_100_000
"""Of standard input; a question is far shorter, and what is longer is refused by its length."""


@ask_app.command(
    epilog=examples(
        'nightshift ask "why did 4821 die?"',
        'nightshift ask "what is wrong now?" --json | jq -r .text',
        'nightshift ask "which nodes are cordoned?" "and node07?"',
        'nightshift ask --talk night "why did 4821 die?"; nightshift ask --talk night "and its log?"',
        "echo 'newest healthy checkpoint of 4821' | nightshift ask -",
    )
)
def ask(
    context: typer.Context,
    question: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION...", help="One question, or several in a row, each in quotes; - reads one from stdin."),
    ],
    sources: Annotated[bool, typer.Option("--sources", help="Print the calls that the answer rests on.")] = False,
    no_model: Annotated[bool, typer.Option("--no-model", help="Answer without the configured language model.")] = False,
    talk: Annotated[
        str,
        typer.Option(
            "--talk", metavar="NAME", help="Go on with this conversation: it, and the one before, mean what was spoken of in it."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Ask about jobs, nodes and incidents in plain words.

    The answer names what it rests on, [1]. A change is proposed at most, and never because of piped text; whoever says yes does it
    with nightshift approve. Exit codes: 0 answered, 1 not known or asked back, 3 a change was refused, 4 a change waits.
    """
    from assistant.wiring import open_agent

    invocation = invocation_of(context)
    agent = open_agent(_engine(invocation), invocation.settings, model=not no_model, thread=talk)
    code = Exit.DONE
    for number, text in enumerate(_questions(question)):
        answer = agent.ask(text, trusted="-" not in question)
        if as_json:
            print_record(answer)
        else:
            if number:
                print_line()
            _print(answer, sources=sources)
            if answer.mode.startswith("model:"):
                invocation.say(f"answered by {answer.mode}; words of a model, checked against [n]")
            else:
                invocation.say("answered without a language model")
        code = _exit_of(answer)
    raise typer.Exit(code)


@explain_app.command(epilog=examples("nightshift explain 3", "nightshift explain 3 > incident-3.md"))
def explain(
    context: typer.Context,
    incident: Annotated[
        int, typer.Argument(parser=row_number, metavar="INCIDENT", help="Id of the incident.", autocompletion=incident_ids)
    ],
    no_model: Annotated[bool, typer.Option("--no-model", help="Leave out the configured language model's summary.")] = False,
) -> None:
    """Write the report of an incident.

    As Markdown: what happened, what shows it, what was weighed, what was done and how to take it back, what is left to do. Where
    the configured language model has shown by nightshift model test that it sums up well, its summary stands first, checked.
    """
    from assistant.engine.report import report

    invocation = invocation_of(context)
    store = invocation.store
    store.incident(incident)
    by, text = ("", "") if no_model else _summed_up(invocation, incident)
    print_block(report(store, incident, summed_up=text, by=by).rstrip("\n"))


def _summed_up(invocation: Invocation, incident: int) -> tuple[str, str]:
    """Return the name of the configured model and its summary; both empty where there is none that may, or none that stands."""
    from assistant.llm.models import is_set

    if not is_set(invocation.settings.model):
        return "", ""
    from assistant.agent.grounding import summed_up
    from assistant.engine.report import summary_lines
    from assistant.errors import NightshiftError
    from assistant.wiring import summariser_for

    try:
        summariser = summariser_for(invocation.settings, invocation.store)
    except (NightshiftError, OSError) as error:
        invocation.say(f"no summary by the language model: {error}")
        return "", ""
    lines = summary_lines(invocation.store, incident)
    if summariser is None or not lines:
        return "", ""
    by, write = summariser
    summed = summed_up(lines, write)
    if summed.why_not:
        invocation.say(f"the summary of {by} was left out: {summed.why_not}")
    return by, summed.text


def _engine(invocation: Invocation) -> Engine:
    """Build the engine whose questions wait in the inbox: words never approve anything, nor does who typed them."""
    from assistant.cli.context import listen
    from assistant.wiring import build

    listen(invocation.verbose, quiet=invocation.quiet)
    engine = build(invocation.settings, configured=invocation.loaded.names("scheduler"))
    invocation.at_end.append(engine.store.close)
    return engine


def _questions(words: list[str]) -> list[str]:
    return [sys.stdin.read(READ_CHARACTERS) if word == "-" else word for word in words]


def _print(answer: Answer, *, sources: bool) -> None:
    print_block(answer.text)
    for note in answer.notes:
        print_line(f"Note: {note}")
    if sources:
        print_line()
        for source in answer.sources:
            print_line(f"[{source.number}] {source.call}{f': {source.error}' if source.error else ''}")
        if answer.evidence:
            print_line(f"evidence {', '.join(str(number) for number in answer.evidence)}")


def _exit_of(answer: Answer) -> Exit:
    from assistant.agent.answer import AnswerKind

    codes = {AnswerKind.ANSWER: Exit.DONE, AnswerKind.PROPOSAL: Exit.WAITS, AnswerKind.REFUSED: Exit.REFUSED}
    return codes.get(answer.kind, Exit.ERROR)


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
    from assistant.cli.output import need_terminal

    need_terminal()
    from assistant.tui.launch import run

    loaded = invocation_of(context).loaded
    configured = loaded.names("scheduler")
    raise typer.Exit(run(loaded.settings, thread=name, resume=resume, theme=theme, model=not no_model, configured=configured))
