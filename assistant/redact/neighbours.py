"""Find secrets that only the text around them tells.

A token that a terminal wrapped, codes below a heading, the password of a sentence in
one of many languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from assistant.redact.values import is_harmless, is_secret_value, looks_random, strength_of

_NEXT_LINE = re.compile(r"\n[ \t>.|]{0,8}(?P<tail>[A-Za-z0-9_+/=.~-]{6,4096})(?=[\s\\\"'`,;)\]}(]|\Z)", re.ASCII)
_LINE_END = re.compile(r"(?P<run>[A-Za-z0-9_+/=.~-]{8,64})[ \t]{0,2}\\?\r?\Z", re.ASCII)


def wrapped_spans(text: str, spans_of: Callable[[str], list[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    r"""Yield (start, end) of the rests of secrets that a terminal, or a `\` of a shell, wrapped to the next line.

    Args:
        text: Of several lines.
        spans_of: Returns the secrets of one line.
    """
    rest_end = -1  # where the rest ends that was found before this line
    for match in _NEXT_LINE.finditer(text):
        tail = match.span("tail")
        newline = text.rfind("\n", max(match.start() - _NARROWEST, 0), match.start())
        is_short = newline >= 0 and not text[match.start() - 2 : match.start()].rstrip("\r").endswith("\\")
        if is_short or not looks_random(match["tail"], 6):
            continue
        head = _LINE_END.search(text, max(match.start() - 70, 0), match.start())
        if head is None or not looks_random(head["run"], 8):
            continue
        if head.end("run") != rest_end:
            begin = max(text.rfind("\n", max(match.start() - _LONGEST_LINE, 0), match.start()) + 1, match.start() - _LONGEST_LINE)
            spans = spans_of(text[begin : head.end("run")])
            if not spans or spans[-1][1] != head.end("run") - begin:
                continue
        rest_end = tail[1]
        yield tail


_LONGEST_LINE, _NARROWEST = 4_096, 38
"""Characters of a line that are looked at, and of the narrowest that a terminal wrapped; a shell's `\\` may stand anywhere."""


_CODES = re.compile(
    r"(?:recovery|backup|scratch|rescue|emergency|one-time)[ _-](?:scratch |login |access )?(?:codes?|passwords?)\b[^\n]{0,80}\n"
)
_CODE = re.compile(r"(?=[A-Za-z-]{0,40}\d)[0-9A-Za-z]{4,12}(?:[- ][0-9A-Za-z]{4,12}){0,5}", re.ASCII)
_COUNTED = re.compile(r"[ \t>*|-]{0,8}(?:\d{1,2}[.)][ \t]{1,4})?")
_MOST_CODES = 24


def code_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the lines of codes below a heading such as `Recovery codes:`.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    for heading in _CODES.finditer(lowered):
        position = heading.end()
        for _ in range(_MOST_CODES):
            stop = text.find("\n", position, position + 200)
            stop = min(len(text), position + 200) if stop < 0 else stop
            counted = _COUNTED.match(text, position, stop)
            start = counted.end() if counted else position
            items = re.split(r"[ \t,;|]{2,16}|\t", text[start:stop].strip())
            if items == [""] and position == heading.end():
                position = stop + 1
                continue
            if not all(_CODE.fullmatch(item) for item in items):
                break
            yield start, start + len(text[start:stop].rstrip())
            position = stop + 1
            if position >= len(text):
                break


_PASSWORD = re.compile(
    r"pass(?:[ _-]?(?:words?|phrase|code|wd)|wort|ord)|\bpwd?\b|\b(?:wi-?fi|wlan|wpa[23]?|pre-?shared)[ -]key\b|kennwort"
    r"|mot de passe|contrase(?:n|ñ)a|senha|palavra-passe"
    r"|wachtwoord|l(?:ö|o)senord|adgangskode|salasana|has(?:ł|l)o|heslo|jelsz(?:ó|o)|lozinka|geslo|parol[aāeă]?|(?:ş|s)ifre"
    r"|kata sandi|parool|slapta(?:ž|z)odis|парол[ьяюе]м?|гасло|парола|密码|密碼|口令|パスワード|暗証番号"
    r"|비밀번호|암호|mật khẩu|كلمة المرور|סיסמה|κωδικ(?:ό|ο)ς|รหัสผ่าน"
)
"""What people call a password, in small letters."""
_PUT_BEHIND = re.compile(
    r"[ \t]{1,3}[\"'«]?(?P<secret>(?=[^\s]{0,40}\d)(?=[^\s]{0,40}[^\W\d])(?=[^\s]{0,40}[!#$%&*+?@^~-])[^\s\"'«»]{8,64})"
)
"""A value right behind a name, without a word between them: nothing but a password is so mixed."""
_TELLS = re.compile(
    r"(?![a-z_])[^\n=:：＝﹕∶≔\"«]{0,80}?"
    r"(?:[ \t](?:is|now|lautet|ist|est|es|è|é|jest|to|är|er|(?:(?<=salasana )|(?<=salasanasi ))on|bude|je|egy|это|—|–)(?=\s)"
    r"|[ \t]{0,4}(?:=|:|[：＝﹕∶≔]|->|→|\.{3,40}|_{3,40}|是|为|為|は|が|는|은))"
    r"(?:[ \t]{0,8}\r?(?:\n[ \t]{0,4}\r?)?\n[ \t]{1,16}(?=\S{6,64}[ \t\r]{0,8}(?:\n|\Z))|[ \t]{0,16})"
    r"(?P<open>[\"'`«„“”‘’「『]?[ \u00a0]?)(?P<secret>[^\s\"'`«»„“”‘’「」『』]{6,64})"
)
"""What stands between a password and its name."""


def sentence_spans(text: str, lowered: str, *, below: bool = False) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the password that a sentence tells: `la password è …`, `hasło ....... …`, on its line or below it.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
        below: Whether only those count that stand on a line below.
    """
    for name in _PASSWORD.finditer(lowered):
        match = _TELLS.match(lowered, name.end()) or _PUT_BEHIND.match(lowered, name.end())
        if match is None or (name.start() and lowered[name.start() - 1].isalnum() and lowered[name.start()].isascii()):
            continue
        start, end = match.span("secret")
        if below and "\n" not in match.group():
            continue
        end -= len(text[start:end]) - len(text[start:end].rstrip(".,;:!?)]}。，"))
        value = text[start:end]
        if end - start >= 6 and tells_password(value):
            yield start, end


def tells_password(value: str) -> bool:
    """Tell whether a value is neither a word nor a number, an address, a setting or a name with a number."""
    if value.startswith("[redacted") or is_harmless(value) or _ORDINARY.fullmatch(value):
        return False
    return any(map(str.isalpha, value)) and any(sign.isdigit() or not sign.isalnum() for sign in value)


_ORDINARY = re.compile(
    r"\w{1,16}://.*|[\w.-]{1,64}=.*|[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}(?::\d{1,5})?|\d{1,16}(?:[.:,/x-]\d{1,16}){0,8}[\w%/]{0,8}|[\w.-]{1,64}@[^\W\d][\w.-]{1,64}"
    r"|[^\W\d_]{1,40}(?:[_./'’-][^\W\d_]{1,40}){0,8}|[^\W\d_]{1,40}[-_]?\d{1,3}|/.*|[({\[<].*|.*[)\]}>(]|-{1,2}\w.*|(?:step|loss|rank|node|gpu|cuda)\W?\d.*"
)
"""Addresses, hosts, settings, numbers, words and names with a number."""


_DECLARED = re.compile(
    r"\bvariable[ \t]{1,4}\"(?P<name>[\w-]{1,80})\"[ \t]{0,4}\{[^{}]{0,600}?\bdefault[ \t]{0,16}=[ \t]{0,4}"
    r"\"(?P<secret>[^\"\n]{4,512})\""
)
_ENCODED = re.compile(r"\((?:hex|HEX|base64|Base64|raw)\):[ \t]{1,4}(?:0x)?(?P<secret>[A-Za-z0-9+/]{16,512}={0,2})(?![\w+/])")
_SECRET_KEY = re.compile(r"(?<![A-Za-z])(?<!public )(?<!public-)(?<!cache )key(?! (?:id|fingerprint))[^\n:]{0,160}\Z")
_LONGEST_LEAD = 180


def declared_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of defaults of Terraform's variables, and of keys of which it is said how they are written.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    if "variable" in lowered:
        for match in _DECLARED.finditer(text):
            if is_secret_value(match["secret"], strength_of(match["name"])):
                yield match.span("secret")
    if "): " in text and "key" in lowered:
        for match in _ENCODED.finditer(text):
            lead = lowered[max(match.start() - _LONGEST_LEAD, 0) : match.start()]
            if _SECRET_KEY.search(lead) and looks_random(match["secret"], 16):
                yield match.span("secret")
