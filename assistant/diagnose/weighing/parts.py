"""Tell the end of a part from the end of the whole: shards loaded, one task of a workflow done, one epoch's bar full.

Words that say that something is done do not say of what. That the whole is done is not shown where the line itself counts less than
all, where a later line begins something, or where what is counted around it has further to go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import run_round
from assistant.logs.lines import Line

READ = 300
"""Characters of a line that are read."""
FEWEST_ITEMS = 2
"""Items that are done one after another, which show that the last of them need not be the last of all."""
_COUNT = re.compile(r"(?<![\w/.:-])(\d{1,9}) ?(?:/|of|out of) ?(\d{1,9})(?![\w/:-]|\.\d)")
_BAR = re.compile(r"(?<![\d.])(\d{1,3})%(?:\||\]| \[|[ \w]{0,12}\|)|\[ {0,2}(\d{1,3})%\]")
_UNIT = (
    r"(?:job|task|trial|fold|epoch|step|stage|round|run|item|subject|sample|file|chunk|batch|part|shard|seed|experiment|case"
    r"|process"
    r"|iteration|config(?:uration)?|phase|layer|block|tile|frame|image|row|page|record|document|sentence|video|scene|model|test)"
)
_OF_UNIT = re.compile(rf"\b{_UNIT}s?\b", re.IGNORECASE)
_ITEM = re.compile(
    rf"\b{_UNIT}\b\W{{0,3}}(?:#|no\.? ?)?\d{{1,9}}\b.{{0,40}}\b(?:done|finished|complete[ds]?|succeeded|ended)\b"
    rf"|\b(?:done|finished|completed?)\b (?:with )?{_UNIT}\b\W{{0,3}}\d{{1,9}}\b|\b[Tt]ask completed > ",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"(?:^[\s#=*>~+|-]{0,8}|[\]>:|] {1,2}| - |\b(?:INFO|DEBUG|NOTICE) {1,4})(?:now |next:? )?(?:start(?:ing|ed)|beginn?ing"
    r"|launch(?:ing|ed)|submitt(?:ing|ed)|load(?:ing)|processing|running|compiling|capturing"
    r"|building|initiali[sz]ing|preparing|downloading|training|evaluating|executing|waiting for|allocating|tokeni[sz]ing|fitting"
    r"|computing|generating|(?:local)?rule \w+:|select(?:ed)? jobs)\b",
    re.IGNORECASE,
)
"""Behind nothing but times, levels, loggers and rules, of which the last sign is looked at."""
_NO_BEGIN = re.compile(
    r"time|took|took:|finish|complet|done\b|W&B|clean|shut|stop|exit|report|summary|post-?process|upload|sync|loss"
    r"|acc\w*[ :=]|\bin \d"
    r"|%\||\b100%",
    re.IGNORECASE,
)
"""Words of lines that sum up or clear away, however they begin."""


def open_work(proof: Line, lines: Sequence[Line], facts: Facts) -> Line | None:
    """Return the last line that shows that more was to be done than what a line says is done; None where none does.

    Args:
        proof: The last line that says that something is done.
        lines: The end of the log, in order.
        facts: Of the case.
    """
    for line in reversed(lines):
        if line.number < proof.number:
            break
        if _counts_less(line.text) or (line.number > proof.number and _begins(line.text)):
            return line
    is_item = _ITEM.search(proof.text[:READ]) is not None and not _full(proof.text)
    if is_item and sum(_ITEM.search(line.text[:READ]) is not None for line in lines) >= FEWEST_ITEMS:
        return proof
    count = run_round(facts)
    if count is not None and count.at < count.of - 1 and _full(proof.text) and count.line <= proof.number:
        return facts.line(count.line)
    return None


def _begins(text: str) -> bool:
    """Tell whether a line says that something begins."""
    match = _BEGINS.search(text[:READ])
    return match is not None and _NO_BEGIN.search(text[match.start() : READ]) is None


def _counts_less(text: str) -> bool:
    """Tell whether a line counts units of work, or draws a bar, and not to the last."""
    last_state = text.rsplit("\r", 1)[-1][:READ]
    bars = [int(full or boxed) for full, boxed in _BAR.findall(last_state)]
    if bars:
        return bars[-1] < 100
    counts = [(int(at), int(of)) for at, of in _COUNT.findall(last_state)]
    return bool(counts) and _OF_UNIT.search(last_state) is not None and all(at < of for at, of in counts)


def _full(text: str) -> bool:
    """Tell whether a line is a bar or a count that came to its last."""
    last_state = text.rsplit("\r", 1)[-1][:READ]
    return any(int(at) == int(of) for at, of in _COUNT.findall(last_state)) or "100%" in last_state


_HEADER = re.compile(r"^\W{0,4}(?:\w{1,12} )?\[? ?(\d{1,6}) ?/ ?(\d{1,6})\]?[\s:]+(?P<name>\S.{0,200})$")
_BAD = re.compile(r"(?<![\w-])(?:fail(?:ed|ure)?|error(?:ed)?|crashed|timed? ?out)\b(?!\W{1,3}(?:0|no|none)\b)", re.IGNORECASE)
_GOOD = re.compile(r"(?<![\w-])(?:done|ok|passed|success(?:ful)?(?:ly)?|succeeded|finished|completed?|ended)\b", re.IGNORECASE)
LINES_OF_ITEM, NAME_OF_ITEM = 6, 60


def item_verdicts(lines: Sequence[Line]) -> dict[int, tuple[str, bool]]:
    """Return how each of the items went that a driver works off, `[3/6] oak`, where it came to the last and some went well.

    Returns:
        By number of the line that says so: the item with its verdict, and whether it went well; nothing of a list that is not
        complete, or behind whose end no other line stands.
    """
    headers = [(place, match) for place, line in enumerate(lines) if (match := _HEADER.match(line.text[:READ])) is not None]
    if len(headers) < FEWEST_ITEMS:
        return {}
    total = headers[-1][1][2]
    headers = [(place, match) for place, match in headers if match[2] == total]
    positions = [int(match[1]) for _, match in headers]
    if positions[-1] != int(total) or sorted(set(positions)) != positions:
        return {}
    verdicts: dict[int, tuple[str, bool]] = {}
    ends = [place for place, _ in headers[1:]] + [len(lines)]
    for (first, match), end in zip(headers, ends, strict=True):
        for line in lines[first : min(end, first + LINES_OF_ITEM)]:
            words = match["name"] if line is lines[first] else line.text
            is_bad = _BAD.search(words) is not None
            if is_bad or _GOOD.search(words):
                verdicts[line.number] = (f"{match['name'].strip()[:NAME_OF_ITEM]}: {'failed' if is_bad else 'ok'}", not is_bad)
                break
    has_end = any(line.text.strip() and line.number not in verdicts for line in lines[headers[-1][0] + 1 :])
    return verdicts if has_end and len(verdicts) == len(headers) and any(well for _, well in verdicts.values()) else {}
