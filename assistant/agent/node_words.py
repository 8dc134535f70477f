"""Nodes that are named in short: `node7` for node07, `node05-08`, `drain 11`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from assistant.errors import UsageError
from assistant.nodeset import expand

_RANGE = re.compile(r"\b([A-Za-z][A-Za-z_-]*)(\d{1,6})\s?(?:-|–|\.\.)\s?(?:\1)?(\d{1,6})\b")
"""`node05-08`, as people write `node[05-08]`."""
_SHORT_NODE = re.compile(
    r"(?:(?<![^\s,])(?:(?:un)?drain|(?:un)?cordon|isolate|fence|release|check|probe|test|drained|cordoned|isolated)\s+(?:the\s+)?"
    r"|(?<![^\s,])(?:is|was|and|the|about|what'?s with)\s+(?:the\s+)?|^\W*)(?P<number>\d{1,2})"
    r"(?=\W*$|[?!]|[,.]\s|\s+(?:too|also|as well|again|now|pls|please|out|down|dead|gone|back|up|ok|okay|fine|healthy|bad|broken"
    r"|drained|cordoned|for|until|till|since|is|was|and \d{1,2}(?=\W*$))\b)",
    re.IGNORECASE,
)
"""`drain 11`, `12 too?`: the number is that of a node where nothing else has it."""


def with_short_nodes(text: str, nodes: Sequence[str], is_taken: Callable[[int], bool], take: Callable[[str], None]) -> str:
    """Return a text in which ranges of nodes are node sets, and bare numbers of nodes are masked.

    Args:
        text: Of which other names are masked already.
        nodes: All that there are.
        is_taken: Whether an incident, an approval or a job has a number.
        take: Is told each node.
    """

    def short_node(match: re.Match[str]) -> str:
        number = int(match["number"])
        matching = [node for node in nodes if (tail := re.search(r"(?<!\d)(\d+)$", node)) and int(tail[1]) == number]
        if is_taken(number) or len(matching) != 1:
            return match.group()
        take(matching[0])
        return match.group()[: match.start("number") - match.start()] + "{node}"

    return _RANGE.sub(lambda match: _node_range(match, nodes), _SHORT_NODE.sub(short_node, text))


def _node_range(match: re.Match[str], nodes: Sequence[str]) -> str:
    """Return a range of nodes as a node set, where all of it are nodes; else the text as it is."""
    prefix, first, last = match.groups()
    widths = {len(node) - len(prefix) for node in nodes if node.lower().startswith(prefix.lower())}
    for width in sorted({len(first), *widths}):
        text = f"{prefix}[{first.zfill(width)}-{last.zfill(width)}]"
        try:
            if all(name in nodes for name in expand(text)):
                return text
        except UsageError:
            continue
    return match.group()


def node_without_zeros(word: str, nodes: Sequence[str]) -> str:
    """Return the one node that is meant by `node7` where it is named node07, or by `08` alone; empty where there is none."""
    match = re.fullmatch(r"([A-Za-z][\w.-]*?)?(\d{1,6})", word)
    if match is None or not (match[1] or match[2].startswith("0")):
        return ""
    prefix, number = (match[1] or "").lower(), int(match[2])
    matching = [
        node
        for node in nodes
        if (tail := re.fullmatch(r"(.*?)(\d+)", node)) and int(tail[2]) == number and tail[1].lower().startswith(prefix)
    ]
    return matching[0] if len(matching) == 1 and (prefix or matching[0].endswith(word)) else ""
