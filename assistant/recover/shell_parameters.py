"""What `${…}` becomes: `${LIST[$ID]}`, `${!NAME}`, `${X:-default}`, `${X:+--resume "$X"}`, `${#LIST[@]}`, `${X##*/}`. Pure.

What only a run can tell is `UNRESOLVED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from assistant.recover.shell_arithmetic import Arithmetic
from assistant.recover.shell_folders import Unresolved, name_matches, plain

if TYPE_CHECKING:
    from assistant.recover.shell_words import Scanner, ShellState

UNRESOLVED = "\ufffc"
"""As in `shell_words`, which imports this file."""
MOST_TRIMMED = 4096
MOST_ITEMS = 20_000
REFERENCE = re.compile(r"([A-Za-z_]\w*|\d+|[@*#?$!-])")
SLICE = re.compile(r":(?![-+=?])([^:]*)(?::([^:]*))?", re.DOTALL)
OTHERWISE = re.compile(r"(:?)([-+=?])(.*)", re.DOTALL)
TRIMS = re.compile(r"(##?|%%?)(.*)", re.DOTALL)
REPLACES = re.compile(r"/([/#%]?)((?:\\.|[^/\\])+)(?:/(.*))?", re.DOTALL)
CASES: dict[str, Callable[[str], str]] = {
    ",,": str.lower,
    "^^": str.upper,
    ",": lambda text: text[:1].lower() + text[1:],
    "^": lambda text: text[:1].upper() + text[1:],
}
COUNTED_SEPARATELY = ("@", "*")


def expanded(scanner: Scanner, inside: str, *, quoted: bool) -> list[str]:
    """Return the values of `${inside}`, several for an array or for words behind `:-` and `:+`.

    Args:
        scanner: Reads what stands inside.
        inside: Without braces.
        quoted: Whether it stands between double quotes.
    """
    try:
        return _expanded(scanner, inside, quoted=quoted)
    except (Unresolved, RecursionError):
        return [UNRESOLVED]


def arithmetic(scanner: Scanner, expression: str) -> int:
    """Return the value of an expression, whose assignments are made.

    Raises:
        Unresolved: It cannot be told.
    """
    return _counted(scanner.shell, scanner.deeper(expression).filled())


def _counted(shell: ShellState, text: str) -> int:
    """Return the value of an expression in which nothing is to be filled in."""
    if UNRESOLVED in text:
        raise Unresolved(text)

    def look_up(name: str) -> str:
        base, bracket, index = name.partition("[")
        value = element(shell, base, index[:-1]) if bracket else scalar(shell, base)
        if value is None or UNRESOLVED in value:
            raise Unresolved(name)
        return value

    def assign(name: str, value: str) -> None:
        base, bracket, index = name.partition("[")
        if bracket:
            set_element(shell, base, index[:-1], value)
        else:
            shell.arrays.pop(base, None)
            shell.variables[base] = value

    try:
        return Arithmetic(text, look_up, assign).value()
    except RecursionError as error:
        raise Unresolved(text) from error


def scalar(shell: ShellState, name: str) -> str | None:
    """Return what a name, a number of a parameter or `#` holds; None where nothing is known of it."""
    if name.isdecimal():
        number = int(name)
        return shell.parameters[number - 1] if 0 < number <= len(shell.parameters) else None
    if name == "#":
        known = shell.parameters and not any(UNRESOLVED in one for one in shell.parameters)
        return str(len(shell.parameters)) if known else None  # Slurm may not have kept the arguments
    if name in shell.tables:
        return element(shell, name, "0")
    if name in shell.arrays:
        return (shell.arrays[name] or [""])[0]
    return shell.variables.get(name)


def element(shell: ShellState, name: str, key: str) -> str | None:
    """Return one element of an array by its index or key; None where nothing is known of the array."""
    table = shell.tables.get(name)
    if table is not None:
        return table.get(key, UNRESOLVED if UNRESOLVED in table else "")
    held = shell.arrays.get(name)
    if held is None:
        return shell.variables.get(name) if key == "0" else None
    number = int(key) if re.fullmatch(r"-?\d{1,9}", key) else None
    if number is None or any(UNRESOLVED in one for one in held):
        return _before_unknown(held, number)
    return held[number] if -len(held) <= number < len(held) else ""


def _before_unknown(held: Sequence[str], number: int | None) -> str:
    """Return an element that stands before all of which it is not known how many words they are."""
    first = next((place for place, one in enumerate(held) if UNRESOLVED in one), len(held))
    return held[number] if number is not None and 0 <= number < first else UNRESOLVED


def set_element(shell: ShellState, name: str, key: str, value: str, *, adds: bool = False) -> None:
    """Set one element of an array; with a key that is not known, nothing of it is known any more."""
    if UNRESOLVED in key:
        shell.tables[name] = {UNRESOLVED: UNRESOLVED}
        return
    before = (element(shell, name, key) or "") if adds else ""
    held = shell.arrays.pop(name, None)
    if name not in shell.tables:
        unknown = any(UNRESOLVED in one for one in held or ())
        shell.tables[name] = {UNRESOLVED: UNRESOLVED} if unknown else {str(n): one for n, one in enumerate(held or ())}
    if len(shell.tables[name]) < MOST_ITEMS:
        shell.tables[name][key] = before + value


def key_of(scanner: Scanner, name: str, text: str) -> str:
    """Return an index as the number or key that it means; UNRESOLVED where that cannot be told."""
    key = scanner.deeper(text).filled().replace("'", "")
    table = scanner.shell.tables.get(name)
    if UNRESOLVED in key:
        return UNRESOLVED
    if name in scanner.shell.keyed or (table is not None and key in table):
        return key
    try:
        return str(_counted(scanner.shell, key))
    except Unresolved:
        return UNRESOLVED


def items(shell: ShellState, name: str) -> list[str] | None:
    """Return all elements of an array in their order; None where there is none of that name."""
    table = shell.tables.get(name)
    if table is None:
        held = shell.arrays.get(name)
        return None if held is None else list(held)
    if name in shell.keyed or UNRESOLVED in table:
        return [UNRESOLVED]  # bash gives the values of keys in no order that is promised
    return [table[key] for key in sorted(table, key=int)]


def _expanded(scanner: Scanner, inside: str, *, quoted: bool) -> list[str]:
    if inside.startswith("#") and len(inside) > 1:
        return [_length(scanner, inside[1:])]
    if inside.startswith("!"):
        return _indirect(scanner, inside[1:], quoted=quoted)
    name, subscript, rest = _head(inside)
    values = _values(scanner, name, subscript)
    several = (subscript or name) in COUNTED_SEPARATELY
    otherwise = OTHERWISE.fullmatch(rest)
    if not rest or otherwise is None:
        if values is None:
            return [UNRESOLVED]
        changed = _changed(scanner, values, rest, several=several, positional=name in COUNTED_SEPARATELY)
        joined = quoted and (subscript or name) == "*"
        return [scanner.shell.variables.get("IFS", " ")[:1].join(changed)] if joined else changed
    return _otherwise(scanner, name, values, otherwise, quoted=quoted)


def _head(inside: str) -> tuple[str, str, str]:
    """Return name, subscript and what stands behind them."""
    match = REFERENCE.match(inside)
    if match is None:
        raise Unresolved(inside)
    at = match.end()
    if inside[at : at + 1] != "[":
        return match[1], "", inside[at:]
    depth = 0
    for end in range(at, len(inside)):
        depth += {"[": 1, "]": -1}.get(inside[end], 0)
        if not depth:
            return match[1], inside[at + 1 : end], inside[end + 1 :]
    raise Unresolved(inside)


def _values(scanner: Scanner, name: str, subscript: str) -> list[str] | None:
    """Return what is referred to; None where nothing is known of it."""
    shell = scanner.shell
    if name in COUNTED_SEPARATELY:
        return list(shell.parameters)
    if subscript in COUNTED_SEPARATELY:
        held = items(shell, name)
        if held is None and (value := shell.variables.get(name)) is not None:
            return [value]
        return held
    if not subscript:
        value = scalar(shell, name)
        return None if value is None else [value]
    key = _from_the_end(shell, name, subscript) or key_of(scanner, name, subscript)
    if UNRESOLVED in key:
        return [UNRESOLVED]
    value = element(shell, name, key)
    return None if value is None else [scanner.chosen(value)]


def _from_the_end(shell: ShellState, name: str, subscript: str) -> str:
    """Return the index of the last element, however it is written; empty for another one."""
    last = re.fullmatch(r"\$?\(?\(?\s*(?:\$\{#(\w+)\[[@*]\]\}|#(\w+)\[[@*]\])\s*-\s*1\s*\)?\)?", subscript)
    if last is None or (last[1] or last[2]) != name:
        return ""
    held = items(shell, name)
    return "-1" if held and name not in shell.tables else ""


def _length(scanner: Scanner, inside: str) -> str:
    name, subscript, rest = _head(inside)
    values = _values(scanner, name, subscript)
    if rest or values is None or any(UNRESOLVED in value for value in values):
        return UNRESOLVED
    return str(len(values) if (subscript or name) in COUNTED_SEPARATELY else len(values[0]))


def _indirect(scanner: Scanner, inside: str, *, quoted: bool) -> list[str]:
    """Return `${!NAME}`, what the variable holds whose name NAME holds, and `${!LIST[@]}`, the indexes of an array."""
    name, subscript, rest = _head(inside)
    shell = scanner.shell
    if subscript in COUNTED_SEPARATELY:
        held = items(shell, name)
        if rest or held is None or any(UNRESOLVED in one for one in held):
            raise Unresolved(inside)
        table = shell.tables.get(name)
        return sorted(table, key=int) if table is not None else [str(number) for number in range(len(held))]
    target = "".join(_values(scanner, name, subscript) or [UNRESOLVED])
    if UNRESOLVED in target or not re.fullmatch(r"[A-Za-z_]\w*(?:\[[\w@*]+\])?|\d+", target):
        raise Unresolved(inside)
    return _expanded(scanner, target + rest, quoted=quoted)


def _otherwise(scanner: Scanner, name: str, values: list[str] | None, match: re.Match[str], *, quoted: bool) -> list[str]:
    """Return `${X:-other}` and its kin."""
    colon, sign, other = match.groups()
    empty = values is None or (bool(colon) and not "".join(values))
    if sign == "+":
        return [""] if empty else _words(scanner, other, quoted=quoted)
    if not empty:
        return values or [""]
    if sign == "?":
        return [UNRESOLVED]
    alternative = _words(scanner, other, quoted=quoted)
    if sign == "=" and re.fullmatch(r"[A-Za-z_]\w*", name):
        scanner.shell.variables[name] = " ".join(alternative)
    return alternative


def _words(scanner: Scanner, text: str, *, quoted: bool) -> list[str]:
    inner = scanner.deeper(text)
    scanner.whole = not quoted
    return [inner.filled()] if quoted else inner.words() or [""]


def _changed(scanner: Scanner, values: list[str], rest: str, *, several: bool, positional: bool) -> list[str]:
    """Return values with what stands behind the name done to each."""
    if not rest:
        return values
    part = SLICE.fullmatch(rest)
    if part is not None:
        return _sliced(scanner, values, part, several=several, positional=positional)
    if any(UNRESOLVED in value or len(value) > MOST_TRIMMED for value in values):
        raise Unresolved(rest)
    if rest in CASES:
        return [CASES[rest](value) for value in values]
    trims, replaces = TRIMS.fullmatch(rest), REPLACES.fullmatch(rest)
    if trims is not None:
        pattern = scanner.deeper(trims[2], protecting=True).filled_pattern()
        return [_trimmed(value, trims[1], pattern) for value in values]
    if replaces is not None:
        pattern = scanner.deeper(replaces[2], protecting=True).filled_pattern()
        return [_replaced(value, replaces[1], pattern, _plain_text(scanner, replaces[3] or "")) for value in values]
    raise Unresolved(rest)


def _sliced(scanner: Scanner, values: list[str], part: re.Match[str], *, several: bool, positional: bool) -> list[str]:
    """Return a part of a text or of several; of parameters `$1` has the index 1, and what `$0` would be is not known."""
    first = arithmetic(scanner, part[1])
    count = arithmetic(scanner, part[2]) if part[2] is not None else None
    if any(UNRESOLVED in value for value in values):
        raise Unresolved("a part of what is not known")
    whole: Sequence[str] = ([UNRESOLVED, *values] if positional else values) if several else values[0]
    begin = first if first >= 0 else max(0, len(whole) + first)
    end = len(whole) if count is None else begin + count if count >= 0 else len(whole) + count
    return list(whole[begin:end]) if several else ["".join(whole[begin:end])]


def _trimmed(value: str, sign: str, pattern: str) -> str:
    lengths = range(len(value) + 1) if len(sign) == 1 else range(len(value), -1, -1)
    for length in lengths:
        cut = value[:length] if sign[0] == "#" else value[len(value) - length :]
        if name_matches(cut, pattern):
            return value[length:] if sign[0] == "#" else value[: len(value) - length]
    return value


def _plain_text(scanner: Scanner, text: str) -> str:
    """Return the text behind the second `/` of `${X/a/b}`."""
    inner = scanner.deeper(text).filled()
    return inner[1:-1] if len(inner) > 1 and inner[0] == inner[-1] == "'" else re.sub(r"\\(.)", r"\1", inner)


def _replaced(value: str, where: str, pattern: str, other: str) -> str:
    """Return a text with what a pattern without `*`, `?` and `[` means replaced."""
    if re.search(r"[*?\[]", pattern) or UNRESOLVED in pattern + other:
        raise Unresolved(pattern)
    text = plain(pattern)
    if where == "#":
        return other + value[len(text) :] if value.startswith(text) else value
    if where == "%":
        return value[: len(value) - len(text)] + other if value.endswith(text) else value
    return value.replace(text, other, -1 if where == "/" else 1)
