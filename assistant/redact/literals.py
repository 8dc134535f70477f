r"""Find values behind names of secrets that are more than one text: constructors, lists, strings put together, elements of XML.

`Some("...")`, `[]string{"...", "..."}`, `['...', '...']`, `"..." + "..."`, `<password>\n...\n</password>`, blocks of YAML. Of a
list each item is judged by itself; whatever a call returns is no literal, so a text in it counts only when it is random.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.redact.values import Strength, is_harmless, is_secret_value, looks_random, strength_of, switches

__all__ = [
    "BLOCK_HEAD",
    "argument_spans",
    "element_spans",
    "end_of_strings",
    "line_end",
    "list_spans",
    "literal_span",
    "scalar_block",
]

_WRAPPED = re.compile(
    r"(?:new[ \t]|[&@])?(?P<name>(?:\[\]|\*)?[A-Za-z_][\w.]{0,40}(?:::[\w<>]{1,24}){0,3}!?|\(\*?[\w.]{1,24}\))"
    r"(?:(?:<\w{0,24}>)?(?P<open>[(\[{])\s{0,40}(?:\w{1,24}[=:][ \t]?(?=[\w\"'&]))?|[ \t](?=[\"']))",
    re.ASCII,
)
_WRAPPERS = frozenset(
    "some just right ok optional of ofnullable from new value text literal lit plain plaintext redacted sensitive list tuple set "
    "vec frozenset array aslist listof arrayof setof ptr pointer box arc rc string str bytes secret password credential".split()
)
_MAKES = ("from", "of", "new", "valueof", "create", "make", "parse", "wrap")
"""Begin the name of what makes a value of a class: `SecureString.fromPlain`."""
_WRAPPER_END = re.compile(r"(?:secret|password|passphrase|token|string|str|bytes|text|value|credential)s?\Z")
_TYPE = re.compile(
    r"(?:[\w.]{0,40}\.)?(?:u?int|b?float|complex|bytes|str)\d{0,3}|[A-Z][a-z]\w{0,30}(?:\.\w{1,30}){0,4}|[a-z_]{1,30}", re.ASCII
)
_STRING = r"[bruf]{0,2}(?P<quote>\\{0,7}[\"'`])(?P<text>[^\"'`\n\\]{1,2048})(?P=quote)"
_ITEM = re.compile(
    rf"(?P<key>\\{{0,7}}[\"'`]?[\w.-]{{1,40}}\\{{0,7}}[\"'`]?[ \t]{{0,4}}(?:=>|[:=])[ \t]{{0,4}})?"
    rf"(?:{_STRING}|(?P<bare>[^\s\"'`,;()\[\]{{}}<>=:\\]{{1,512}}))(?P<behind>[ \t]{{0,4}}[,;]?(?:\s|\\n){{0,80}})"
)
_MOST_ITEMS, _MOST_NESTED = 32, 3
_SIGN = re.compile(r"[!#$%&*+?^~@]")


def literal_span(text: str, start: int, strength: Strength) -> tuple[int, int] | None:
    """Return from the first to the last secret of the list or constructor that begins at a place; None when there is none."""
    position, wrapper = start, ""
    for _ in range(_MOST_NESTED):
        match = _WRAPPED.match(text, position)
        if match is None or (not match["open"] and match["name"].lower() not in _WRAPPERS):
            break
        *classes, name = re.split(r"[.:]+", match["name"].strip("!*()[]&").lower())
        trusted = not name or name in _WRAPPERS or _WRAPPER_END.search(name) is not None
        trusted = trusted or (name.startswith(_MAKES) and any(map(_WRAPPER_END.search, classes)))
        wrapper = "call" if not trusted or wrapper == "call" else "wrapper"
        position = match.end()
    if position == start:
        opening = _OPENING.match(text, start)
        if opening is None:
            return None
        position = opening.end()
    first = last = -1
    for _ in range(1 if wrapper == "call" else _MOST_ITEMS):
        item = _ITEM.match(text, position)
        if item is None:
            break
        group = "text" if item["text"] else "bare"
        if _is_secret_item(item, strength, wrapper):
            at, end = item.span(group)
            edge = len(item["quote"]) if group == "text" else 0
            first, last = (first if first >= 0 else at - edge), end + edge
        position = item.end()
        if not item["behind"]:
            break
    return (first, last) if first >= 0 else None


_OPENING = re.compile(r"[(\[{](?:\s|\\n){0,80}[(\[]?")


def _is_secret_item(item: re.Match[str], strength: Strength, wrapper: str) -> bool:
    value = item["text"] or item["bare"]
    if value.startswith("[redacted") or is_harmless(value) or strength is Strength.NONE:
        return False
    if any(map(str.isdigit, value)) and looks_random(value, 12 if strength >= Strength.STRONG else 16):
        return True  # `response.get("SessionToken")` has no digit
    if wrapper == "call" or (any(map(str.isspace, value)) and (item["key"] or not wrapper)):
        return False
    if (item["key"] and (strength < Strength.STRONG or strength_of(item["key"]) is Strength.NONE)) or item["bare"]:
        return strength >= Strength.STRONG and not _TYPE.fullmatch(value) and _is_signed(value)
    if wrapper:
        return is_secret_value(value, strength)
    return is_secret_value(value, strength) if strength is Strength.PASSWORD else strength is Strength.STRONG and _is_signed(value)


def _is_signed(value: str) -> bool:
    """Tell whether a value is a mixture of letters, digits and signs, as passwords are."""
    if len(value) < 6 or not any(map(str.isalpha, value)) or not any(map(str.isdigit, value)):
        return False
    return _SIGN.search(value) is not None or (len(value) >= 8 and switches(value) * 2 >= len(value))


_PLURAL = re.compile(
    r"tokens\\{0,7}[\"'`]?\]?[ \t]{0,8}(?::=|=>|[:=])(?![:=])[ \t]{0,8}(?=[\[({]|(?:\[\]|[a-z]{1,12}!?|new )[\w.<>]{0,24}[(\[{])"
)


def list_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of lists of random texts behind `tokens`, which by itself is no name of a secret."""
    if "tokens" in lowered:
        for match in _PLURAL.finditer(lowered):
            if span := literal_span(text, match.end(), Strength.MEDIUM):
                yield span


_JOINT = re.compile(
    r"(?:[ \t]{0,8}(?:\+|\.{1,2}|&(?:[ ]_)?|<>|\|\||\\)?[ \t\r]{0,8}(?:\n|\\{1,2}n)"
    r"(?:\[?[\w-]{0,24}\d{1,6}\]?:?(?=[ \t]))?[ \t]{0,120}"
    r"(?:\+|\.{1,2}|&|\|\|)?|[ \t]{0,4}(?:\+|\.{1,2}|&|\|\|))"
    rf"[ \t]{{0,4}}{_STRING}(?![ \t]{{0,4}}\]?[ \t]{{0,4}}(?:[:=]|->))",
)


def end_of_strings(text: str, end: int) -> int:
    """Return where a text ends that goes on in further strings, behind a sign that joins them or on the lines below."""
    for _ in range(_MOST_ITEMS):
        more = _JOINT.match(text, end)
        if more is None:
            break
        end = more.end()
    return end


_CLIENT = re.compile(
    r"(?:client|credentials?|(?:\b|_)auth|minio|session|connection|driver|authenticator|\w\.(?:login|connect|auth(?:enticate)?))\Z"
)
_CALL = re.compile(r"(?<=[a-z])\((?=[^()\n]{0,200}[\"'])")
_ARGUMENT = re.compile(rf"\s{{0,40}}(?:{_STRING}|[\w.:-]{{1,80}}(?=[,)\s]))[ \t]{{0,4}},?")


def argument_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of texts that a client of a service is made with, behind the first: `Minio("host", "user", "...")`."""
    for match in _CALL.finditer(lowered):
        if not _CLIENT.search(lowered, max(match.start() - _LONGEST_CLIENT, 0), match.start()):
            continue
        position = match.end()
        for place in range(_MOST_ARGUMENTS):
            argument = _ARGUMENT.match(text, position)
            if argument is None:
                break
            value = argument["text"]
            if place and value and not is_harmless(value) and _is_credential(value):
                yield argument.start("quote"), argument.end("text") + len(argument["quote"])
            position = argument.end()


_MOST_ARGUMENTS, _LONGEST_CLIENT = 8, 24


def _is_credential(value: str) -> bool:
    if any(sign in value for sign in " ./:") and not _SIGN.search(value):
        return False
    is_mixed = any(map(str.isupper, value)) and any(map(str.islower, value)) and any(map(str.isdigit, value))
    return (is_mixed and looks_random(value, 16)) or (_is_signed(value) and not re.search(r"[\s/:@]|%[sdr(]", value))


_ELEMENT = (
    r"{less}(?P<tag>[A-Za-z_][\w:.-]{{0,63}})(?P<attributes>\s{sign}{{0,240}})?(?<!/){more}\s{{0,120}}"
    r"(?:{less}(?:value|string|val){more}\s{{0,120}}|<!--[^<>]{{0,200}}-->\s{{0,120}})?"
    r"(?:{less}!\[CDATA\[(?P<data>{sign}{{2,2048}})\]\]{more}\s{{0,120}}|(?P<text>{sign}{{2,2048}})){less}/"
)
_ELEMENTS = {
    ending: re.compile(_ELEMENT.format(less=less, more=more, sign=sign))
    for ending, less, more, sign in (
        ("</", "<", ">", "[^<>]"),
        ("&lt;/", "&lt;", "&gt;", "[^<>&]"),
        ("\\u003c/", r"\\u003c", r"\\u003e", r"[^<>\\]"),
    )
}
"""By what ends an element: as it is, in HTML, in JSON of Go."""
_LABEL = re.compile(r"\b(?:name|key|id|property)\s{0,4}=\s{0,4}[\"'](?P<label>[^\"'<>]{2,120})[\"']", re.IGNORECASE)
_LABELS, _VALUES = frozenset({"name", "key", "property", "param"}), frozenset({"value", "string", "val"})


def element_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of texts of elements whose name, attribute or neighbour names a secret, also as CDATA and over lines."""
    for ending, pattern in _ELEMENTS.items():
        if ending in text:
            yield from _texts_of_elements(text, pattern)


def _texts_of_elements(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    label, label_end = "", -1
    for match in pattern.finditer(text):
        tag = match["tag"].rpartition(":")[2]
        attribute = _LABEL.search(match["attributes"] or "")
        group = "data" if match["data"] else "text"
        value = match[group].strip()
        names = [tag, attribute["label"] if attribute else ""]
        if tag.lower() in _VALUES and match.start() - label_end <= _LONGEST_GAP:
            names.append(label)
        if any(is_secret_value(value, strength_of(name)) for name in names if name) and not value.startswith("[redacted"):
            start = match.start(group) + len(match[group]) - len(match[group].lstrip())
            yield start, start + len(value)
        if tag.lower() in _LABELS:
            label, label_end = value, match.end()


_LONGEST_GAP = 120


def scalar_block(text: str, start: int, strength: Strength) -> tuple[int, int] | None:
    """Return the lines of a block of YAML (`password: |`): they stand deeper than their name, behind the same marks of a log."""
    head = BLOCK_HEAD.match(text, start)
    if head is None:
        return None
    line = max(text.rfind("\n", max(start - _LONGEST_HEAD, 0), start) + 1, start - _LONGEST_HEAD)
    name = _NAME_AT_END.search(text, line, start)
    if name is None:
        return None
    mark = text[line : name.start()]
    begin = end = 0
    position = head.end()
    for _ in range(_MOST_ROWS):
        stop = line_end(text, position)
        row = text[position:stop]
        inner = row[len(mark) :]
        if row.strip() and not (like_mark(row[: len(mark)], mark) and inner[:1] in (" ", "\t") and inner.strip()):
            if like_mark(row, mark):
                row = ""  # an empty line behind the marks
            else:
                break
        if row.strip():
            begin, end = begin or position + len(row) - len(inner.lstrip()), stop
        position = stop + 1
        if position > min(len(text), head.end() + _LONGEST_BLOCK):
            break
    value = text[begin:end].strip()
    if not value or value.startswith("[redacted]"):
        return None
    first = value.split("\n", 1)[0].strip()
    if strength is Strength.PASSWORD or is_secret_value(first, strength) or any(map(_is_random_row, value.split("\n"))):
        return begin, end
    return None


def line_end(text: str, start: int) -> int:
    """Return where the line ends, or the longest value that is looked at."""
    end = text.find("\n", start, start + _LONGEST_VALUE)
    return min(start + _LONGEST_VALUE, len(text)) if end < 0 else end


def _is_random_row(row: str) -> bool:
    return looks_random(row, 16)


def like_mark(row: str, mark: str) -> bool:
    """Tell whether a row begins as another does, but for its digits and the dash of a list."""
    return row.translate(_MARK_SIGNS).rstrip() == mark.translate(_MARK_SIGNS).rstrip()


_MARK_SIGNS = {**{ord(digit): "0" for digit in "123456789"}, ord("-"): " "}
BLOCK_HEAD = re.compile(r"(?:[!&][\w!.-]{0,40}[ \t]{1,8}){0,2}[|>][-+0-9]{0,2}[ \t]{0,8}(?:#[^\n]{0,200})?\r?\n", re.ASCII)
"""Before a block of YAML: a tag or an anchor, the sign of the block, a comment."""
_NAME_AT_END = re.compile(r"[\"']?[A-Za-z_][\w.-]{0,63}[\"']?[ \t]{0,8}:[ \t]{0,8}\Z", re.ASCII)
_LONGEST_HEAD, _MOST_ROWS, _LONGEST_BLOCK = 256, 32, 2_048
"""Characters of a line up to its value, and lines and characters of a block, that are looked at."""
_LONGEST_VALUE = 8_192
