r"""A `pattern` of a JSON schema as a grammar of the JSON text: the part of regular expressions that names and ids are written in.

Anchored at both ends; characters, classes, groups, `|`, `? * + {m,n}`. Look-arounds, back-references and flags are refused. What
has no end in the pattern ends at a limit here, and classes such as `\w` mean their ASCII characters: the grammar never says more
than the pattern allows, it may say less.
"""

from __future__ import annotations

import re

from assistant.errors import ModelError
from assistant.llm.grammar import LARGEST_REPEAT, LAST, Chars, Node, Text, but, choice, optional, repeat, seq, shortest

Ranges = tuple[tuple[int, int], ...]

_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((32, 32),),
    "D": ((32, 47), (58, 126)),
    "W": ((32, 47), (58, 64), (91, 94), (96, 96), (123, 126)),
    "S": ((33, 126),),
}
_ESCAPED = {'"': '\\"', "\\": "\\\\"}
_COUNT = re.compile(r"\{(\d{1,5})(?:(,)(\d{0,5}))?\}")


def of_pattern(pattern: str, *, most: int) -> Node:
    """Return the grammar of what stands between the quotes.

    Args:
        pattern: Such as `^node[0-9]{3}$`.
        most: Repetitions at which `*` and `+` end.

    Raises:
        ModelError: It is not anchored, or uses what a grammar cannot hold.
    """
    if len(pattern) > 1000 or not (pattern.startswith("^") and pattern.endswith("$") and not pattern.endswith("\\$")):
        raise _refused(pattern, "it must begin with ^, end with $ and have at most 1,000 characters")
    reader = _Reader(pattern, pattern[1:-1], min(most, LARGEST_REPEAT))
    node = reader.alternatives(0)
    if reader.at < len(reader.text):
        raise _refused(pattern, f"there is a {reader.text[reader.at]!r} too many at {reader.at + 1}")
    return node


def _refused(pattern: str, why: str) -> ModelError:
    return ModelError(f"the pattern {pattern[:80]!r} was wanted as a grammar: {why}; write it with classes, groups and counts only")


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str, text: str, most: int) -> None:
        self.pattern, self.text, self.most, self.at = pattern, text, most, 0
        self.classes = 0
        """How many classes such as `\\d` were read."""

    def alternatives(self, depth: int) -> Node:
        if depth > 20:
            raise _refused(self.pattern, "its groups are nested too deep")
        options = [self.run(depth)]
        while self.take("|"):
            options.append(self.run(depth))
        if depth == 0 and len(options) > 1:
            raise _refused(self.pattern, "an anchor counts for one alternative only; put them into a group")
        return choice(options)

    def run(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.counted(self.atom(depth)))
        return seq(*parts)

    def counted(self, node: Node) -> Node:
        match = _COUNT.match(self.text, self.at)
        if self.take("?"):
            return self.greedy(optional(node))
        if self.take("*"):
            return self.greedy(repeat(node, 0, self.most) if shortest(node) else node)
        if self.take("+"):
            return self.greedy(repeat(node, 1, self.most))
        if match is None:
            return node
        self.at = match.end()
        least = int(match[1])
        most = least if not match[2] else int(match[3]) if match[3] else max(least, self.most)
        return self.greedy(repeat(node, least, most))

    def greedy(self, node: Node) -> Node:
        if self.text[self.at : self.at + 1] in ("?", "+", "*", "{") and self.at < len(self.text):
            raise _refused(self.pattern, f"two counts follow one another at {self.at + 1}")
        return node

    def atom(self, depth: int) -> Node:
        sign = self.text[self.at]
        self.at += 1
        if sign == "(":
            if self.take("?") and not self.take(":"):
                raise _refused(self.pattern, "look-arounds, names and flags of groups cannot be held")
            node = self.alternatives(depth + 1)
            if not self.take(")"):
                raise _refused(self.pattern, "a group is not closed")
            return node
        if sign == "[":
            return self.listed()
        if sign == "\\":
            return _in_json(self.escaped())
        if sign == ".":
            return _in_json(but((127, 127)).ranges)
        if sign in "^$*+?{":
            raise _refused(self.pattern, f"{sign!r} at {self.at} stands where a character was expected")
        return _in_json(((ord(sign), ord(sign)),))

    def escaped(self) -> Ranges:
        if self.at >= len(self.text):
            raise _refused(self.pattern, "it ends with a backslash")
        sign = self.text[self.at]
        self.at += 1
        if sign in _CLASSES:
            self.classes += 1
            return _CLASSES[sign]
        if sign.isalnum():
            raise _refused(self.pattern, f"\\{sign} cannot be held")
        return ((ord(sign), ord(sign)),)

    def listed(self) -> Node:
        negated, before = self.take("^"), self.classes
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.take("]"):
            if self.at >= len(self.text):
                raise _refused(self.pattern, "a class is not closed")
            low = self.member()
            if self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.member()
                if len(low) > 1 or len(high) > 1 or low[0][0] > high[0][1]:
                    raise _refused(self.pattern, "a range of a class is turned round")
                low = ((low[0][0], high[0][1]),)
            ranges += low
            first = False
        if negated:
            # \d also means the digits of other scripts: what is outside of it is known for ASCII only
            return _in_json(but(*ranges, (127, 127), last=126 if self.classes > before else LAST).ranges)
        return _in_json(tuple(ranges))

    def member(self) -> Ranges:
        sign = self.text[self.at]
        self.at += 1
        return self.escaped() if sign == "\\" else ((ord(sign), ord(sign)),)

    def take(self, sign: str) -> bool:
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False


def _in_json(ranges: Ranges) -> Node:
    """Return one character of the ranges as JSON writes it; control characters, which it cannot write as they are, never."""
    inside = but(first=0x20).ranges
    plain: list[tuple[int, int]] = []
    for low, high in _joined(ranges):
        for first, last in inside:
            plain += _without(max(low, first), min(high, last))
    options: list[Node] = [Chars(tuple(plain))] if plain else []
    options += [Text(text) for sign, text in _ESCAPED.items() if any(low <= ord(sign) <= high for low, high in ranges)]
    return choice(options)


def _joined(ranges: Ranges) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def _without(low: int, high: int) -> list[tuple[int, int]]:
    """Return a range without the characters that JSON escapes."""
    parts, at = [], low
    for stop in (34, 92, 127):
        if at <= stop <= high:
            if stop > at:
                parts.append((at, stop - 1))
            at = stop + 1
    if at <= high:
        parts.append((at, high))
    return parts
