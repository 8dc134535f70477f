"""Read lines of metrics in forms that no framework is known for: `step:46 - loss:2.3 - lr:1e-4`, and tables under a header.

A line counts that names a step among three or more numbers with names, or a row of numbers under a header with a step. Lines that
tell of a save, a load or a resumption do not. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBER = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,4})?|\.\d{1,40}|(?i:nan|inf(?:inity)?))"
PAIR = re.compile(
    rf"(?P<key>[A-Za-z_@][\w./@()-]{{0,80}}(?: [A-Za-z_][\w/-]{{0,30}})?)\s{{0,8}}[:=]\s{{0,8}}(?:\w{{1,20}}\.\w{{1,20}}\()?"
    rf"(?P<value>{NUMBER})(?![\w.:/-]*\w|\s?%)"
)
DONE_WORDS = "completed|finished|trained|current"
"""Words before `_steps` that say of a count that it is the one so far: Accelerate's examples print `completed_steps`."""
STEP = re.compile(
    rf"(?:^|[/. @])(?:(?:global|update|train|training|trainer|opt|optimizer|policy|{DONE_WORDS})[_ ]?)?"
    r"(?:steps?|iters?|iterations?|updates?|num_updates|batch_idx|opt_step)$",
    re.IGNORECASE,
)
NO_STEP = re.compile(
    r"skip|nan|inf\b|number|count|total|max|\bmin|remain|left|per\b|warm|eval|log|save|bad|late|every|interval"
    r"|start|begin|initial|first|final|\bend|stop|target|goal|limit|budget|planned|until",
    re.IGNORECASE,
)
"""In the name of a number: steps of some kind, counted, allowed or meant, but not the one that the line is of."""
PLURAL = re.compile(r"(?<!num_)(?:steps|iters|iterations|updates)$", re.IGNORECASE)
"""In the plural a name is as often that of how many steps are meant: `train_steps: 900` in a summary of settings."""
COUNTED_SO_FAR = re.compile(rf"(?:{DONE_WORDS})[_ ]?\w{{1,12}}$", re.IGNORECASE)
LOSS = re.compile(r"(?:^|[/. ])(?:(?:train|training|total|lm|mean|avg)_?)?loss$", re.IGNORECASE)
NORM = re.compile(r"(?:^|[/. ])(?:global_|total_)?(?:grad(?:ient)?_?norm|gnorm)$", re.IGNORECASE)
OTHER_MATTER = re.compile(
    r"\b(?:sav(?:e|ed|ing)|load(?:ed|ing)?|restor\w{1,6}|resum\w{1,6}|checkpoint\w{0,8}|eval\w{0,8}|valid\w{0,8}|test(?:ing)?|best|config|args?"
    r"|max_\w{1,20}|total_steps)\b",
    re.IGNORECASE,
)
"""What a line about something else than a training step says."""
FEWEST_PAIRS = 3
FEWEST_COLUMNS = 2
LONGEST = 4000
_PAIRED = re.compile(r"(?:step|iter|iteration|update|idx)s?\)?\s{0,8}[:=]\s{0,8}\d", re.IGNORECASE)
_TITLE = re.compile(
    r"(?:^|[|│┃\t,]|\s\s)\s{0,4}(?:\w{1,20}[_ /])?(?:step|iter|iteration|update)s?\s{0,4}(?:$|[|│┃\t,]|\s\s)", re.IGNORECASE
)
"""Looked for first, because that is cheap."""
_CELLS = re.compile(r"\s*[|│┃]\s*|\t+|\s{2,}|\s*,\s*")
_PREFIX = re.compile(r"^\s{0,20}(?:\([^)]{1,80}\)|\[[^\]]{1,80}\])\s{0,8}")
_ROW = re.compile(r"\s{0,40}(?:\([^)]{1,80}\)|\[[^\]]{1,80}\])?[\s|│┃]{0,40}[-+\d.]")
_NUMBER_ALONE = re.compile(NUMBER)


class PairsReading(NamedTuple):
    """The metrics of one line."""

    step: int
    loss: str | None
    norm: str | None
    setting: str = ""
    """Name of the step where it may be a setting: in the plural, without a loss; only a second value shows that it counts."""


class TableReader:
    """Reads rows of numbers under the header that stood last."""

    def __init__(self) -> None:
        """Begin with no header."""
        self.columns: tuple[str, ...] = ()
        """Of the header that stood last and names a step."""

    def take(self, text: str) -> PairsReading | None:
        """Return what a row says; None for a header and for any other line."""
        if len(text) > LONGEST or not (_TITLE.search(text) or (self.columns and _ROW.match(text))):
            return None
        cells = [cell for cell in _CELLS.split(_PREFIX.sub("", text).strip(" |│┃\t")) if cell]
        if len(cells) < FEWEST_COLUMNS:
            return None
        names = [cell.strip() for cell in cells]
        if all(re.fullmatch(r"[A-Za-z_@][\w ./()%@-]{0,60}", name) for name in names):
            stepped = sum(map(_is_step, names)) == 1
            self.columns = tuple(names) if stepped and len(set(names)) == len(names) else ()
            return None
        if len(names) != len(self.columns):
            return None
        values = dict(zip(self.columns, names, strict=True))
        if not all(_NUMBER_ALONE.fullmatch(value.rstrip("%")) for value in values.values()):
            return None
        return _reading(values)


def pairs_reading(text: str) -> PairsReading | None:
    """Return the metrics of a line of names with numbers; None where it names no step among them, or is about something else."""
    if len(text) > LONGEST or not _PAIRED.search(text):
        return None
    matches = list(PAIR.finditer(text))
    if len(matches) < FEWEST_PAIRS or OTHER_MATTER.search(text, 0, matches[0].end()):
        return None
    values: dict[str, str] = {}
    for match in matches:
        values.setdefault(match["key"].strip(), match["value"])
    return _reading(values)


def _is_step(name: str) -> bool:
    return STEP.search(name) is not None and NO_STEP.search(name) is None


def _reading(values: dict[str, str]) -> PairsReading | None:
    steps = [(key, int(value)) for key, value in values.items() if _is_step(key) and value.isdecimal() and len(value) <= 15]
    if not steps:
        return None
    name, step = next((pair for pair in steps if not PLURAL.search(pair[0])), steps[0])
    loss = next((value for key, value in values.items() if LOSS.search(key)), None)
    norm = next((value for key, value in values.items() if NORM.search(key)), None)
    is_setting = loss is None and norm is None and PLURAL.search(name) is not None and COUNTED_SO_FAR.search(name) is None
    return PairsReading(step, loss, norm, name if is_setting else "")
