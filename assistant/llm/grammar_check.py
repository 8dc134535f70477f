"""Whether a grammar may be handed to llama.cpp, which ends the whole process on one that it cannot read.

Only the form that `grammar.to_gbnf` writes is let through: one rule a line, no parentheses, no rule that reaches itself, counts
within what llama.cpp counts. llama.cpp's own reader is asked besides, in the model's process (see `worker`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.errors import ModelError
from assistant.llm.grammar import LARGEST_REPEAT

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
