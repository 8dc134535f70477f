"""Slurm commands typed as a question or an order: `sinfo -R`, `scontrol update nodename=node08 state=drain`."""

from __future__ import annotations

import re
import shlex

_BEFORE = re.compile(r"^\s*(?:sudo\s+)?(?=(?:sinfo|scontrol)\b)", re.IGNORECASE)
_SHELL = re.compile(r"[;|&<>`\n]|\$\(")
_LAYOUT_OPTION = re.compile(r"-[RNls]+|--list-reasons|--Node|--long|--summarize")
"""Options of sinfo that change how the state of all nodes is listed, and not of which nodes."""
_NODES = re.compile(r"[\w.-]+(?:\[[\d,-]+\][\w.-]*)?(?:,[\w.-]+(?:\[[\d,-]+\][\w.-]*)?)*")
_ORDERS = {"drain": "cordon", "drng": "cordon", "resume": "uncordon", "undrain": "uncordon"}


def slurm_request(sentence: str) -> str:
    """Return in words what a Slurm command asks for; empty for other text, and for a command with a part that is not understood.

    Only `sinfo` and `scontrol update` of a node's state: other commands are read as any sentence is. A prompt before a
    command shows that it was pasted: it is no order.

    Args:
        sentence: As it was typed.
    """
    before = _BEFORE.match(sentence)
    if before is None or _SHELL.search(sentence):
        return ""
    try:
        program, *arguments = shlex.split(sentence[before.end() :])
    except ValueError:
        return ""
    if program.lower() == "sinfo":
        return _of_sinfo(arguments)
    if program.lower() == "scontrol" and arguments[:1] == ["update"]:
        return _of_update(arguments[1:])
    return ""


def _of_sinfo(arguments: list[str]) -> str:
    if all(_LAYOUT_OPTION.fullmatch(argument) for argument in arguments):
        return "which nodes are drained or down"
    node = re.fullmatch(r"(?:-n|--nodes=)\s?([\w\[\],.-]+)", " ".join(arguments))
    return f"status of {node[1]}" if node else ""


def _of_update(arguments: list[str]) -> str:
    settings = {name.lower(): value for name, sign, value in (argument.partition("=") for argument in arguments) if sign}
    order = _ORDERS.get(settings.get("state", "").lower(), "")
    if (
        len(settings) != len(arguments)
        or set(settings) - {"nodename", "state", "reason"}
        or not _NODES.fullmatch(settings.get("nodename", ""))
        or not order
    ):
        return ""
    return f"{order} {settings['nodename']}"
