"""What a person types without looking: the corpus, keys as a terminal sends them, and the dialogs that they must not answer."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.keys import _character_to_key
from textual.pilot import Pilot

from assistant.engine.dry_runs import Plan, Planned
from assistant.records import Risk, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.screens.changes import ApprovalAnswer, ApprovalScreen, LiftScreen, RecoveryScreen, UndoScreen
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.snapshot import KillSwitchSnapshot, RecoverySnapshot, UndoSnapshot
from tests.scenarios.scene import Scene

CORPUS = tomllib.loads((Path(__file__).parents[1] / "cases" / "adversary" / "typing.toml").read_text(encoding="utf-8"))
PACES_S = (0.0, 0.12, 0.5)
"""Seconds between two keys: a paste that comes as keys, a typist, somebody who looks for each letter."""

Keys = tuple[str, ...]


def line(sentence: str) -> Keys:
    """Return the keys of a sentence and Enter."""
    return (*(_character_to_key(character) if len(character) == 1 else character for character in sentence), "enter")


def sequence(text: str) -> Keys:
    """Return the keys of a sequence; `y*30` is held."""
    keys: list[str] = []
    for word in text.split():
        key, _, times = word.partition("*")
        keys += [key] * int(times or 1)
    return tuple(keys)


def corpus() -> Iterator[Keys]:
    """Yield all sentences and sequences."""
    yield from map(line, CORPUS["sentences"])
    yield from map(sequence, CORPUS["sequences"])


NAMED = {"space": " ", "slash": "/", "question_mark": "?"}


def key_event(key: str) -> events.Key:
    """Return the event that the terminal's driver makes of a key."""
    import unicodedata

    character: str | None = NAMED.get(key, key if len(key) == 1 else None)
    if character is None:
        try:
            character = unicodedata.lookup(key.replace("_", " "))
        except KeyError:
            character = None
    return events.Key(key, character)


def send(app: App[Any], keys: Sequence[str], pace_s: float = 0.0) -> None:
    """Hand keys to the application as its driver does, all at once; their times are `pace_s` apart."""
    sent = [key_event(key) for key in keys]
    for place, event in enumerate(sent):
        event.time -= (len(sent) - 1 - place) * pace_s
        event.set_sender(app)
        app.post_message(event)


def planned(verdict: Verdict, undo: str) -> Planned:
    """Return a change of a plan."""
    return Planned(
        "again", "requeue_job", True, "scontrol requeue 1", "it failed", verdict, "mode.act", "", risk=Risk.DISRUPT, undo=undo
    )


def samples(scene: Scene, app: ChatApp) -> dict[str, ConsentScreen[Any]]:
    """Return one dialog of each class, and of each class that can ask for a name one that does."""
    assert app.store_snapshot is not None
    waits = app.store_snapshot.approvals[0]
    diagnosis = scene.engine.store.diagnosis(1)
    assert diagnosis is not None
    undo = replace(waits.call, id=99, preview="scontrol update NodeName=node02 State=RESUME", digest="0" * 64)
    return {
        "approval": ApprovalScreen(waits, scene.clock.now()),
        "undo": UndoScreen(UndoSnapshot(waits.call, undo, Risk.CHANGE, Verdict.ALLOW, "mode.act", "")),
        "undo that is final": UndoScreen(UndoSnapshot(waits.call, undo, Risk.CHANGE, Verdict.ALLOW, "mode.act", "", "node02")),
        "recovery": RecoveryScreen(
            RecoverySnapshot("job 1", Plan(diagnosis, "restart", (planned(Verdict.ALLOW, "cancel_job"),), "ends"), "act", "1")
        ),
        "recovery that is final": RecoveryScreen(
            RecoverySnapshot("job 1", Plan(diagnosis, "restart", (planned(Verdict.ALLOW, ""),), "ends"), "act", "1")
        ),
        "lift": LiftScreen(KillSwitchSnapshot("/etc/nightshift/stop", "by root")),
    }


def is_yes(answer: object) -> bool:
    """Tell whether the result of a dialog changes something."""
    return answer is True or isinstance(answer, ApprovalAnswer)


async def drawn(pilot: Pilot[Any], dialog: ConsentScreen[Any]) -> None:
    """Wait until a dialog is drawn."""
    for _ in range(500):
        if dialog.guard.is_drawn:
            return
        await pilot.pause(0.01)
    raise AssertionError(f"{dialog} is not drawn")
