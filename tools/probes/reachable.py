"""Whether a node runs a command at all."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, ok
from assistant.tooling import Probe


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Return ok: an answer is the proof."""
    return [ok("it answers")]


PROBE = Probe(name="reachable", command=("true",), needs="true", parse=parse, source="none: it answers or it does not")
