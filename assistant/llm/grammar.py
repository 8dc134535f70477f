"""What a model may say, as a tree: written as a grammar of llama.cpp (GBNF) or as a regular expression for the same texts.

No part contains itself, so both forms are finite. The grammar uses no parentheses: llama.cpp multiplies the rules of a repeated
group, takes a repetition above 2,000 as endless without a word, and ends the process on what it cannot read. So only the form that
`to_gbnf` writes is handed to it: one rule a line, no rule that reaches itself, counts within what llama.cpp counts. Its own reader
is asked besides, in the process of the model (see `worker`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

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


LARGEST = 400_000
"""Characters of a grammar."""
MOST_EXPANDED = 30_000
"""Rules that llama.cpp makes of all counts together."""
DEEPEST = 200
_RULE = re.compile(r"([a-z][a-z0-9-]*) ::= (.*)")
_ESCAPE = r"\\(?:x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8})"
_ITEM = re.compile(
    rf'(?:(?P<text>"(?:[^"\\\x00-\x1f]|{_ESCAPE})*")|(?P<chars>\[(?:[a-zA-Z0-9]|{_ESCAPE})(?:-?(?:[a-zA-Z0-9]|{_ESCAPE}))*\])|(?P<name>[a-z][a-z0-9-]*))'
    r"(?P<count>[?*+]|\{(?P<least>\d{1,4})(?P<to>,(?P<most>\d{1,4})?)?\})?(?= |$)"
)


class _Item(NamedTuple):
    name: str
    """Of a rule; empty for a text or characters."""
    empty: bool
    """Whether it may be nothing."""
    repeated: bool


def check(gbnf: str) -> None:
    """Let a grammar pass.

    Raises:
        ModelError: llama.cpp might not survive it, or would take too long; the message has the rule.
    """
    if len(gbnf) > LARGEST:
        raise _refused("root", f"it has {len(gbnf):,} characters, {LARGEST:,} are the limit")
    rules: dict[str, list[list[_Item]]] = {}
    expanded = 0
    for line in gbnf.splitlines():
        match = _RULE.fullmatch(line)
        if match is None or match[1] in rules:
            raise _refused(line[:40], "it is no rule, or there are two of its name")
        options, grown = _options(match[1], match[2])
        rules[match[1]] = options
        expanded += grown
        if expanded > MOST_EXPANDED:
            raise _refused(match[1], f"its counts add up to more than {MOST_EXPANDED:,} rules")
    if "root" not in rules:
        raise _refused("root", "there is no rule of that name")
    _walk(rules)


def _refused(rule: str, why: str) -> ModelError:
    return ModelError(f"a grammar was wanted for llama.cpp; its rule {rule!r} is refused: {why}")


def _options(rule: str, body: str) -> tuple[list[list[_Item]], int]:
    options: list[list[_Item]] = [[]]
    at, expanded = 0, 1
    while at < len(body):
        if body.startswith("| ", at):
            options.append([])
            at += 2
            continue
        match = _ITEM.match(body, at)
        if match is None:
            raise _refused(rule, f"{body[at : at + 20]!r} is not in the form that is known to be safe")
        least, most = _counts(match)
        if least > most or most > LARGEST_REPEAT:
            raise _refused(rule, f"it counts from {least} to {most}; llama.cpp counts to {LARGEST_REPEAT}")
        expanded += max(least, most, 1)
        options[-1].append(_Item(match["name"] or "", match["text"] == '""' or not least, bool(match["count"])))
        at = match.end() + 1
    if [] in options:
        raise _refused(rule, "one of its options is missing")
    return options, expanded


def _counts(match: re.Match[str]) -> tuple[int, int]:
    count = match["count"]
    if not count:
        return 1, 1
    if count in "?*+":
        return int(count == "+"), 1
    least = int(match["least"])
    return least, int(match["most"]) if match["most"] else max(least, 1) if match["to"] else least


def _walk(rules: dict[str, list[list[_Item]]]) -> None:
    """Go down from each rule: names exist, no rule reaches itself, nothing empty is repeated."""
    empty: dict[str, bool] = {}
    open_rules: dict[str, None] = {}

    def visit(name: str) -> bool:
        if name in empty:
            return empty[name]
        if name in open_rules:
            raise _refused(name, "it reaches itself")
        if name not in rules:
            raise _refused(name, "it is used, but there is no rule of that name")
        if len(open_rules) > DEEPEST:
            raise _refused(name, f"rules are nested deeper than {DEEPEST}")
        open_rules[name] = None
        maybe = [[_empty(name, item) for item in option] for option in rules[name]]
        del open_rules[name]
        empty[name] = any(all(option) for option in maybe)
        return empty[name]

    def _empty(rule: str, item: _Item) -> bool:
        inner = visit(item.name) if item.name else False
        if inner and item.repeated:
            raise _refused(rule, f"it repeats {item.name!r}, which may be nothing")
        return item.empty or inner

    for name in rules:
        visit(name)
