"""Find secrets in columns: of tables and CSV files whose heading names one; of values that a traceback hangs below their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from assistant.redact.values import Strength, is_secret_value, looks_random, strength_of

_SECRET_WORD = re.compile(r"pass|pwd|secret|token|kennwort|[_ ]key|apikey|cred")
_RULE = re.compile(r"[-+=|:\s┌┬┐├┼┤└┴┘─━│┃╇╋╪═║╔╦╗╠╬╣╚╩╝]{3,400}")
_NAME = re.compile(r"[A-Za-z][\w .()/-]{0,39}")
_FIELD = re.compile(r"\"?[A-Za-z][\w.-]{0,39}\"?")
_NO_HEADING = re.compile(r"[=:<{\[]|\bis\b")
_BARS = re.compile(r"[|│┃║]")
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
            else next((cut for cut in _SPLITS if cut.search(row) and _is_heading(_cells(row, cut), cut)), None)
        )
        if split is None:
            continue
        names = _cells(text[start:end], split)
        columns = [(place, strength_of(name)) for place, (_, name) in enumerate(names) if strength_of(name) >= Strength.STRONG]
        position = end + 1
        for _ in range(_MOST_ROWS):
            stop = text.find("\n", position, position + _LONGEST_ROW)
            stop = min(len(text), position + _LONGEST_ROW) if stop < 0 else stop
            row = text[position:stop]
            cells = _cells(row, split)
            if not _RULE.fullmatch(row):
                if len(cells) != len(names):
                    break
                for place, strength in columns:
                    at, value = cells[place]
                    if is_secret_value(value.strip("\"'"), strength):
                        yield position + at, position + at + len(value)
            position = stop + 1
            if position >= len(text):
                break
        read_to = max(read_to, position - 1)


def _cells(row: str, split: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return the cells of a row, each with where it begins; of a frame at its ends nothing."""
    start, end = len(row) - len(row.lstrip(_FRAME)), len(row.rstrip(_FRAME))
    marks = [match.span() for match, _ in zip(split.finditer(row, start, end), range(_MOST_CELLS + 1), strict=False)]
    pieces = [(mark[1], row[mark[1] : following[0]]) for mark, following in pairwise([(start, start), *marks, (end, end)])]
    return [(at + len(piece) - len(piece.lstrip()), piece.strip()) for at, piece in pieces]


_FRAME = " \t\r|│┃║"


_SPLITS = (_BARS, re.compile(","), re.compile(";"), _GAPS)


def _is_heading(cells: list[tuple[int, str]], split: re.Pattern[str]) -> bool:
    names = [name for _, name in cells]
    form = _NAME if split in (_BARS, _GAPS) else _FIELD  # a sentence has commas, too
    return (
        2 <= len(names) <= _MOST_CELLS
        and all(form.fullmatch(name) and not looks_random(name, 8) for name in names)
        and any(strength_of(name) >= Strength.STRONG for name in names)
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
