"""What `awk` prints that chooses lines and columns of a table: `NR==3`, `$1==ID {print $2}`, `-v i=3 'NR==i'`. Never run.

What is not of these forms is `Unresolved`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from assistant.recover.shell_folders import Collation, Unresolved
from assistant.recover.shell_lines import Line, Stream, compiled, options_of, replace_text

MOST_PROGRAM = 400
PROGRAM = re.compile(r"\s*(?P<when>[^{}]*?)\s*(?:\{\s*(?P<action>[^{}]*?)\s*;?\s*\})?\s*")
TEST = re.compile(r"(?P<left>[^=!<>~|&]+?)\s*(?P<sign>==|!=|<=|>=|<|>|~)\s*(?P<right>[^=!<>~|&]+)")
OPERAND = re.compile(
    r'"(?P<text>[^"\\]*)"|(?P<base>NR|FNR|NF|\$NF|\$\d{1,3}|[A-Za-z_]\w*|-?\d{1,18}(?:\.\d{1,9})?)(?P<more>\s*[-+]\s*\d{1,9})?'
)
NUMBER = re.compile(r"\s*[-+]?(?:\d{1,18}\.?\d{0,9}|\.\d{1,9})(?:[eE][-+]?\d{1,3})?\s*")
PART = re.compile(r'"(?:\\.|[^"])*"|\$\(NF\s*-\s*\d{1,3}\)|\$NF|\$\d{1,3}|\$[A-Za-z_]\w*|NR|NF|[A-Za-z_]\w*|,|\s+|.')


class _Record(NamedTuple):
    """One line as awk sees it."""

    line: Line
    number: int
    fields: list[str]


def awk(words: list[str], given: Stream, order: Collation) -> Stream:
    """Return what awk prints of its input.

    Args:
        words: Behind its name, without files.
        given: Its input.
        order: Not needed: it compares no names.

    Raises:
        Unresolved: It does something else than to choose lines and print columns.
    """
    variables: dict[str, str] = {}
    while "-v" in words or any(word.startswith("-v") for word in words):
        at = next(place for place, word in enumerate(words) if word.startswith("-v"))
        setting = words[at][2:] or " ".join(words[at + 1 : at + 2])
        name, equals, value = setting.partition("=")
        if not equals or "\\" in value:
            raise Unresolved("awk -v")
        variables[name] = value
        words = words[:at] + words[at + (1 if words[at] != "-v" else 2) :]
    options, rest = options_of(words, "", "F")
    match = PROGRAM.fullmatch(rest[0]) if len(rest) == 1 and len(rest[0]) <= MOST_PROGRAM else None
    if match is None:
        raise Unresolved(" ".join(words))
    separator = options.get("F", variables.pop("FS", None))
    records = [_Record(line, at, _fields(line.text, separator)) for at, line in enumerate(given.lines, 1)]
    chosen = _chosen(records, match["when"].strip(), variables, given)
    action = re.fullmatch(r"print\b\s*(.*?)\s*(?:;\s*exit)?", match["action"]) if match["action"] is not None else None
    if match["action"] is not None and action is None:
        raise Unresolved(match["action"])
    if action is not None and action[0].endswith("exit"):
        chosen = chosen[:1]
        if not given.ordered and len(given.lines) > 1:
            raise Unresolved("the order of its input")
    what = action[1] if action is not None else ""
    return Stream(tuple(replace_text(one.line, _printed(one, what, variables)) for one in chosen), given.ordered)


def _chosen(records: list[_Record], when: str, variables: Mapping[str, str], given: Stream) -> list[_Record]:
    """Return the lines for which a condition holds."""
    if not when:
        return records
    about = re.fullmatch(r"(!?)/((?:\\.|[^/])*)/", when)
    if about is not None:
        pattern = compiled(about[2])
        return [one for one in records if (pattern.search(one.line.text.encode()) is not None) is not bool(about[1])]
    if re.search(r"\bF?NR\b|\bEND\b", when) and not given.ordered and len(records) > 1:
        raise Unresolved("the order of its input")
    if when == "END":
        return records[-1:]
    tests = [TEST.fullmatch(part.strip()) for part in when.split("&&")]
    if not all(tests) or "||" in when:
        raise Unresolved(when)
    return [one for one in records if all(test is not None and _holds(one, test, variables) for test in tests)]


def _holds(record: _Record, test: re.Match[str], variables: Mapping[str, str]) -> bool:
    left, right = (_operand(record, test[side].strip(), variables) for side in ("left", "right"))
    if test["sign"] == "~":
        raise Unresolved(test[0])
    quoted = '"' in test["left"] + test["right"]
    if not quoted and NUMBER.fullmatch(left) and NUMBER.fullmatch(right):
        first, second = float(left), float(right)
        return _compared(first < second, first == second, test["sign"])
    return _compared(left < right, left == right, test["sign"])


def _compared(less: bool, equal: bool, sign: str) -> bool:
    return {"==": equal, "!=": not equal, "<": less, "<=": less or equal, ">": not less and not equal, ">=": not less}[sign]


def _operand(record: _Record, text: str, variables: Mapping[str, str]) -> str:
    match = OPERAND.fullmatch(text.strip("() "))
    if match is None:
        raise Unresolved(text)
    if match["text"] is not None:
        return match["text"]
    base = match["base"]
    if base in ("NR", "FNR", "NF"):
        value = str(record.number if base != "NF" else len(record.fields))
    elif base.startswith("$"):
        value = _column(record, base[1:])
    elif base[0].isalpha() or base[0] == "_":
        if base not in variables:
            raise Unresolved(base)
        value = variables[base]
    else:
        value = base
    if not match["more"]:
        return value
    if not re.fullmatch(r"-?\d{1,18}", value):
        raise Unresolved(text)
    return str(int(value) + int(match["more"].replace(" ", "")))


def _column(record: _Record, name: str) -> str:
    if name == "0":
        return record.line.text
    if name != "NF" and not re.fullmatch(r"\d{1,6}", name):
        raise Unresolved(name)
    place = len(record.fields) if name == "NF" else int(name)
    return record.fields[place - 1] if 0 < place <= len(record.fields) else ""


def _fields(text: str, separator: str | None) -> list[str]:
    if not separator or separator == " ":
        return text.split()
    separator = "\t" if separator in ("\\t", "t") else separator
    if len(separator) == 1 and separator != "|":
        return text.split(separator)
    raw, end = text.encode(), 0
    fields: list[str] = []
    for hit in compiled(separator).finditer(raw):
        fields, end = [*fields, raw[end : hit.start()].decode()], hit.end()
    return [*fields, raw[end:].decode()]


def _printed(record: _Record, what: str, variables: Mapping[str, str]) -> str:
    if not what:
        return record.line.text
    printed = ""
    for part in PART.findall(what):
        back = re.fullmatch(r"\$\(NF\s*-\s*(\d+)\)", part)
        if part.startswith('"'):
            if "\\" in part.replace('\\"', "").replace("\\t", ""):
                raise Unresolved(what)
            printed += part[1:-1].replace('\\"', '"').replace("\\t", "\t")
        elif part == ",":
            printed += " "
        elif back is not None:
            place = len(record.fields) - int(back[1])
            printed += record.fields[place - 1] if place > 0 else ""
        elif part.startswith("$") and len(part) > 1:
            printed += _column(record, variables.get(part[1:], part[1:]))
        elif part in ("NR", "NF") or part in variables:
            printed += _operand(record, part, variables)
        elif part.strip():
            raise Unresolved(what)
    return printed
