"""Find secrets in columns of tables, CSV files and SQL whose heading names one, and values that a traceback hangs below names."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import pairwise

from assistant.redact.values import Strength, is_secret_value, looks_random, strength_of

_SECRET_WORD = re.compile(r"pass|pwd|secret|token|kennwort|[_ ]key|apikey|cred")
_RULE = re.compile(r"[-+=|:\s┌┬┐├┼┤└┴┘─━│┃╇╋╪╞╡┆═║╔╦╗╠╬╣╚╩╝]{3,400}")
_NAME = re.compile(r"[A-Za-z][\w .()/-]{0,39}")
_FIELD = re.compile(r"\"?[A-Za-z][\w.-]{0,39}\"?")
_NO_HEADING = re.compile(r"[=:<{\[]|\bis\b")
_BARS = re.compile(r"[|│┃║┆]")
_GAPS = re.compile(r" {2,80}|\t{1,8}")
_MOST_ROWS, _MOST_CELLS, _LONGEST_ROW = 200, 24, 600
_HUNG = re.compile(r"└ (?P<value>[bru]{0,2}(?P<quote>[\"'])[^\n]{4,300}?(?P=quote))(?=\s|\Z)")
_MOST_ABOVE = 24


def column_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the cells below a heading that names a secret: `| host | password |`, `user,password,group`.

    Args:
        text: Of several lines.
        lowered: The same in small letters, character for character.
    """
    read_to = -1
    for word in _SECRET_WORD.finditer(lowered):
        if word.start() < read_to:
            continue
        start = text.rfind("\n", max(word.start() - _LONGEST_ROW, 0), word.start()) + 1
        end = text.find("\n", word.end(), word.end() + _LONGEST_ROW)
        read_to = end if end >= 0 else word.end() + _LONGEST_ROW
        if end < 0 or (start and text[start - 1] != "\n") or (not start and word.start() > _LONGEST_ROW):
            continue
        row = text[start:end]
        split = (
            None
            if _NO_HEADING.search(row)
            else next(
                (
                    cut
                    for cut in (_SPACES, *_SPLITS)
                    if (cut is not _SPACES or _is_numbered(text, end + 1, row))
                    and cut.search(row)
                    and _is_heading(_cells(row, cut), cut)
                ),
                None,
            )
        )
        if split is None:
            continue
        names = _cells(row, split)
        columns = [(place, strength_of(name)) for place, (_, name) in enumerate(names) if strength_of(name) >= Strength.MEDIUM]
        position = end + 1
        for _ in range(_MOST_ROWS):
            stop = text.find("\n", position, position + _LONGEST_ROW)
            stop = min(len(text), position + _LONGEST_ROW) if stop < 0 else stop
            row = text[position:stop]
            cells = _cells(row, split)
            if split is _SPACES and len(cells) == len(names) + 1 and cells[0][1].isdigit():
                cells = cells[1:]
            elif split is _SPACES:
                break
            if not _RULE.fullmatch(row):
                if len(cells) != len(names):
                    break
                for place, strength in columns:
                    at, value = cells[place]
                    if _is_secret_cell(value.strip("\"'"), strength):
                        yield position + at, position + at + len(value)
            position = stop + 1
            if position >= len(text):
                break
        read_to = max(read_to, position - 1)


def _is_secret_cell(value: str, strength: Strength) -> bool:
    """Tell whether the value of a column is a secret: of one called `token` only what is random."""
    return is_secret_value(value, strength) and (strength >= Strength.STRONG or looks_random(value, 16))


def _is_numbered(text: str, position: int, heading: str) -> bool:
    """Tell whether the row below a heading begins with its number, for which the heading leaves a space, as in pandas."""
    row = _NUMBERED_ROW.match(text, position) if heading[:1].isspace() else None
    return row is not None and len(row.group().split()) == len(heading.split()) + 1


_NUMBERED_ROW = re.compile(r"\d{1,9}[ \t][^\n]{1,600}")


def _cells(row: str, split: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return the cells of a row, each with where it begins; of a frame at its ends nothing."""
    start, end = len(row) - len(row.lstrip(_FRAME)), len(row.rstrip(_FRAME))
    marks = [match.span() for match, _ in zip(split.finditer(row, start, end), range(_MOST_CELLS + 1), strict=False)]
    pieces = [(mark[1], row[mark[1] : following[0]]) for mark, following in pairwise([(start, start), *marks, (end, end)])]
    return [(at + len(piece) - len(piece.lstrip()), piece.strip()) for at, piece in pieces]


_FRAME = " \t\r|│┃║┆"


_SPACES = re.compile(r"[ \t]{1,80}")
_SPLITS = (_BARS, re.compile(","), re.compile(";"), _GAPS)


def _is_heading(cells: list[tuple[int, str]], split: re.Pattern[str]) -> bool:
    names = [name for _, name in cells]
    form = _NAME if split in (_BARS, _GAPS) else _FIELD  # a sentence has commas, too
    return (
        2 <= len(names) <= _MOST_CELLS
        and all(form.fullmatch(name) and not looks_random(name, 8) for name in names)
        and any(strength_of(name) >= Strength.MEDIUM for name in names)
        and len(set(names)) == len(names)
    )


def hung_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values that a traceback (loguru, better_exceptions) hangs below the names of a line of source."""
    if "└ " not in text:
        return
    for match in _HUNG.finditer(text):
        begin = text.rfind("\n", 0, match.start("value")) + 1
        column = match.start("value") - 2 - begin
        stop = begin - 1
        for _ in range(_MOST_ABOVE):
            line_start = text.rfind("\n", max(stop - _LONGEST_ROW, 0), max(stop, 0)) + 1
            line = text[line_start:stop]
            if stop <= 0 or len(line) <= column:
                break
            if line[column] not in "│└├":
                word = re.match(r"[A-Za-z_]\w{0,63}", line[column:])
                value = match["value"].strip("bru\"'")
                if word and is_secret_value(value, strength_of(word.group())):
                    yield match.span("value")
                break
            stop = line_start - 1


_INTO = re.compile(
    r"\b(?:(?:insert|replace|merge)\s{1,8}(?:\w{1,12}\s{1,8}){0,2}into|copy)\s{1,8}[\w.\"`\[\]$]{1,128}\s{0,8}\((?P<columns>[^()]{3,1500})\)\s{0,8}"
    r"(?:(?:overriding\s\w{1,10}\svalue\s)?(?P<values>values?)\s{0,8}(?=\()|(?P<copied>from\s{1,4}stdin[^\n]{0,80}\n))"
)
_ROW_START = re.compile(r"[\s,]{0,80}\(")
_CELL = re.compile(
    r"\s{0,40}(?P<value>[nNeEbBxX]?(?:'(?:[^'\\]|''|\\.){0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\")|[^\s,()'\"][^,()'\"]{0,400}(?:\([^()]{0,200}\))?)?\s{0,40}(?P<end>[,)])"
)
_PARAMETERS = re.compile(r"(?:param\w{0,8}|args|values|binds?|data)[\"']?\s{0,4}[:=]?\s{0,4}\[?(?=\()", re.IGNORECASE)
_NUMBERED = re.compile(r"\$(?P<number>\d{1,2})\s{0,4}=\s{0,4}(?P<value>'[^'\n]{1,400}')")
_AFTER_STATEMENT, _MOST_TUPLES = 400, 64


def inserted_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values of columns named as secrets in INSERT and COPY, also as parameters behind a statement.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    if "into" not in lowered and "copy" not in lowered:
        return
    read_to = 0
    for match in _INTO.finditer(lowered):
        names = [name.strip(' \t\r\n"`[]') for name in text[match.start("columns") : match.end("columns")].split(",")]
        columns = {place: strength for place, name in enumerate(names) if (strength := strength_of(name)) >= Strength.MEDIUM}
        if not columns or match.start() < read_to:
            continue
        if match["copied"]:
            read_to = yield from _copied(text, match.end(), len(names), columns)
        else:
            read_to = yield from _tuples(text, match.end(), columns)
            if "(" in text[read_to : read_to + _AFTER_STATEMENT] or "$" in text[read_to : read_to + _AFTER_STATEMENT]:
                yield from _parameters(text, read_to, columns)


def _parameters(text: str, position: int, columns: dict[int, Strength]) -> Iterator[tuple[int, int]]:
    """Yield values that stand behind a statement in which marks stand for them."""
    for bound in _NUMBERED.finditer(text, position, position + _AFTER_STATEMENT):
        if _is_secret_cell(bound["value"].strip("'"), columns.get(int(bound["number"]) - 1, Strength.NONE)):
            yield bound.span("value")
    if parameters := _PARAMETERS.search(text, position, position + _AFTER_STATEMENT):
        yield from _tuples(text, parameters.end(), columns)


def _tuples(text: str, position: int, columns: dict[int, Strength]) -> Generator[tuple[int, int], None, int]:
    for _ in range(_MOST_TUPLES):
        opening = _ROW_START.match(text, position)
        if opening is None:
            break
        position = opening.end()
        for place in range(_MOST_CELLS * 2):
            cell = _CELL.match(text, position)
            if cell is None:
                return position
            position = cell.end()
            value = cell["value"] or ""
            if (
                place in columns
                and _is_secret_cell(value.lstrip("nNeEbBxX").strip("'\""), columns[place])
                and not _BOUND.fullmatch(value)
            ):
                yield cell.span("value")
            if cell["end"] == ")":
                break
    return position


_BOUND = re.compile(r"\?\d{0,3}|[:$@%]\(?\w{1,40}\)?s?|NULL|DEFAULT|\w{1,24}\([^()]{0,200}\)|\[redacted\]", re.IGNORECASE)
"""What stands for a value: a parameter, a function."""


def _copied(text: str, position: int, count: int, columns: dict[int, Strength]) -> Generator[tuple[int, int], None, int]:
    for _ in range(_MOST_ROWS):
        stop = text.find("\n", position, position + _LONGEST_ROW)
        stop = min(len(text), position + _LONGEST_ROW) if stop < 0 else stop
        cells = text[position:stop].split("\t")
        if len(cells) != count:
            break
        for place, cell in enumerate(cells):
            if place in columns and _is_secret_cell(cell.strip(), columns[place]):
                yield position, position + len(cell)
            position += len(cell) + 1
    return position
