"""Arithmetic of a shell, `$((SLURM_ARRAY_TASK_ID / 3))`: worked out on what its variables hold, as bash counts. Pure.

Source: bash, expr.c: 64 bits that wrap, division towards zero, names without `$`, a name whose value is an expression itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from assistant.recover.shell_folders import Unresolved

MOST_LETTERS = 400
MOST_DEPTH = 24
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

    def _take(self, wanted: str = "") -> str:
        token = self._next()
        if not token or (wanted and token != wanted):
            raise Unresolved(wanted or "an expression that ends early")
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
            other = self._chosen()
            value = other if sign == "=" else _binary(sign[:-1], self._held(name), other)
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
        held = self._held(name)
        changed = _wrapped(held + (1 if sign == "++" else -1))
        self.assign(name, str(changed))
        return changed if before else held

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


def _binary(sign: str, left: int, right: int) -> int:
    if sign in ("/", "%"):
        if not right:
            raise Unresolved("a division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrapped(quotient if sign == "/" else left - quotient * right)
    if sign in ("<<", ">>"):
        return _wrapped(left << (right & 63) if sign == "<<" else left >> (right & 63))
    results = {
        "+": left + right, "-": left - right, "*": left * right, "&": left & right, "|": left | right, "^": left ^ right,
        "==": left == right, "!=": left != right, "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right,
        "&&": bool(left) and bool(right), "||": bool(left) or bool(right),
    }  # fmt: skip
    return _wrapped(int(results[sign]))
