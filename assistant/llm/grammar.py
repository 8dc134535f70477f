r"""What a model may say, as a tree: built of parts or of a `pattern`, written as GBNF (llama.cpp) or a regular expression.

No part contains itself, so both forms are finite. The grammar uses no parentheses: llama.cpp multiplies the rules of a repeated
group, takes a repetition above 2,000 as endless without a word, and ends the process on what it cannot read. So only the form that
`to_gbnf` writes is handed to it: one rule a line, no rule that reaches itself, counts within what llama.cpp counts. `worker` checks
that form, and llama.cpp's own reader is asked besides.

A `pattern` of a JSON schema is anchored at both ends; it has characters, classes, groups, `|`, `? * + {m,n}`. Look-arounds,
back-references and flags are refused. What has no end in the pattern ends at a limit here, and classes such as `\w` mean their
ASCII characters: the grammar never says more than the pattern allows, it may say less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from assistant.errors import ModelError

LARGEST_REPEAT = 2_000
"""MAX_REPETITION_THRESHOLD in llama.cpp's llama-grammar.cpp."""
LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    """This text."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters, of which one stands here."""

    ranges: tuple[tuple[int, int], ...]
    """First and last code point of each range, ascending, apart from one another."""


@dataclass(frozen=True, slots=True)
class Seq:
    """All parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same several times."""

    node: Node
    least: int
    most: int | None
    """None: until the model's own limit of tokens."""


Node = Text | Chars | Seq | Alternatives | Repeat


def seq(*parts: Node | str) -> Node:
    """Return parts one after the other; a text stands for itself."""
    flat: list[Node] = []
    for part in parts:
        node = Text(part) if isinstance(part, str) else part
        for inner in node.parts if isinstance(node, Seq) else (node,):
            if isinstance(inner, Text) and flat and isinstance(flat[-1], Text):
                flat[-1] = Text(flat[-1].text + inner.text)
            elif inner != Text(""):
                flat.append(inner)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def choice(options: Iterable[Node]) -> Node:
    """Return a choice; texts that are the same count once.

    Raises:
        ModelError: There is none.
    """
    different: list[Node] = []
    seen_options: set[Node] = set()
    for option in options:
        # comparing whole trees costs more than a rule twice
        if not isinstance(option, (Text, Chars)) or option not in seen_options:
            different.append(option)
            seen_options |= {option} if isinstance(option, (Text, Chars)) else set()
    if not different:
        raise ModelError("a grammar with a choice of nothing was wanted: nothing could be said at that place; give it one value")
    return different[0] if len(different) == 1 else Alternatives(tuple(different))


def repeat(node: Node, least: int, most: int | None) -> Node:
    """Return a repetition.

    Raises:
        ModelError: It is of something empty, or of more than llama.cpp counts.
    """
    if least > (LARGEST_REPEAT if most is None else min(most, LARGEST_REPEAT)) or (most or 0) > LARGEST_REPEAT:
        raise ModelError(
            f"a grammar with {least} to {most} repetitions was wanted; llama.cpp counts to {LARGEST_REPEAT}: ask for less"
        )
    if most == 0:
        return Text("")
    if shortest(node) == 0:
        raise ModelError("a grammar that repeats an empty text was wanted: it would never end; repeat something with characters")
    return node if least == most == 1 else Repeat(node, least, most)


def optional(node: Node) -> Node:
    """Return the node or nothing."""
    return Repeat(node, 0, 1) if shortest(node) else Alternatives((node, Text("")))


def one_of(texts: Iterable[str]) -> Node:
    """Return a choice of texts that shares their beginnings: a thousand names then cost llama.cpp no more than ten.

    Raises:
        ModelError: There is none.
    """
    listed = tuple(sorted(set(texts)))
    return _shared(listed) if listed else choice(())


@lru_cache(maxsize=32)
def _shared(listed: tuple[str, ...]) -> Node:
    # many tools take the same names, and the same node is written once
    return _sharing(listed)


def _sharing(listed: Sequence[str]) -> Node:
    if len(listed) == 1:
        return Text(listed[0])
    first, last = listed[0], listed[-1]
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    if shared:
        return seq(first[:shared], _sharing([text[shared:] for text in listed]))
    groups: dict[str, list[str]] = {}
    for text in listed:
        groups.setdefault(text[:1], []).append(text)
    return choice(_sharing(group) for group in groups.values())


def but(*excluded: tuple[int, int], first: int = 0x20, last: int = LAST) -> Chars:
    """Return all characters from first to last without some ranges; surrogates, which are no characters, never."""
    ranges, at = [], first
    for low, high in sorted([*excluded, (0xD800, 0xDFFF)]):
        if low > at:
            ranges.append((at, min(low - 1, last)))
        at = max(at, high + 1)
        if at > last:
            return Chars(tuple(ranges))
    return Chars((*ranges, (at, last)))


def shortest(node: Node) -> int:
    """Return the fewest characters that a node takes."""
    match node:
        case Text(text):
            return len(text)
        case Chars():
            return 1
        case Seq(parts):
            return sum(map(shortest, parts))
        case Alternatives(options):
            return min(map(shortest, options))
        case Repeat(inner, least, _):
            return least * shortest(inner)


def longest(node: Node) -> int | None:
    """Return the most characters that a node takes; None without a limit."""
    match node:
        case Text(text):
            return len(text)
        case Chars():
            return 1
        case Seq(parts):
            lengths = [longest(part) for part in parts]
            return None if None in lengths else sum(length or 0 for length in lengths)
        case Alternatives(options):
            lengths = [longest(option) for option in options]
            return None if None in lengths else max(length or 0 for length in lengths)
        case Repeat(inner, _, most):
            of_one = longest(inner)
            return None if of_one is None or most is None else of_one * most


def to_gbnf(node: Node) -> str:
    """Return the grammar; its first rule is `root`."""
    writer = _Writer()
    root = writer.body(node)
    return "".join(
        f"{name} ::= {body}\n" for name, body in [("root", root), *((name, body) for body, name in writer.names.items())]
    )


class _Writer:
    """Gives a rule to each part that llama.cpp would otherwise want in parentheses; the same part has one rule."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._written: dict[int, str] = {}
        """Names by the node itself: comparing trees costs more than writing them."""

    def body(self, node: Node) -> str:
        match node:
            case Alternatives(options):
                return " | ".join(
                    self.item(option) if isinstance(option, Alternatives) else self.body(option) for option in options
                )
            case Seq(parts):
                return " ".join(map(self.item, parts)) or '""'
            case _:
                return self.item(node)

    def item(self, node: Node) -> str:
        match node:
            case Text(text):
                return '"' + "".join(map(_in_text, text)) + '"'
            case Chars(ranges):
                return f"[{''.join(_code(low) if low == high else f'{_code(low)}-{_code(high)}' for low, high in ranges)}]"
            case Repeat(inner, least, most):
                operand = self.item(inner) if isinstance(inner, Chars) else self.rule(inner)
                return operand + _count(least, most)
            case _:
                return self.rule(node)

    def rule(self, node: Node) -> str:
        if id(node) not in self._written:
            body = self.body(node)
            self._written[id(node)] = self.names.setdefault(body, f"r{len(self.names) + 1}")
        return self._written[id(node)]


def _count(least: int, most: int | None) -> str:
    short = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((least, most))
    if short:
        return short
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _in_text(sign: str) -> str:
    return sign if (sign.isalnum() and sign.isascii()) or sign in " _.,:;{}()/=+'-[]<>" else _code(ord(sign))


def _code(point: int) -> str:
    if chr(point).isalnum() and point < 0x80:
        return chr(point)
    return f"\\x{point:02X}" if point < 0x100 else f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"


def to_regex(node: Node) -> str:
    """Return a regular expression of Python that matches the same texts; for `re.fullmatch`."""
    match node:
        case Text(text):
            return re.escape(text)
        case Chars(ranges):
            return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"
        case Seq(parts):
            return "".join(map(to_regex, parts))
        case Alternatives(options):
            return f"(?:{'|'.join(map(to_regex, options))})"
        case Repeat(inner, least, most):
            return f"(?:{to_regex(inner)}){{{least},{'' if most is None else most}}}"


def accepts(node: Node, text: str) -> bool:
    """Tell whether the grammar lets a text through."""
    return re.fullmatch(to_regex(node), text) is not None


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
