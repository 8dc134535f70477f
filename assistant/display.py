r"""Escape text that others wrote, once, for the place where it is shown: one function for each destination.

Job names, comments, node reasons, owners, folders, log lines, exception texts, file names, answers of models are untrusted. Inside
Nightshift they stay as they are; what shows them calls the function of its destination, and no other code cleans text:

    line, block        a terminal, Rich Text, Textual Content (both without markup), a log: control characters, bidirectional and
                       invisible ones become visible escapes (`\x1b`, `\u202e`), nothing disappears
    unambiguous        a line on which somebody decides: letters that only look like ASCII become escapes as well
    json_text          JSON for programs: valid and pure, and visible escapes in place of what steers or hides text
    markdown, markdown_code, markdown_fence, markdown_tamed    reports, exports
    html_text          text or an attribute of an HTML page, SVG in it included
    csv_cell           a value of a CSV file that a spreadsheet opens: no formula
    notice_line        a line for Slack, Teams, Discord, mail: no mention, no link text, no fence
    prompt_data        a block for a language model
    shell_words        a command that a person copies
    file_stem          a part of a file's name
    removed            the one exception: text that is *read* (a question, a paste) loses such characters

What is shown holds no secret either: all of them but `shell_words`, `file_stem` and `removed` redact, so that no way out forgets
it.

Pure. All functions are linear in the length of the text, and leave printable ASCII without markup as it is.
"""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from assistant.redact import head_of, redact, redact_value

__all__ = [
    "block",
    "csv_cell",
    "file_stem",
    "html_text",
    "json_text",
    "line",
    "markdown",
    "markdown_code",
    "markdown_fence",
    "markdown_tamed",
    "notice_line",
    "prompt_data",
    "removed",
    "shell_words",
    "shorten",
    "unambiguous",
]

_INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 14))
)
r"""As a class of a regular expression: general categories Cc (without tab and newline), Cf, Cs, Co, Zl, Zp, the characters of
Default_Ignorable_Code_Point and noncharacters; Unicode 14 to 16."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
"""Combining marks that stack: more than four on a letter cover the lines around it."""
_PICTURE = "\u2190-\u2bff\U0001f000-\U0001faff"
"""Symbols that a variation selector and a joiner may stand behind."""

_IN_BLOCK = re.compile(f"[{_INVISIBLE}]|(?<=[{_MARKS}]{{4}})[{_MARKS}]")
_IN_LINE = re.compile(f"[\t\n{_INVISIBLE}]|(?<=[{_MARKS}]{{4}})[{_MARKS}]")
_IN_JSON = re.compile(f"[{_INVISIBLE}]")
_STEERING = re.compile(f"(?![\ud800-\udfff])[{_INVISIBLE}]")
r"""Without the surrogates, by which bytes of a file's name stand that are no UTF-8."""
_IS_PICTURE = re.compile(f"[{_PICTURE}]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_SEQUENCE = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def line(text: object, most: int | None = None) -> str:
    r"""Return text as exactly one line: a newline, a tab and all that steers, reorders or hides text become visible escapes.

    Args:
        text: Anything; its `str` is taken.
        most: Characters that are left; of a longer text the beginning and `…`.
    """
    escaped = _IN_LINE.sub(_escape, redact(str(text)))
    return escaped if most is None else _shortened(escaped, most)


def block(text: object) -> str:
    r"""Return text of several lines: `\n` and tabs stay, colour codes go (they carry no text), all else as in `line`.

    `\r\n` counts as a newline; a lone `\r`, which would overwrite the line, becomes an escape.
    """
    plain = redact(str(text)).replace("\r\n", "\n")
    return _IN_BLOCK.sub(_escape, _COLOUR.sub("", plain) if "\x1b" in plain else plain)


def shorten(text: str, most: int) -> str:
    """Return text of at most `most` characters (at least 1), with `…` at its end when something was cut off, and no half secret."""
    return text if len(text) <= most else head_of(text, max(most - 1, 0), "…")


def _shortened(text: str, most: int) -> str:
    """Return what was redacted before, cut."""
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


_SENTENCE_END = re.compile(r"(?<=[.;!?])\s+(?=\S)")


def whole_sentences(text: str, most: int) -> str:
    """Return text of at most `most` characters without its last sentences; one that is too long in itself stays whole.

    Half an instruction is worse than none: whoever reads `delete the` does not know what.
    """
    sentences = _SENTENCE_END.split(text)
    while len(sentences) > 1 and len(" ".join(sentences)) > most:
        sentences.pop()
    return " ".join(sentences).rstrip(";")


def removed(text: str) -> str:
    r"""Return text without terminal sequences, control and invisible characters; newlines and tabs stay, `\r` becomes a newline.

    Only for text that is interpreted and not shown: a question, a paste into the prompt.
    """
    return _IN_JSON.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _escape(match: re.Match[str]) -> str:
    sign = match.group()
    if sign in "\ufe0f\u200d" and _in_picture(match):
        return sign
    code = ord(sign)
    return _SHORT.get(sign) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def _in_picture(match: re.Match[str]) -> bool:
    """Return whether a selector or joiner is part of an emoji, where it changes a picture and no letter."""
    text, at = match.string, match.start()
    before = text[at - 1 : at] if text[at - 1 : at] != "\ufe0f" else text[max(at - 2, 0) : at - 1]
    if not _IS_PICTURE.match(before):
        return False
    return (match.group() == "\ufe0f" and text[at - 1 : at] != "\ufe0f") or bool(_IS_PICTURE.match(text[at + 1 : at + 2]))


_SEPARATE = re.compile(r"(\s+|\\(?:xa0|u1680|u200[0-9a]|u202f|u205f|u3000))")
"""Spaces, also escaped ones."""
_AN_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
"""Passes for nothing but an escape: its letters and digits say nothing of the word that it stands in."""
_LATIN = re.compile(r"[A-Za-z]")
_WITH_LATIN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "KATAKANA-HIRAGANA"}
"""Scripts that ordinary names mix with Latin letters and that have no letter like one: Unicode TS 39, "highly restrictive"."""
_TWINS = set("аВсСԁеЕНһіІјЈКӏМոОоԛрРЅѕТυνвхХуУѴѵԜԝЗАΑΒΕΖΗΙΚΜΝΟοΡΤΥΧαγικρτχ")
"""Cyrillic, Armenian and Greek letters that are drawn like an ASCII letter: a word of nothing else passes for ASCII."""
_ODD_LATIN = set("ıĸſŀʼnȷƖǀǃ")
_ODD_SIGNS = set("\u00b7\u2024\u2044\u2215\u2236\ua789\u02d0\u2212\u2043\u203f\u2010\u2011\u2012\u2013\u2014\u2015\u2018\u2019")


def unambiguous(text: object, most: int | None = None) -> str:
    r"""Return a line in which nothing passes for something else: `n\u043ede1` for a node whose `o` is Cyrillic.

    Escaped beyond `line`: spaces other than the ASCII one; in a word with ASCII letters the letters of other scripts but the East
    Asian ones, compatibility forms, foreign digits, dashes, dots and slashes; words that consist of letters like ASCII ones. In
    every word the signs that are drawn as ASCII punctuation or as nothing, and marks that are put on an ASCII sign.
    Ordinary words of any script, and Latin letters that are one sign with their accent, stay.
    """
    escaped = line(text)
    if not escaped.isascii():
        escaped = _without_false_signs("".join(_word(part) for part in _SEPARATE.split(escaped)))
    return escaped if most is None else _shortened(escaped, most)


_BLANKS = "\u2800\U0001d159"
"""Drawn as nothing, though they are symbols to Unicode."""


def _without_false_signs(text: str) -> str:
    """Escape what passes for ASCII punctuation or a blank, and marks on ASCII signs, which a glance does not see."""
    signs, on_ascii = [], True
    for sign in text:
        is_mark = unicodedata.category(sign).startswith("M")
        signs.append(_escaped(sign) if (is_mark and on_ascii) or sign in _BLANKS or _folds_to_punctuation(sign) else sign)
        on_ascii = signs[-1].isascii() if not is_mark else on_ascii
    return "".join(signs)


def _folds_to_punctuation(sign: str) -> bool:
    # the wide forms are the punctuation of East Asian text, and `…` ends what was shortened
    if sign.isascii() or sign.isspace() or "\uff01" <= sign <= "\uff5e" or sign == "…":
        return False
    folded = unicodedata.normalize("NFKC", sign)
    return folded.isascii() and not any(letter.isalnum() or letter.isspace() for letter in folded)


def _word(word: str) -> str:
    if word.isascii():
        return word
    if word.isspace():
        return "".join(sign if sign == " " else _escaped(sign) for sign in word)
    unescaped = _AN_ESCAPE.sub("", word)
    foreign = [sign for sign in unescaped if not sign.isascii() and sign.isalpha()]
    twins = bool(foreign) and all(sign in _TWINS for sign in foreign)
    if not (twins or foreign or re.search(r"[A-Za-z0-9]", unescaped)):
        # punctuation alone: the wide forms belong to no East Asian word here
        return "".join(_escaped(sign) if "\uff01" <= sign <= "\uff5e" else sign for sign in word)
    if not (twins or re.search(r"[A-Za-z0-9]", unescaped)):
        return word
    mixed = twins or bool(_LATIN.search(unescaped))
    escaped = "".join(_escaped(sign) if _deceives(sign, mixed) else sign for sign in word)
    return word if escaped == word else _word(escaped)  # what is left may pass for something without what was escaped


def _deceives(sign: str, mixed: bool) -> bool:
    """Return whether a sign of a word that holds ASCII letters (`mixed`) or digits passes for an ASCII one."""
    if sign.isascii():
        return False
    if sign in _ODD_SIGNS or sign in _ODD_LATIN or sign.isdigit():
        return True
    script = unicodedata.name(sign, "?").split(" ", 1)[0]
    if sign.isalpha() and script == "LATIN":
        return (ord(sign) >= 0x180 and not unicodedata.decomposition(sign)) or "<" in unicodedata.decomposition(sign)
    if script in _WITH_LATIN or not (sign.isalpha() or script in ("FULLWIDTH", "MATHEMATICAL", "SMALL")):
        return False
    return mixed or script in ("FULLWIDTH", "HALFWIDTH", "MATHEMATICAL", "SMALL")


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Return JSON of a value on one line (with `indent` on several): NaN and infinity are null.

    Loading it gives the value again, less its secrets, and with visible escapes (`\x1b`, `\u202e`) for what steers, reorders or
    hides text: who prints a field of it is as safe as who reads the terminal. Newlines and tabs stay, and so do bytes that were no
    UTF-8, which stand in JSON as `\udc80`: a file of such a name can still be opened.

    Raises:
        TypeError: The value holds something that JSON cannot say.
    """
    plain = _visible(redact_value(value))
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(_finite(plain), ensure_ascii=False, indent=indent)
    return _IN_JSON.sub(lambda match: json.dumps(match.group())[1:-1].replace("\x7f", "\\u007f"), text)


def _visible(value: Any) -> Any:
    """Return a JSON value whose texts hold no character that acts on a terminal or deceives the eye."""
    if isinstance(value, str):
        return _STEERING.sub(_escape, value)
    if isinstance(value, Mapping):
        return {_visible(key): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, (list, tuple)) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


_PUNCTUATION = re.compile(
    r"[`*|]|\\(?=[!-/:-@\[-`{-~])|<(?=[A-Za-z/!?])|\](?=[(\[:])|&(?=#|[A-Za-z]{1,31}\d{0,2};)|~(?=~)|(?<=~)~|(?<![^\W_])_|_(?![^\W_])"
)
"""What begins markup where it stands; brackets, underscores within words and `a < b` stay readable."""
_LINE_START = re.compile(r"^(\s*)(?:([-+=#>])|(\d+)([.)])(?=\s|$))")
_ADDRESS = re.compile(r"://|@|^\W*(?:www|mailto|xmpp)[.:]", re.IGNORECASE)
_TICKS = re.compile(r"`+")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def markdown(text: object, most: int | None = None) -> str:
    """Return a line that Markdown shows as it is; addresses and mentions become code, which no service links or delivers."""
    escaped = line(text, most)
    parts = [
        markdown_code(part) if _ADDRESS.search(part) else _PUNCTUATION.sub(r"\\\g<0>", part) if part.strip() else " "
        for part in _SEPARATE.split(escaped)
        if part
    ]
    return _LINE_START.sub(
        lambda match: f"{match[1]}\\{match[2]}" if match[2] else f"{match[1]}{match[3]}\\{match[4]}", "".join(parts)
    )


def markdown_code(text: object, most: int | None = None) -> str:
    """Return a line as code within a line; empty for an empty text."""
    escaped = line(text, most)
    ticks = "`" * (1 + max((len(run) for run in _TICKS.findall(escaped)), default=0))
    pad = " " if escaped.startswith("`") or escaped.endswith("`") else ""
    return f"{ticks}{pad}{escaped}{pad}{ticks}" if escaped.strip() else ""


def markdown_fence(text: object) -> list[str]:
    """Return the lines of a block of code that shows a text as it is, whatever stands in it."""
    escaped = block(text)
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(escaped)), default=0))
    return [f"{ticks}text", *escaped.split("\n"), ticks]


def markdown_tamed(text: object) -> str:
    """Return Markdown that a model wrote, without HTML and pictures: whoever reads it loads nothing from anywhere."""
    return _TAG.sub("&lt;", block(text).replace("![", "\\!["))


def html_text(text: object, most: int | None = None) -> str:
    """Return a line that HTML shows as it is, as text or as the value of an attribute in quotes."""
    return html.escape(line(text, most), quote=True)


_FORMULA = re.compile(r"(?:^|(?<=;))(?=[\s\"]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20])(?!\s*[-+]?\d[\d.]*(?:[eE][-+]?\d+)?\s*(?:$|;))")
"""Where a formula begins: at the beginning of a cell, and behind `;`, where a spreadsheet may divide cells, also within quotes."""


def csv_cell(text: object) -> str:
    """Return a line that no spreadsheet takes for a formula, nor what stands behind a `;`: before one stands `'`.

    Numbers stay as they are.
    """
    return _FORMULA.sub("'", line(text))


_MENTION = re.compile(r"<(?=[!@#/:a-zA-Z])|(?<!\w)@(?=\w)|\](?=\()|\|(?=\|)")
_FENCE = re.compile(r"`{3,}|~{3,}")


def notice_line(text: object, most: int | None = None) -> str:
    """Return a line that no chat service takes for a mention, a link, a spoiler or a fence, nor mail for a header."""
    escaped = _MENTION.sub(lambda match: f"{match.group()} ", line(text))
    escaped = _FENCE.sub(lambda match: "'" * len(match.group()), escaped)
    return escaped if most is None else _shortened(escaped, most)


_DATA = re.compile(r"<(/?)(\s*data\b)", re.IGNORECASE)


def prompt_data(source: object, text: object) -> str:
    """Return text as a block of data for a language model: it cannot close the block, and the block's name cannot either."""
    name = line(source).replace('"', "'").replace("<", "‹").replace(">", "›")
    inner = _DATA.sub(r"‹\1\2", block(text))
    return f'<data from="{name}">\n{inner}\n</data>'


def shell_words(words: Sequence[object]) -> str:
    """Return a command that bash reads as exactly these words, on one line without hidden characters."""
    return " ".join(_shell_word(str(word)) for word in words)


def _shell_word(word: str) -> str:
    if not _IN_LINE.search(word):
        return shlex.quote(word)
    # bash's $'…' knows the same escapes; a lone surrogate stands for a byte that was no UTF-8
    data = word.encode("utf-8", "surrogatepass" if re.search("[\ud800-\udc7f\udd00-\udfff]", word) else "surrogateescape")
    signs = (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)
    return "$'" + "".join(f"\\{sign}" if sign in "\\'" else sign for sign in signs) + "'"


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def file_stem(text: object, most: int = 80) -> str:
    """Return a part of a file's name: ASCII letters, digits, `._-`; never empty, hidden, an option or a way out of the folder."""
    return _UNSAFE.sub("_", str(text)).lstrip(".-")[:most] or "_"


def span(seconds: float) -> str:
    """Return a length of time in the largest unit that keeps it above two: `90 s`, `45 min`, `20 h`, `3 d`."""
    for unit, size, end in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < end * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
