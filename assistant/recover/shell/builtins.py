"""Commands of a shell script that set variables: assignments and builtins. Nothing is run.

Assignments: `X=a`, `X+=b`, `LIST=(a *.yaml)`, `LIST[2]=c`, `declare -A MAP=([k]=v)`. Builtins: `read`, `mapfile`, `let`, `printf
-v`, `unset`, `set --`, `declare`. What such a command sets and what cannot be told is `UNRESOLVED` afterwards: an older value would
be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from assistant.recover.shell.folders import MAGIC, UNRESOLVED, Unresolved, by_bytes, by_letters, plain
from assistant.recover.shell.listing import formatted
from assistant.recover.shell.parameters import ASSIGNS, arithmetic, items, key_of, set_element
from assistant.recover.shell.words import ASSIGNMENT, Scanner, ShellState, cut_fields, field_end, joined_path, matching_bracket

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
    names_matched: list[str] = []
    for word in words:
        if not MAGIC.search(word):
            names_matched.append(plain(word))
            continue
        if shell.view is None:
            names_matched.append(UNRESOLVED)
            continue
        try:
            first, second = (shell.view.matching(word, shell.folder, order) for order in (by_bytes, by_letters))
        except Unresolved:
            first, second = [UNRESOLVED], [UNRESOLVED]
        shell.view.matched.update(joined_path(shell.folder, path) for path in first)
        names_matched += (first if first == second else [UNRESOLVED]) or [plain(word)]
    return names_matched


DECLARATIONS = frozenset(("export", "declare", "local", "readonly", "typeset"))
NAME = re.compile(r"[A-Za-z_]\w*")
_SIGNS = "|".join(re.escape(sign) for sign in ASSIGNS if sign != "=")
ASSIGNED = re.compile(
    rf"([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\s*(?:\+\+|--|{_SIGNS}|=(?!=))"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
"""Names that an arithmetic expression changes."""


def set_variables(
    shell: ShellState, words: Sequence[str], *, input_text: str | None, separators: str | None, certain: bool
) -> bool:
    """Set what a command sets, and tell whether it is one of those.

    Args:
        shell: Takes the values.
        words: Of the command, expanded.
        input_text: What it reads; None where nothing is known of that.
        separators: `IFS` where the command itself is given one.
        certain: Whether a run surely comes to it; where not, what it sets is not known.
    """
    setting = BUILTINS.get(words[0]) if words else None
    if setting is None:
        return False
    if words[0] == "read":
        input_text = None if input_text is None else input_text.split("\n", 1)[0]
        _read(shell, words[1:], input_text if certain else None, separators)
    elif not certain:
        _forget(shell, words)
    else:
        setting(shell, words[1:], input_text)
    return True


def arithmetic_command(shell: ShellState, expression: str, *, certain: bool) -> str:
    """Make the assignments of `((…))`, and return its value; UNRESOLVED where that cannot be told."""
    changed = {match[1] or match[2] for match in ASSIGNED.finditer(expression)}
    if certain:
        try:
            return str(arithmetic(Scanner(shell, ""), expression))
        except Unresolved:
            pass
    elif not changed:
        return Scanner(shell, "").number(expression)
    for name in changed:
        set_scalar(shell, name, UNRESOLVED)
    return UNRESOLVED


def set_scalar(shell: ShellState, name: str, value: str) -> None:
    """Set a variable, which is no array from here on."""
    shell.arrays.pop(name, None)
    shell.tables.pop(name, None)
    shell.variables[name] = value


def counted_in(body: str) -> set[str]:
    """Return the names whose value in one round of a loop depends on the round before."""
    names = {
        match[1]
        for match in re.finditer(r"(?<![\w$.{/-])([A-Za-z_]\w{0,80})(\+?)=([^\n;]{0,400})", body)
        if match[2] or match[1] in re.findall(r"\w+", match[3])
    }
    for inside in re.finditer(r"\(\(([^\n]{0,400}?)\)\)|\blet\s+([^\n;]{0,400})", body):
        names |= {match[1] or match[2] for match in ASSIGNED.finditer(inside[1] or inside[2])}
    return names


def declare(shell: ShellState, declared_words: Sequence[str], *, certain: bool) -> None:
    """Make the assignments of `export`, `declare` and their like."""
    keyed = any(re.fullmatch(r"-[a-zA-Z]*A[a-zA-Z]*", word) for word in declared_words)
    # the name of another variable, which it stands for
    certain = certain and not any(re.fullmatch(r"-[a-zA-Z]*n[a-zA-Z]*", word) for word in declared_words)
    for word in declared_words:
        match = ASSIGNMENT.match(word)
        if match is not None:
            value = word[match.end() :]
            set_scalar(shell, match[1], value if certain or shell.variables.get(match[1]) == value else UNRESOLVED)
        elif keyed and NAME.fullmatch(word):
            shell.keyed.add(word)
            shell.tables.setdefault(word, {})


def _names(words: Sequence[str]) -> list[str]:
    return [word for word in words if NAME.fullmatch(word)]


def _forget(shell: ShellState, words: Sequence[str]) -> None:
    """Know no more what a command sets to which a run may not come."""
    if words[0] == "set" and "--" in words:
        shell.parameters = (UNRESOLVED,)
    names = _names(words[1:]) if words[0] in ("unset", "mapfile", "readarray") else []
    names += [match[1] or match[2] for word in words[1:] for match in ASSIGNED.finditer(word)] if words[0] == "let" else []
    names += [words[2].partition("[")[0]] if words[0] == "printf" and words[1:2] == ["-v"] and len(words) > 2 else []
    for name in names:
        set_scalar(shell, name, UNRESOLVED)


def _read(shell: ShellState, words: Sequence[str], input_text: str | None, separators: str | None) -> None:
    """Set what `read` sets from one line."""
    array, names, waiting = "", [], list(words)
    while waiting:
        word = waiting.pop(0)
        options = word[1:] if word.startswith("-") else ""
        if options and options[-1] in "adinNptu":
            value = waiting.pop(0) if waiting else ""
            array = value if options[-1] == "a" else array
            input_text = None if options[-1] in "dinNu" else input_text
        elif not options:
            names.append(word)
        input_text = None if input_text is not None and "\\" in input_text and "r" not in "".join(words) else input_text
    separators = separators if separators is not None else shell.variables.get("IFS", " \t\n")
    if array:
        set_scalar(shell, array, UNRESOLVED)
        shell.arrays[array] = (
            cut_fields(input_text, separators) if input_text is not None and UNRESOLVED not in input_text else [UNRESOLVED]
        )
        return
    names = names or ["REPLY"]
    if input_text is None or UNRESOLVED in input_text + separators:
        values = [UNRESOLVED] * len(names)
    else:
        values = _shared_out(input_text, separators, len(names))
    for name, value in zip(names, values, strict=True):
        if NAME.fullmatch(name):
            set_scalar(shell, name, value)


def _shared_out(line: str, separators: str, count: int) -> list[str]:
    """Return the fields of a line for a number of names; the last one takes all that is left."""
    blanks = "".join(letter for letter in separators if letter in " \t\n")
    text_left = line.strip(blanks)
    values: list[str] = []
    between = field_end(separators) if separators else r"(?!)"
    while len(values) < count - 1:
        match = re.search(between, text_left)
        values.append(text_left[: match.start()] if match else text_left)
        text_left = text_left[match.end() :] if match else ""
    own = [letter for letter in separators if letter not in blanks]
    if text_left[-1:] in own and len(cut_fields(text_left, separators)) == 1:
        text_left = text_left[:-1]
    return [*values, text_left]


def _mapfile(shell: ShellState, words: Sequence[str], input_text: str | None) -> None:
    plain = [word for word in words if not word.startswith("-")]
    name = plain[-1] if plain and NAME.fullmatch(plain[-1]) else "MAPFILE"
    readable = input_text is not None and UNRESOLVED not in input_text and list(words) in (["-t", name], ["-t"])
    set_scalar(shell, name, UNRESOLVED)
    lines = input_text.split("\n") if input_text is not None and readable else [UNRESOLVED]
    shell.arrays[name] = [Scanner(shell, "").chosen(line) for line in lines] if len(lines) == 1 else lines


def _let(shell: ShellState, words: Sequence[str], _: str | None) -> None:
    for word in words:
        arithmetic_command(shell, word, certain=True)


def _unset(shell: ShellState, words: Sequence[str], _: str | None) -> None:
    for name in _names(words):
        for table in (shell.variables, shell.arrays, shell.tables):
            table.pop(name, None)


def _set(shell: ShellState, words: Sequence[str], _: str | None) -> None:
    if "--" in words:
        shell.parameters, shell.parameters_known = tuple(words[list(words).index("--") + 1 :]), True


def _printf(shell: ShellState, words: Sequence[str], _: str | None) -> None:
    if words[:1] != ["-v"] or len(words) < 3:
        return
    try:
        value = formatted(words[2:])
    except Unresolved:
        value = UNRESOLVED
    name, bracket, key = words[1].partition("[")
    if bracket:
        set_element(shell, name, key.removesuffix("]"), value)
    else:
        set_scalar(shell, name, value)


BUILTINS: dict[str, Callable[[ShellState, Sequence[str], str | None], None]] = {
    "read": lambda shell, words, input_text: _read(shell, words, input_text, None),
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "let": _let,
    "unset": _unset,
    "set": _set,
    "printf": _printf,
}
