"""What `$((SLURM_ARRAY_TASK_ID / 3))` and `${X:-default}`, `${LIST[$ID]}`, `${!NAME}`, `${#LIST[@]}`, `${X##*/}` become. Pure.

What only a run can tell is `UNRESOLVED`. Source of the arithmetic: bash, expr.c (64 bits that wrap, division towards zero, names
without `$`, a name whose value is an expression itself).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from assistant.recover.shell.folders import UNRESOLVED, Unresolved, plain, trimmed

if TYPE_CHECKING:
    from assistant.recover.shell.words import Scanner, ShellState

MOST_LETTERS, MOST_DEPTH = 400, 24
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+#\w+|0[xX][0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<sign><<=|>>=|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),\[\]]))"
)
BINARY = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
"""Operators, those that bind least first; `**` and the ones before a value stand apart."""
ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")


class Arithmetic:
    """Works out one expression.

    Args:
        text: Of which all `$…` are filled in.
        look_up: Returns what a name, or `NAME[index]`, holds; raises `Unresolved` where that cannot be told.
        assign: Takes what an assignment in it makes of a name.
    """

    def __init__(self, text: str, look_up: Callable[[str], str], assign: Callable[[str, str], None], depth: int = 0) -> None:
        if len(text) > MOST_LETTERS or depth > MOST_DEPTH:
            raise Unresolved("too long an expression")
        self.look_up, self.assign, self.depth = look_up, assign, depth
        self.tokens = self._cut(text.strip())
        self.at = 0

    def value(self) -> int:
        """Return the expression's value.

        Raises:
            Unresolved: It cannot be told, or bash would refuse it.
        """
        if not self.tokens:
            return 0
        if not {"?", "&&", "||"}.isdisjoint(self.tokens) and not {*ASSIGNS, "++", "--"}.isdisjoint(self.tokens):
            raise Unresolved("an assignment that a run may pass over")
        result = self._comma()
        if self.at < len(self.tokens):
            raise Unresolved(self.tokens[self.at])
        return result

    @staticmethod
    def _cut(text: str) -> list[str]:
        tokens, at = [], 0
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                raise Unresolved(text)
            tokens.append(match[match.lastgroup or 0])
            at = match.end()
        return tokens

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._next()
        if not token or (expected and token != expected):
            raise Unresolved(expected or "an expression that ends early")
        self.at += 1
        return token

    def _comma(self) -> int:
        value = self._chosen()
        while self._next() == ",":
            self._take()
            value = self._chosen()
        return value

    def _chosen(self) -> int:
        """Return what an assignment or a choice (`a ? b : c`) comes to."""
        begin = self.at
        name = self._reference() if re.match(r"[A-Za-z_]", self._next()) else ""
        if name and self._next() in ASSIGNS:
            sign = self._take()
            operand = self._chosen()
            value = operand if sign == "=" else _binary(sign[:-1], self._held(name), operand)
            self.assign(name, str(value))
            return value
        self.at = begin
        test = self._level(0)
        if self._next() != "?":
            return test
        self._take()
        first = self._chosen()
        self._take(":")
        second = self._chosen()
        return first if test else second

    def _level(self, level: int) -> int:
        if level == len(BINARY):
            return self._power()
        value = self._level(level + 1)
        while self._next() in BINARY[level]:
            sign = self._take()
            value = _binary(sign, value, self._level(level + 1))
        return value

    def _power(self) -> int:
        base = self._single()
        if self._next() != "**":
            return base
        self._take()
        exponent = self._power()
        if exponent < 0:
            raise Unresolved("a negative exponent")
        return _wrapped(pow(base, exponent, 1 << 64))

    def _single(self) -> int:
        token = self._next()
        if token in ("++", "--"):
            self._take()
            return self._counted(self._reference(), token, before=True)
        if token in ("-", "+", "!", "~"):
            self._take()
            value = self._single()
            return _wrapped({"-": -value, "+": value, "!": int(not value), "~": ~value}[token])
        if token == "(":
            self._take()
            value = self._comma()
            self._take(")")
            return value
        if token[:1].isdigit():
            return _number(self._take())
        name = self._reference()
        if self._next() in ("++", "--"):
            return self._counted(name, self._take(), before=False)
        return self._held(name)

    def _counted(self, name: str, sign: str, *, before: bool) -> int:
        value_before = self._held(name)
        changed = _wrapped(value_before + (1 if sign == "++" else -1))
        self.assign(name, str(changed))
        return changed if before else value_before

    def _reference(self) -> str:
        """Return a name, with the value of its index."""
        name = self._take()
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise Unresolved(name)
        if self._next() != "[":
            return name
        self._take()
        index = self._comma()
        self._take("]")
        return f"{name}[{index}]"

    def _held(self, name: str) -> int:
        """Return the value of a variable, which may be an expression itself."""
        return Arithmetic(self.look_up(name), self.look_up, self.assign, self.depth + 1).value()


def _number(text: str) -> int:
    base, sharp, digits = text.partition("#")
    try:
        if sharp:
            return _wrapped(int(digits, int(base)))
        return _wrapped(int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10))
    except ValueError as error:
        raise Unresolved(text) from error


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _binary(sign: str, a: int, b: int) -> int:
    if sign in ("/", "%"):
        if not b:
            raise Unresolved("a division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return _wrapped(quotient if sign == "/" else a - quotient * b)
    if sign in ("<<", ">>"):
        return _wrapped(a << (b & 63) if sign == "<<" else a >> (b & 63))
    results = {
        "+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b,
        "==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b,
        "&&": bool(a) and bool(b), "||": bool(a) or bool(b),
    }  # fmt: skip
    return _wrapped(int(results[sign]))


MOST_TRIMMED, MOST_ITEMS = 4096, 20_000
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
        if 0 < number <= len(shell.parameters):
            return shell.parameters[number - 1]
        return "" if number and shell.parameters_counted else None
    if name == "#":
        return str(len(shell.parameters)) if shell.parameters_counted else None
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
    items_held = shell.arrays.get(name)
    if items_held is None:
        return shell.variables.get(name) if key == "0" else None
    number = int(key) if re.fullmatch(r"-?\d{1,9}", key) else None
    if number is None or any(UNRESOLVED in item for item in items_held):
        return _before_unknown(items_held, number)
    return items_held[number] if -len(items_held) <= number < len(items_held) else ""


def _before_unknown(items_held: Sequence[str], number: int | None) -> str:
    """Return an element that stands before all of which it is not known how many words they are."""
    first = next((place for place, item in enumerate(items_held) if UNRESOLVED in item), len(items_held))
    return items_held[number] if number is not None and 0 <= number < first else UNRESOLVED


def set_element(shell: ShellState, name: str, key: str, value: str, *, adds: bool = False) -> None:
    """Set one element of an array; with a key that is not known, nothing of it is known any more."""
    if UNRESOLVED in key:
        shell.tables[name] = {UNRESOLVED: UNRESOLVED}
        return
    before = (element(shell, name, key) or "") if adds else ""
    items_held = shell.arrays.pop(name, None)
    if name not in shell.tables:
        unknown = any(UNRESOLVED in item for item in items_held or ())
        shell.tables[name] = {UNRESOLVED: UNRESOLVED} if unknown else {str(n): item for n, item in enumerate(items_held or ())}
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
        items_held = shell.arrays.get(name)
        return None if items_held is None else list(items_held)
    if name in shell.keyed or UNRESOLVED in table:
        return [UNRESOLVED]  # bash gives the values of keys in no order that is promised
    return [table[key] for key in sorted(table, key=int)]


def _expanded(scanner: Scanner, inside: str, *, quoted: bool) -> list[str]:
    if inside.startswith("#") and len(inside) > 1:
        return [_length(scanner, inside[1:])]
    if inside.startswith("!"):
        return _indirect(scanner, inside[1:], quoted=quoted)
    name, subscript, modifiers = _head(inside)
    values = _values(scanner, name, subscript)
    several = (subscript or name) in COUNTED_SEPARATELY
    otherwise = OTHERWISE.fullmatch(modifiers)
    if not modifiers or otherwise is None:
        if values is None:
            return [UNRESOLVED]
        changed = _changed(scanner, values, modifiers, several=several, positional=name in COUNTED_SEPARATELY)
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
        items_held = items(shell, name)
        if items_held is None and (value := shell.variables.get(name)) is not None:
            return [value]
        return items_held
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
    items_held = items(shell, name)
    return "-1" if items_held and name not in shell.tables else ""


def _length(scanner: Scanner, inside: str) -> str:
    name, subscript, modifiers = _head(inside)
    values = _values(scanner, name, subscript)
    if modifiers or values is None or any(UNRESOLVED in value for value in values):
        return UNRESOLVED
    return str(len(values) if (subscript or name) in COUNTED_SEPARATELY else len(values[0]))


def _indirect(scanner: Scanner, inside: str, *, quoted: bool) -> list[str]:
    """Return `${!NAME}`, what the variable holds whose name NAME holds, and `${!LIST[@]}`, the indexes of an array."""
    name, subscript, modifiers = _head(inside)
    shell = scanner.shell
    if subscript in COUNTED_SEPARATELY:
        items_held = items(shell, name)
        if modifiers or items_held is None or any(UNRESOLVED in item for item in items_held):
            raise Unresolved(inside)
        table = shell.tables.get(name)
        return sorted(table, key=int) if table is not None else [str(number) for number in range(len(items_held))]
    target = "".join(_values(scanner, name, subscript) or [UNRESOLVED])
    if UNRESOLVED in target or not re.fullmatch(r"[A-Za-z_]\w*(?:\[[\w@*]+\])?|\d+", target):
        raise Unresolved(inside)
    return _expanded(scanner, target + modifiers, quoted=quoted)


def _otherwise(scanner: Scanner, name: str, values: list[str] | None, match: re.Match[str], *, quoted: bool) -> list[str]:
    """Return `${X:-other}` and its kin."""
    colon, sign, alternative_text = match.groups()
    empty = values is None or (bool(colon) and not "".join(values))
    if sign == "+":
        return [""] if empty else _words(scanner, alternative_text, quoted=quoted)
    if not empty:
        return values or [""]
    if sign == "?":
        return [UNRESOLVED]
    alternative = _words(scanner, alternative_text, quoted=quoted)
    if sign == "=" and re.fullmatch(r"[A-Za-z_]\w*", name):
        scanner.shell.variables[name] = " ".join(alternative)
    return alternative


def _words(scanner: Scanner, text: str, *, quoted: bool) -> list[str]:
    inner = scanner.deeper(text)
    scanner.whole = not quoted
    return [inner.filled()] if quoted else inner.words() or [""]


def _changed(scanner: Scanner, values: list[str], modifiers: str, *, several: bool, positional: bool) -> list[str]:
    """Return values with what stands behind the name done to each."""
    if not modifiers:
        return values
    part = SLICE.fullmatch(modifiers)
    if part is not None:
        return _sliced(scanner, values, part, several=several, positional=positional)
    if any(UNRESOLVED in value or len(value) > MOST_TRIMMED for value in values):
        raise Unresolved(modifiers)
    if modifiers in CASES:
        return [CASES[modifiers](value) for value in values]
    trims, replaces = TRIMS.fullmatch(modifiers), REPLACES.fullmatch(modifiers)
    if trims is not None:
        pattern = scanner.deeper(trims[2], protecting=True).filled_pattern()
        return [trimmed(value, trims[1], pattern) for value in values]
    if replaces is not None:
        pattern = scanner.deeper(replaces[2], protecting=True).filled_pattern()
        return [_replaced(value, replaces[1], pattern, _plain_text(scanner, replaces[3] or "")) for value in values]
    raise Unresolved(modifiers)


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


def _plain_text(scanner: Scanner, text: str) -> str:
    """Return the text behind the second `/` of `${X/a/b}`."""
    inner = scanner.deeper(text).filled()
    return inner[1:-1] if len(inner) > 1 and inner[0] == inner[-1] == "'" else re.sub(r"\\(.)", r"\1", inner)


def _replaced(value: str, anchor: str, pattern: str, replacement: str) -> str:
    """Return a text with what a pattern without `*`, `?` and `[` means replaced."""
    if re.search(r"[*?\[]", pattern) or UNRESOLVED in pattern + replacement:
        raise Unresolved(pattern)
    text = plain(pattern)
    if anchor == "#":
        return replacement + value[len(text) :] if value.startswith(text) else value
    if anchor == "%":
        return value[: len(value) - len(text)] + replacement if value.endswith(text) else value
    return value.replace(text, replacement, -1 if anchor == "/" else 1)
