"""`nightshift incident confirm`, `correct` and `forget`: a person's word on what an incident was, and what is learned from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.group import examples
from assistant.cli.incidents import Id, incident_app
from assistant.cli.options import Json
from assistant.cli.output import print_line, print_pairs, print_record

if TYPE_CHECKING:
    from assistant.diagnose.learn import Taught
    from assistant.engine.confirm import Confirmed

__all__ = ["incident_app"]

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Your words on it, for whoever reads it later.")]
Cure = Annotated[str, typer.Option("--cure", metavar="TEXT", help="What brought the job back, where Nightshift did not do it.")]


def _reasons(context: typer.Context, incomplete: str) -> list[str]:
    from assistant.content.reasons import reasons

    return [name for name in reasons(door_of(context).site) if name.startswith(incomplete)]


@incident_app.command("confirm", epilog=examples('nightshift incident confirm 3 --why "the DIMM was replaced"'))
def confirm_incident(context: typer.Context, incident: Id, why: Why = "", cure: Cure = "", as_json: Json = False) -> None:
    """Say that the diagnosis of an incident was right.

    It is then remembered, named when something like it comes, and counts for the learned rules that spoke in it. A diagnosis
    that memory or a model made becomes a signature on trial.
    """
    from assistant.engine.confirm import confirm

    _show(incident, confirm(door_of(context).engine(), incident, by=user(), why=why, cure=cure), as_json=as_json)


@incident_app.command(
    "correct",
    epilog=examples(
        'nightshift incident correct 3 --reason network_error --line "uplink lost" --why "switch 4 was rebooted"',
        "nightshift incident correct 3 --reason ecc_error --line dmesg.log:120 --action cordon_and_restart",
    ),
)
def correct_incident(
    context: typer.Context,
    incident: Id,
    reason: Annotated[str, typer.Option("--reason", metavar="REASON", help="What it really was.", autocompletion=_reasons)],
    line: Annotated[
        list[str] | None,
        typer.Option("--line", metavar="FILE:N|TEXT", help="A line that shows it: its place, or a piece of it. May be repeated."),
    ] = None,
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="What is to be done about it.")] = "",
    why: Why = "",
    cure: Cure = "",
    as_json: Json = False,
) -> None:
    """Say what an incident really was, so that the next one like it is known.

    The incident is remembered under the new reason, and its line becomes a signature on trial when it passes the proof: it must
    match nothing else that is known. Without --line Nightshift guesses which line shows it.
    """
    from assistant.engine.confirm import confirm

    engine = door_of(context).engine()
    correction = confirm(engine, incident, by=user(), reason=reason, action=action, lines=line or (), why=why, cure=cure)
    _show(incident, correction, as_json=as_json)


@incident_app.command("forget", epilog=examples('nightshift incident forget 3 --why "it was the cable after all"'))
def forget_incident(context: typer.Context, incident: Id, why: Why = "taken back", as_json: Json = False) -> None:
    """Take a confirmation back: the incident is no longer remembered.

    Learned rules that rest on it are retired. The incident itself, its diagnosis and the audit stay.
    """
    from assistant.engine.confirm import take_back

    engine = door_of(context).engine()
    removed = take_back(engine, incident, by=user(), why=why)
    if as_json:
        print_record(engine.store.incident(incident), forgotten=removed)
    else:
        print_line(f"incident {incident} is forgotten" if removed else f"incident {incident} was not remembered")


def _show(incident: int, correction: Confirmed, *, as_json: bool) -> None:
    if as_json:
        taught = correction.taught
        print_record(correction.diagnosis, incident=incident, learned=taught.learned, refused=taught.refused, judged=taught.judged)
        return
    print_line(f"incident {incident} was {correction.diagnosis.reason}, by the word of {user()}")
    print_pairs(
        [
            ("remembered", correction.taught.memory.lines if correction.taught.memory is not None else "no line shows it"),
            ("learned", learned_text(correction.taught)),
            (
                "judged",
                [f"{rule.id}: {rule.state}, {rule.hits} hits, {rule.misses} misses" for rule in correction.taught.judged],
            ),
        ]
    )


def learned_text(taught: Taught) -> str:
    """Return what became of the lesson's signature, in words."""
    if taught.learned is not None:
        return f"{taught.learned.id} on trial: {taught.learned.pattern}"
    return f"no signature: {taught.refused}" if taught.refused else ""
