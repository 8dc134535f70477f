"""Compare the keys of a checkpoint with those of the model that refused it, and say which of the two has to change.

Three things look alike in the message: the same keys behind another prefix (a wrapper), a model with fewer or more layers, and
another model altogether. Only the first is mended by renaming.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LISTED = re.compile(r"(?P<which>Missing|Unexpected) key\(s\) in state_dict: (?P<keys>.+)")
_KEY = re.compile(r"[\"']([\w.\-/]{1,200})[\"']")
WRAPPERS = (
    *(
        "module.",
        "_orig_mod.",
        "model.",
        "base_model.model.",
        "model.module.",
        "net.",
        "encoder.",
        "backbone.",
        "student.",
        "teacher.",
    ),
)
"""Prefixes that DDP, torch.compile, Lightning, PEFT and teachers leave."""
CONTAINERS = (
    "state_dict", "model_state_dict", "model_state", "model", "state", "net", "network", "module", "weights", "params",
    "net_state_dict", "ema", "model_ema", "ema_state_dict", "generator", "encoder", "backbone",
)  # fmt: skip
"""Keys under which training programs put the weights, the usual ones first."""
SHOWN, MOST_CONTAINERS = 4, 12


def keys_account(message: Sequence[str], place: str) -> str:
    """Return what to change by the keys that a message lists; empty where it lists none.

    Args:
        message: Lines of the message.
        place: Where it is loaded, `file:line`, or empty.
    """
    lists: dict[str, list[str]] = {}
    for line in message:
        if match := _LISTED.search(line):
            lists.setdefault(match["which"], []).extend(_KEY.findall(match["keys"]))
    missing, surplus = lists.get("Missing", []), lists.get("Unexpected", [])
    if not missing and not surplus:
        return ""
    at = f" It is loaded at {place}." if place else ""
    if missing and surplus:
        return f"{_both(missing, surplus)}{at}"
    if surplus:
        return (
            f"The checkpoint has {_shown(surplus)}, which the model built here has not, and lacks nothing: the model is built "
            f"smaller than the saved one (fewer layers, or without a part). Give it the settings of the training.{at}"
        )
    return (
        f"The model built here has {_shown(missing)}, which the checkpoint lacks, and the checkpoint has nothing besides: it was "
        f"saved without that part (fewer layers, no head). Load the file that has it, or build the model without it.{at}"
    )


def _both(missing: Sequence[str], surplus: Sequence[str]) -> str:
    if (outer := _containers(missing, surplus)) and (names := [name for name in CONTAINERS if name in surplus]):
        return (
            f"The file holds a whole state of training ({outer}), and the weights lie under one of its keys, most likely "
            f"'{names[0]}': hand that to load_state_dict (state_dict['{names[0]}']), and see there whether its keys are those of "
            "the model."
        )
    for prefix in WRAPPERS:
        if _share(_without(prefix, surplus), missing):
            return (
                f'The keys of the checkpoint begin with "{prefix}", those of the model do not: take that off before it is loaded.'
            )
        if _share(_without(prefix, missing), surplus):
            return f'The keys of the model begin with "{prefix}", those of the checkpoint do not: load it into the part inside.'
    words = f"Expected are {_shown(missing)}; the checkpoint has {_shown(surplus)} instead"
    ends = {_end(key) for key in missing}
    if 2 * sum(_end(key) in ends for key in surplus) >= len(surplus):
        return f"{words}: like layers under other names, so another version of the model's code saved it. Use that, or rename them."
    return f"{words}: it was saved from another architecture. Build that one, or load another file; renaming does not help."


def _containers(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """Return the keys of a file that holds more than weights: few of one name each, where the model wants names of its parts."""
    flat = all("." not in key for key in surplus) and len(surplus) <= MOST_CONTAINERS
    nested = 2 * sum("." in key for key in missing) >= len(missing)
    return ", ".join(surplus) if flat and nested and len(missing) > len(surplus) else ""


def _without(prefix: str, keys: Sequence[str]) -> list[str]:
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def _end(key: str) -> str:
    """Return the last two names of a key."""
    return ".".join(key.split(".")[-2:])


def _share(stripped: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether at least half of the keys, without their prefix, are those of the other side."""
    common = len(set(stripped) & set(others))
    return common > 0 and 2 * common >= min(len(stripped), len(others))


def _shown(keys: Sequence[str]) -> str:
    """Return the first parts that keys are of, such as `stage0.1`, and how many more there are."""
    parts = list(dict.fromkeys(_part(key) for key in keys))
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return f"{', '.join(parts[:SHOWN])}{more}"


def _part(key: str) -> str:
    """Return the layer of a key: up to its last number, or without its last name."""
    names = key.split(".")
    numbers = [place for place, name in enumerate(names) if name.isdigit()]
    return ".".join(names[: numbers[-1] + 1]) if numbers else ".".join(names[:-1]) or key
