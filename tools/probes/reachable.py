"""Whether a node runs a command at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assistant.ports import Reply
from assistant.tooling import Probe


def parse(reply: Reply) -> Mapping[str, Any]:
    """Return ok: an answer is the proof."""
    return {"status": "ok", "text": "it answers"}


PROBE = Probe(name="reachable", command=("true",), needs="true", parse=parse, source="none: it answers or it does not")
