"""The assignments of a shell script: `X=a`, `X+=b`, `LIST=(a *.yaml)`, `LIST[2]=c`, `declare -A MAP=([k]=v)`. Nothing is run."""

from __future__ import annotations

import re

from assistant.recover.shell_folders import MAGIC, Unresolved, by_bytes, by_letters, plain
from assistant.recover.shell_parameters import items, key_of, set_element
from assistant.recover.shell_words import ASSIGNMENT, UNRESOLVED, Scanner, ShellState, joined_path, matching_bracket

ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
SIGN = re.compile(r"(\+?)=")
MOST_INDEX = 120
"""Letters of an index."""
KEYED = re.compile(r"\[([^\]\n]{1,120})\]=")


def assign(scanner: Scanner, *, sure: bool) -> bool:
    """Make the assignment that begins here, if one does; one before a command on the same line counts for the rest as well.

    One that a run may pass over leaves a value that nobody can tell, unless it changes nothing.
    """
    if _assign_element(scanner, sure=sure):
        return True
    match = ASSIGNMENT.match(scanner.text, scanner.at)
    if match is None:
        return False
    name, adds = match.group(1), bool(match.group(2))
    scanner.at = match.end()
    shell = scanner.shell
    if scanner.at < len(scanner.text) and scanner.text[scanner.at] == "(":
        _assign_array(scanner, name, adds=adds, sure=sure)
        return True
    value = " ".join(scanner.word(cut=False)) if _has_value(scanner) else ""
    held_text = shell.variables.get(name, "") if adds else ""
    changed = adds or value != shell.variables.get(name)
    shell.variables[name] = held_text + (value if sure or not changed else _perhaps(shell.variables.get(name, ""), value))
    return True


def _perhaps(before: str, after: str) -> str:
    """Return what is known of a text to which words may have been added: `"$CMD --resume $CKPT"`."""
    return f"{before} {UNRESOLVED}" if before and after.startswith(f"{before} ") else UNRESOLVED


def _assign_element(scanner: Scanner, *, sure: bool) -> bool:
    """Make the assignment of an array's element that begins here, if one does."""
    head = ELEMENT.match(scanner.text, scanner.at)
    if head is None:
        return False
    inside = scanner.text[head.end() : head.end() + MOST_INDEX]
    depth = 1
    end = -1
    for place, letter in enumerate(inside):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "\n" or not depth:
            end = place if not depth else -1
            break
    sign = SIGN.match(scanner.text, head.end() + end + 1)
    if end < 0 or sign is None:
        return False
    scanner.at = sign.end()
    key = key_of(scanner, head[1], inside[:end])
    value = " ".join(scanner.word(cut=False)) if _has_value(scanner) else ""
    set_element(scanner.shell, head[1], key, value if sure else UNRESOLVED, adds=bool(sign[1]))
    return True


def _has_value(scanner: Scanner) -> bool:
    """Tell whether something stands behind the sign of an assignment."""
    return scanner.at < len(scanner.text) and scanner.text[scanner.at] not in " \t\r\n;&|"


def _assign_array(scanner: Scanner, name: str, *, adds: bool, sure: bool) -> None:
    """Make the assignment of the array whose bracket opens here, and move behind it."""
    shell = scanner.shell
    before = (items(shell, name) or []) if adds else []
    keyed, values = _items(scanner, name)
    shell.tables.pop(name, None)
    shell.arrays.pop(name, None)
    if not sure:
        shell.arrays[name] = [*before, UNRESOLVED]
    elif keyed or name in shell.keyed:
        shell.tables[name] = {UNRESOLVED: UNRESOLVED} if values or UNRESOLVED in keyed or adds else dict(keyed)
    else:
        shell.arrays[name] = before + values


def _items(scanner: Scanner, name: str) -> tuple[dict[str, str], list[str]]:
    """Return what stands by a key (`[2]=b`) in the bracket that opens here, and the other values, and move behind it."""
    shell = scanner.shell
    end = matching_bracket(scanner.text, scanner.at)
    inner = Scanner(shell, scanner.text[scanner.at + 1 : end], protecting=True)
    keyed: dict[str, str] = {}
    values: list[str] = []
    while inner.at < len(inner.text):
        inner.blank()
        before = inner.at
        by_key = KEYED.match(inner.text, inner.at)
        if by_key is not None:
            inner.at = by_key.end()
            keyed[key_of(scanner, name, by_key[1])] = plain(" ".join(inner.word(cut=False)))
        elif inner.at < len(inner.text) and inner.text[inner.at] != "\n":
            values += globbed(shell, inner.word())
        inner.at = max(inner.at, before + 1)
    scanner.at = end + 1
    return keyed, values


def globbed(shell: ShellState, words: list[str]) -> list[str]:
    """Return words as a shell hands them on: patterns, whose quoted characters are protected, become the paths that they mean."""
    found: list[str] = []
    for word in words:
        if not MAGIC.search(word):
            found.append(plain(word))
            continue
        if shell.view is None:
            found.append(UNRESOLVED)
            continue
        try:
            first, second = (shell.view.matching(word, shell.folder, order) for order in (by_bytes, by_letters))
        except Unresolved:
            first, second = [UNRESOLVED], [UNRESOLVED]
        shell.view.matched.update(joined_path(shell.folder, path) for path in first)
        found += (first if first == second else [UNRESOLVED]) or [plain(word)]
    return found
