"""The test by which a loop of a shell script passes over a finished piece of its work. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.recover.shell.tree import (
    Link,
    Statement,
    TreeCommand,
    TreeKind,
    all_commands,
    is_assigned,
    launched_words,
    plain_word,
)

LEAVES = frozenset(("continue", "exit", "return", "break"))
CONTINUES = frozenset(("continue",))
TESTS = frozenset(("-e", "-f", "-s", "-r"))


class LoopGuard(NamedTuple):
    """A test in a loop that passes over a piece that is there."""

    piece: str
    """What it looks for, as written, without quotes."""
    line: int
    work: list[Statement]
    """What is done for a piece that is not there."""


def loop_guard(loop: TreeCommand) -> LoopGuard | None:
    """Return the test by which a loop passes over pieces that are there; None where it has none."""
    own = set(loop.words[:1])
    for test in loop.test:
        own |= {word for link in test.links for part in link.commands if part.words[:1] == ["read"] for word in part.words[1:]}
    for place, statement in enumerate(loop.body):
        first = statement.links[0]
        command = first.commands[0]
        for word in command.words if command.kind == TreeKind.SIMPLE else ():
            name, _, text = word.partition("=")
            if is_assigned([word]) and has_variable(text, own):
                own.add(name)  # one that is assigned from a command is not filled in
        if command.kind == TreeKind.IF and len(statement.links) == 1:
            piece, present = _test(command.test)
            if not piece or not has_variable(piece, own):
                continue
            if present and not command.alternative and command.body and leaves_round(command.body[-1].links[-1], CONTINUES):
                return LoopGuard(piece, statement.line, loop.body[place + 1 :])
            if not present and not command.alternative:
                return LoopGuard(piece, statement.line, [*command.body, *loop.body[place + 1 :]])
        elif len(statement.links) == 2 and len(first.commands) == 1:
            piece, present = _test([Statement([first], statement.line)])
            last = statement.links[1]
            if not piece or not has_variable(piece, own):
                continue
            if present and last.operator == "&&" and leaves_round(last, CONTINUES):
                return LoopGuard(piece, statement.line, loop.body[place + 1 :])
            if (present and last.operator == "||") or (not present and last.operator == "&&"):
                group = last.commands[0]
                inner = group.body if group.kind == TreeKind.GROUP and len(last.commands) == 1 else None
                work = inner if inner is not None else [Statement([last._replace(operator="")], statement.line)]
                return LoopGuard(piece, statement.line, [*work, *loop.body[place + 1 :]])
    return None


def _test(statements: Sequence[Statement]) -> tuple[str, bool]:
    """Return the file that a test looks for, and whether it holds where that is there; empty for any other test."""
    if len(statements) != 1 or len(statements[0].links) != 1 or len(statements[0].links[0].commands) != 1:
        return "", False
    link = statements[0].links[0]
    words = link.commands[0].words
    if words[:1] not in (["["], ["[["], ["test"]):
        return "", False
    inner = [word for word in words[1:] if word not in ("]", "]]")]
    present = not link.negated
    if inner[:1] == ["!"]:
        inner, present = inner[1:], not present
    return (plain_word(inner[1]), present) if len(inner) == 2 and inner[0] in TESTS else ("", False)


def leaves_round(link: Link, leaves: frozenset[str]) -> bool:
    """Tell whether a pipeline surely leaves by one of some commands; one that says 0 counts for the round itself alone."""
    if len(link.commands) != 1:
        return False
    command = link.commands[0]
    if command.kind == TreeKind.GROUP:
        return bool(command.body) and len(command.body[-1].links) == 1 and leaves_round(command.body[-1].links[0], leaves)
    well = command.words[1:] == ["0"] and leaves != LEAVES
    return command.kind == TreeKind.SIMPLE and command.words[:1] != [] and command.words[0] in leaves and not well


def mentions(link: Link, piece: str) -> bool:
    """Tell whether a pipeline names what a test looks for: the same file, in any word or redirection."""
    for command in all_commands([Statement([link], 0)]):
        if any(plain_word(redirect.target) == piece for redirect in command.redirects if redirect.operator != "<"):
            return True
        words = [plain_word(word) for word in launched_words(command.words)]
        if (
            command.kind == TreeKind.SIMPLE
            and words[:1] not in (["echo"], ["printf"], ["rm"], ["["], ["test"])
            and piece in words[1:]
        ):
            return True
        if any(word.endswith(f"={piece}") for word in words):
            return True
    return False


def has_variable(text: str, names: set[str]) -> bool:
    """Tell whether a text of a shell holds one of some variables."""
    return any(re.search(rf"\$\{{?{re.escape(name)}\b", text) for name in names)
