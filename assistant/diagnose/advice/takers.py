"""Name the library that took a value which the job's own code never had in its hands, and the loader on the way there.

The last frame of the job's own code is where a person can act, and often not where the value is: `model.fit(loader)` has no tensor
that NumPy refuses, `from_pretrained(folder)` no path that is None. Frames of plumbing, which only pass a value on (the standard
library, NumPy, PyTorch and their kind), are no takers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import named_setting
from assistant.diagnose.readers.origin import LIBRARY, Origin, frames_of, package_of, request_handler, source_of
from assistant.records import Citation

_ARRAYS = frozenset("numpy torch scipy jax jaxlib pandas tensorflow keras cupy pyarrow six tqdm".split())
_PLUMBING = _ARRAYS | sys.stdlib_module_names
_LOADS = re.compile(r"\b([A-Z]\w{2,60}\.(?:_?from_pretrained|from_config|load\w*)|load_\w{3,40}|from_pretrained)\(")
_READS = re.compile(r"\b(?:args|cfg|config|opt|hparams|self\.args)\.(\w*(?:model|tokenizer|path|dir|folder|name_or_path)\w*)")
SHOWN_OF_SOURCE = 100
DEEP = 2
"""Calls behind the job's own line from which on what it hands over itself is hardly what is complained of."""


def taker_slots(cited: Citation, origin: Origin, facts: Facts, slots_before: Mapping[str, str]) -> dict[str, str]:
    """Return what templates may quote of the library that took the value; nothing where the job's own code did.

    Args:
        cited: The line that tells of the failure.
        origin: Where it was raised.
        facts: Of the case.
        slots_before: What the job's own line fills: its place, and the expression in it that the message complains of.

    Returns:
        `place`, with the library in which it ends, where the job's own line does not show what is complained of;
        `taker`: its place and line of source; `taker_library`; `loading`: the loader by which the job's own code came there;
        `loaded_from`: the setting and its value that the log prints for what is loaded.
    """
    frames = [frame for frame in frames_of(cited, facts) if frame.line]
    taker = next((frame for frame in reversed(frames) if package_of(frame.file) not in _PLUMBING), None)
    if taker is None or not origin.own or not LIBRARY.search(taker.file) or f"{taker.file}:{taker.line}" == origin.place:
        return {}
    source = source_of(taker, facts)[:SHOWN_OF_SOURCE]
    slots = {
        "taker": f"{taker.file}:{taker.line}" + (f", `{source}`" if source else ""),
        "taker_library": package_of(taker.file),
    }
    origin_at = max((at for at, frame in enumerate(frames) if f"{frame.file}:{frame.line}" == origin.place), default=len(frames))
    is_deep = frames.index(taker) - origin_at >= DEEP
    if is_deep and not any(slots_before.get(name) for name in ("subject", "handed", "first_argument")):
        slots["place"] = f"{slots_before['place']}, which ends inside {slots['taker_library']} ({taker.file}:{taker.line})"
    sources = [source_of(frame, facts) for frame in frames]
    loader = next((match[1] for text in sources if (match := _LOADS.search(text)) is not None), "")
    names = [match[1] for text in sources for match in _READS.finditer(text)]
    if loader:
        slots["loading"] = loader
        value = next((setting for name in names if (setting := named_setting(facts, name, cited.line)) is not None), None)
        if value is not None and "/" in value.value:
            slots["loaded_from"] = f"{value.name} {value.value} (job.log:{value.line})"
    return slots


def handled_request(cited: Citation, facts: Facts) -> str:
    """Return that only a request failed, where a server caught what was raised; empty where none did."""
    server = request_handler(cited, facts)
    return f"It was raised while {server} handled a request: that request failed, and the server itself goes on." if server else ""
