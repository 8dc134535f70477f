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
    r"|(?<![^\s,])(?:is|was|has|have|and|the|about|touch(?:ed)?|how(?:'s| is|s)|what(?:'s| is|s)?(?: (?:up|wrong|going on"
    r"|the (?:matter|deal|story)))? with)\s+(?:the\s+)?"
    r"|^\W*)(?P<number>\d{1,2})"
    r"(?=\W*$|[?!]|[,.]\s|\s+(?:too|also|as well|again|now|pls|please|out|down|dead|gone|back|up|ok|okay|fine|healthy|bad|broken"
    r"|drained|cordoned|for|until|till|since|is|was|been|free|idle|busy|used|usable|available|occupied|already|yet|just"
    r"|right|tonight|today|and \d{1,2}(?=\W*$))\b)",
    re.IGNORECASE,
)
"""`drain 11`, `12 too?`: the number is that of a node where nothing else has it."""


_NODE_VERB = (
    r"(?:un-?)?(?:drain|cordon)(?:ed|ing)?|isolate|quarantine|fence|offline|bench|sideline|resume|reopen|reinstate|uncordon"
)
_JOIN = r"\s*(?:,\s*(?:and\s+)?|\band\b|&|\+)\s*(?:nodes?\s+)?"
_SPAN_WORD = r"\s*(?:-|–|\.\.|\bto\b|\bthru\b|\bthrough\b)\s*(?:nodes?\s+)?"
_APART = r"(?!\d|,?\s+(?:but\s+)?(?:not|no|nope|excluded|excepted|except)[\s.!]*$|,?\s+(?:stays?|remains?|is spared|bleibt)\b)"
"""Not `15 stays in` behind a list: that one is left out."""
_MORE = rf"(?:{_SPAN_WORD}\d{{1,2}})?(?:{_JOIN}\d{{1,2}}{_APART}(?:{_SPAN_WORD}\d{{1,2}})?)*"
_NOT_COUNTED = (
    r"(?![\d.:%]|\s*(?:minutes?|mins?|hours?|hrs?|h|days?|d|weeks?|of|steps?|gpus?|nodes?|jobs?|runs?|percent|am|pm|times)\b)"
)
_NUMBERS = re.compile(
    rf"(?<![\w-])(?P<lead>(?:{_NODE_VERB})\s+(?:the\s+|nodes?\s+|both\s+)*|\bnodes?\s+)(?P<list>\d{{1,2}}{_MORE}){_NOT_COUNTED}"
    rf"|(?<![\w-])(?P<lead2>(?:put|bring|take|get|pull|kick|move|let|want|throw|yank|hang)\s+(?:the\s+"
    rf"|nodes?\s+)*)(?P<list2>\d{{1,2}}{_MORE})"
    r"(?=\s+(?:back|out|in|offline|online|down|aside|off|away|into|from)\b)",
    re.IGNORECASE,
)
"""`drain 13 thru 16 and 18`, `put 7 back`, `nodes 1-4`: what takes nodes only has the numbers of nodes behind it."""
_FOLLOWS = re.compile(
    rf"(?<![\w-])(?P<lead>(?:except(?: for)?|but not|not|without|besides|apart from|other than|excluding|leave|spare"
    rf"|instead of|rather than)\s+"
    rf"(?:the\s+|nodes?\s+)*)(?P<list>\d{{1,2}}{_MORE}){_NOT_COUNTED}",
    re.IGNORECASE,
)
"""`but not 15`, where nodes are spoken of."""


def with_listed_nodes(text: str, nodes: Sequence[str]) -> str:
    """Return a text in which numbers behind a verb or a word for nodes are their names: `drain node13, node14 and node18`.

    Args:
        text: As it was written, in English.
        nodes: All that there are.
    """

    def with_names(match: re.Match[str]) -> str:
        lead = next(filter(None, [match.groupdict().get("lead"), match.groupdict().get("lead2")]), "")
        listed = match.groupdict().get("list") or match.groupdict().get("list2") or ""
        names = _listed(listed, nodes)
        if not names:
            return match.group()
        lead = re.sub(r"(?:(?:the|nodes?|both)\s+)+$", "", lead, flags=re.IGNORECASE)
        return f"{lead}{' and '.join(names)}"

    replaced = _NUMBERS.sub(with_names, text)
    speaks_of_nodes = replaced != text or re.search(rf"\bnodes?\b|\b(?:{_NODE_VERB})\b", text, re.IGNORECASE)
    return _FOLLOWS.sub(with_names, replaced) if speaks_of_nodes else replaced


def _listed(text: str, nodes: Sequence[str]) -> Sequence[str]:
    """Return the nodes that a list of numbers and spans stands for; none where one of them is no node."""
    by_number: dict[int, list[str]] = {}
    for node in nodes:
        if tail := re.search(r"(?<!\d)(\d+)$", node):
            by_number.setdefault(int(tail[1]), []).append(node)
    names: list[str] = []
    for part in re.split(_JOIN, text, flags=re.IGNORECASE):
        ends = [int(number) for number in re.findall(r"\d+", part)]
        numbers = range(ends[0], ends[-1] + 1) if len(ends) > 1 else ends
        if not numbers or len(numbers) > MOST_LISTED or any(len(by_number.get(number, ())) != 1 for number in numbers):
            return ()
        names += [by_number[number][0] for number in numbers]
    return list(dict.fromkeys(names))


MOST_LISTED = 64


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
