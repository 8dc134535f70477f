"""What this installation learned, for a diagnosis by hand: from the store where there is one; without it nothing is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant.cli.context import Door
from assistant.errors import StoreError

if TYPE_CHECKING:
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.opinion import Opinion


def remembered(door: Door, knowledge: Knowledge, *, shipped_only: bool) -> tuple[Knowledge, tuple[Opinion, ...]]:
    """Return the knowledge with the learned rules on top, and memory as an opinion; a store that cannot be opened only narrates."""
    if shipped_only or not door.settings.store.is_file():
        return knowledge, ()
    try:
        store = door.store
        learned, remembers = store.rules(counting=True), store.remembers()
    except StoreError as error:
        door.say(f"nightshift: what was learned is left out: {error}")
        return knowledge, ()
    if not remembers:
        return knowledge.with_learned(learned), ()
    from assistant.diagnose.memory import MemoryOpinion
    from assistant.llm.embedded import EmbeddedEmbedder

    return knowledge.with_learned(learned), (MemoryOpinion(store, EmbeddedEmbedder(), lambda: knowledge.reasons),)
