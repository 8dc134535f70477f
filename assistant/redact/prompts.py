"""Find what was typed behind a prompt: `wandb: Paste an API key ... to quit: 0f3a...`, `Password for 'https://...': ...`.

A prompt has the name of a secret, words of whatever kind, and a colon; the answer is the last word of the line. What makes such a
line a prompt is a verb of asking, or what stands right behind the name: whose it is, an aside in brackets, a comma. Without them a
line that ends with a colon and a value is a message: `no key in the cache for this graph: 0f3a...`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from assistant.redact.values import is_harmless, looks_random

_NAME = re.compile(
    r"(?P<password>pass(?:[ _-]?(?:word|phrase|code|wd)|wort|wd|ord)|kennwort|mot de passe|contrase(?:n|ñ)a|senha|密码|密碼|口令"
    r"|パスワード|비밀번호)"
    r"|(?P<secret>(?:access|secret|api|auth|authentication|authori[sz]ation|personal|client|signing|bearer|licen[cs]e"
    r"|unseal|recovery|master|encryption|private|account)[ _-](?:access[ _-])?(?:key|token)|(?<![a-z])(?:token|secret)(?![a-z])"
    r"|密钥|密鑰|秘钥|令牌|api 密钥|apiキー|トークン)"
    r"|(?P<key>(?<![a-z])key(?![a-z]))"
)
"""On the text in small letters."""
_ASKS = re.compile(
    r"(?<![a-z])(?:enter|paste|type|provide|input|copy|insert|supply|give|fill)(?![a-z])|输入|輸入|粘贴|貼上|请填|入力|입력"
)
_OWNER = re.compile(r"[ \t]{1,3}(?:for|of|to|at|on|für|fur|pour|para|de|per|voor)[ \t]|[ \t]{0,2}[(（\[,，]|の|的")
"""Directly behind a name."""
_QUOTED = re.compile(r"[ \t](?:for|of|at|für|pour|para|de)[ \t][\"'`“<\[][^\n]{1,256}[\"'`”>\]][^\n:：]{0,24}[:：][\"' \t=]{0,8}")
"""Between name and answer where nothing but a program that asks writes so: `Password for 'https://...': `."""
_NUMBER = re.compile(r"[\d.,:/x%-]{1,64}[A-Za-z%]{0,4}", re.ASCII)
_ANSWER = re.compile(r"(?:[:：?][\"')\]>]{0,2}|[\])>:]:)[ \t]{0,8}(?:=[ \t]{0,4})?[\"'`]?\Z")
_GLUED = re.compile(r"[\"'“”)\]>）][:：]|：")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{20,512}", re.IGNORECASE)
_ORDINARY = re.compile(
    r"(?:\w{1,32}://|[\w.-]{1,64}=).{0,512}|[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}(?::\d{1,5})?|\d{1,16}(?:[.:,/x-]\d{1,16}){0,8}[A-Za-z%/]{0,8}"
    r"|[A-Za-z]{1,40}(?:[_./-][A-Za-z]{1,40}){0,8}[.,;:!?)]{0,3}|[A-Za-z_-]{1,40}[-_]?\d{1,4}[.,;:!?)]{0,3}|[\w.-]{1,64}@[\w.-]{1,64}",
    re.ASCII,
)
"""Addresses, hosts, settings, numbers, words and names with a number: what messages end with."""
_WORD_END = re.compile(r"[\"'`]?(?:\\[nr]){0,2}[\"'`}\])]{0,4}[ \t\r]{0,4}\Z")
_LONGEST_VALUE, _LONGEST_PROMPT = 256, 300
_LEAST = 6


def prompt_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of answers that stand behind a prompt on its line.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    names = list(_NAME.finditer(lowered))
    if not names:
        return
    ends = [name.end() for name in names]
    for stop in _ends(text, ends):
        value = _last_word(text, stop)
        if value is None:
            continue
        start, end = value
        line = max(text.rfind("\n", max(start - _LONGEST_PROMPT, 0), start) + 1, start - _LONGEST_PROMPT, 0)
        place = bisect_left(ends, start)
        for name in reversed(names[max(place - _MOST_NAMES, 0) : place]):
            if name.start() < line:
                break
            if _is_answer(text[start:end], name, lowered, line, start):
                yield start, end
                break


_MOST_NAMES = 8
"""Names of one prompt that are looked at, from its end."""


def _ends(text: str, names: Sequence[int]) -> Iterator[int]:
    """Yield where lines with names end, also those of a log in JSON: where the quote or an escaped newline ends a text."""
    stop = -1
    for end in names:
        if end > stop:
            newline = text.find("\n", end)
            stop = newline if newline >= 0 else len(text)
            if stop - end >= _LEAST:
                yield stop
    if '"' in text:
        yield from (match.start() for match in _END_OF_TEXT.finditer(text, names[0]))


_END_OF_TEXT = re.compile(r'(?<=[A-Za-z0-9!$%*&^#@?+=_~-])(?:\\n)?"(?=[,}\]])', re.ASCII)


def _last_word(text: str, stop: int) -> tuple[int, int] | None:
    """Return where the last word before a place is, when a colon stands before it."""
    first = max(stop - _LONGEST_VALUE, 0)
    window = text[first:stop]
    if tail := _WORD_END.search(window, max(len(window) - 16, 0)):
        window = window[: tail.start()]
    newline = window.rfind("\n") + 1
    space = max(window.rfind(" "), window.rfind("\t"), window.rfind('"'), newline - 1) + 1
    word = window[space:]
    if glued := list(_GLUED.finditer(word))[-1:]:
        begin = first + space + glued[0].end()
    elif _ANSWER.search(text, max(first + space - 16, 0), first + space):
        begin = first + space + len(word) - len(word.lstrip("\"'`"))
    else:
        return None
    end = first + len(window)
    return (begin, end) if _LEAST <= end - begin < _LONGEST_VALUE else None


def _is_answer(value: str, name: re.Match[str], lowered: str, line: int, start: int) -> bool:
    if value.startswith("[redacted") or is_harmless(value):
        return False
    has_owner = _OWNER.match(lowered, name.end()) is not None
    asks = _ASKS.search(lowered, line, start) is not None
    is_random = looks_random(value, 12) or _UUID.fullmatch(value) is not None or _HEX.fullmatch(value) is not None
    if name.lastgroup == "password":
        if _QUOTED.fullmatch(lowered, name.end(), start):
            return not (value.isalpha() or _NUMBER.fullmatch(value))
        if _ORDINARY.fullmatch(value) and not is_random:
            return asks and _is_mixed(value)
        return has_owner or asks or is_random
    return is_random and (asks or (has_owner and name.lastgroup == "secret"))


def _is_mixed(value: str) -> bool:
    return value.isalnum() and any(sign.isdigit() for sign in value) and any(sign.isalpha() for sign in value)
