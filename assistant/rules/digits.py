r"""Loosen a pattern so that it no longer cares which digits it sees.

The scanner knows routine lines again by their text with the digits left out of account. It may skip such a line only when no
signature could match it *whatever* its digits are; that is asked of the loosened patterns: `exit code 137` becomes
`exit code \d\d\d`.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<class>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])
  | (?P<keep>\\x[0-9a-fA-F]{2}|\\x\{[0-9a-fA-F]{1,8}\}|\\.|\{\d{0,9}+,?\d{0,9}+\}|\(\?P?<\w+>)
  | (?P<digit>[0-9])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIGITS_IN_CLASS = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|[0-9]-[0-9]|[0-9]", re.DOTALL)


def any_digits(pattern: str) -> str:
    """Return a pattern that matches all that this one matches, and the same with any digit in place of any other."""
    return "".join(_loosened(match) for match in _TOKEN.finditer(pattern))


def _loosened(match: re.Match[str]) -> str:
    if match["digit"]:
        return r"\d"
    if not match["class"]:
        return match[0]
    negated = match["class"].startswith("[^")
    inside = match["class"][2 if negated else 1 : -1]
    found = [token for token in _DIGITS_IN_CLASS.findall(inside) if token[0] != "\\"]
    if not found:
        return match[0]
    if not negated:
        last = "-" if inside.endswith("-") and not inside.endswith("\\-") else ""  # before \\d it would be half a range
        return f"[{inside.removesuffix(last)}\\d{last}]"
    left = _DIGITS_IN_CLASS.sub(lambda token: token[0] if token[0].startswith("\\") else "", inside)
    return f"[^{left}]" if left else "."
