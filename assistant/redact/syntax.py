r"""Find where secrets stand behind a name, in whatever syntax.

`NAME=value`, `name: value`, JSON and JSON in a string (`\"name\": \"value\"`), representations of Python's dicts,
tuples and namespaces, XML, options of commands, `.netrc`, csh, HTTP headers, `{"name": ..., "value": ...}`, a value on the
next line.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from assistant.redact.literals import BLOCK_HEAD, end_of_strings, line_end, literal_span, scalar_block
from assistant.redact.values import Strength, is_dull_key, is_harmless, is_secret_value, looks_random, strength_of

_QUOTE = r"(?:\\{0,7}[\"'`]|&quot;|&\#3[49];|%22|%27|\\{1,4}u0022)"
_ANCHOR = re.compile(
    rf"""(?P<name>
        (?: pass (?:[_-]?(?:words?|wo?r?d|phrases?|code)|wort)? | psw | pwd? | psk | pat
          | secrets? | signature | sig | sas | session (?:id)? | salt
          | mot[ _-]?de[ _-]?passe | contrasena | senha | wachtwoord | kennwort | kenwoord | passord | salasana
          | token | totp | otp | auth (?:tok\b | orization | entication)? | api[_-]?keys? | keys?
          | cred (?:ential)?s? | cookies? | community | csrf | xsrf | bearer | jwt | webhook | mnemonic | hmac | licen[cs]e | dsn )
        (?:[_. -]? (?:value|data|string|str|b64|base64|raw|text|plain(?:text)?|prod(?:uction)?|dev|test|staging|new|old|current
          |default|secondary|hash(?:ed)?|encoded|encrypted|header|env|id|url|uri|live|sandbox|prefix|[0-9]{{1,3}})){{0,2}}
      )
      (?P<close>{_QUOTE})? \]?
      (?: (?P<pair>[ \t]{{0,24}} (?: [:=]> | := | -> | ={{1,2}} | :(?!:) | [|│┃║] | %3d | %3a | \.{{3,80}} ) [ \t]{{0,24}})
        | (?P<field>,?\s{{0,40}}(?:[{{]\s{{0,40}}|-\s)?{_QUOTE}?(?:value|default){_QUOTE}?[ \t]{{0,8}}[:=][ \t]{{0,8}}
            | </(?:name|key|property|param)>\s{{0,40}}<(?:value|string|val)>
            | [ \t]{{0,4}}\n[^\n]{{0,160}}\binput_value=)
        | (?P<item>,[ \t]{{0,8}} (?=[bru]?{_QUOTE}))
        | (?P<call>\([ \t]{{0,8}}(?:\w{{1,20}}=["'][^"'\n]{{0,64}}["'],[ ]?)?(?:\w{{1,20}}=)?
            (?=(?:[a-z][\w.:]{{0,40}}\()?[bru]?["']))
        | (?P<element>>)
        | (?P<space>[ \t]{{1,40}} (?:(?:is[ ]set[ ]to|set[ ]to|to[ ]value|is|was|provided|given|used)\b[ \t:=]{{1,4}})?)
        | (?P<far>[ \t(\[._-][^\n:="'<>|]{{1,40}} (?::(?!:)|=)[ \t]{{0,8}})
      )""",
    re.VERBOSE,
)
"""On the text in small letters."""
_FAR = re.compile(r"[ \t][^\n:=\"'<>|]{1,40}(?::(?!:)|=)[ \t]{0,8}")
_OPENING = re.compile(
    r"(?:[bru]{0,2}|\$)(?P<quote>\\{0,7}(?:\"\"\"|'''|[\"'`])|&quot;|&#3[49];|%22|%27|\\{1,4}u0022)", re.IGNORECASE
)
_BARE = re.compile(r"[^\s\"'`<>\x00]{1,4096}")
_NEXT_PAIR = re.compile(r"[,;&|](?:[ \t]*[A-Za-z_][\w. -]{0,48}[=:]|[\"'])|&amp;|%26|\\[nrt\"']|\\\\n")
_LINE_END = re.compile(
    r"[ \t]{0,16}(?:[!&][\w!.:/-]{0,64}[ \t]{0,8})?(?:[|>][+-]?\d?[ \t]{0,16})?(?:#[ \t][^\n]{0,200}?)?\r?\n"
    r"(?P<indent>[ \t]{0,64})(?:- )?(?P<value>[^\s]{4,4096})[ \t]{0,16}(?=\r?\n|\Z)"
)
_NAME_SIGNS = string.ascii_letters + string.digits + "_.$-"
_SCHEME = re.compile(
    r"(?:basic|bearer|token|digest|negotiate|apikey|api-key|key|oauth|ntlm|splunk|sharedkey|hawk|genie-?key|bot"
    r"|aws4-hmac-sha256)[ \t]+",
    re.I,
)
_NAME_BEFORE = re.compile(
    r"(?:^|[^A-Za-z])(?P<word>api|access|secret|private|account|auth|license|service|master|signing|shared)[ -]\Z", re.I
)
_SETTER = re.compile(r"(?:\bsetenv|\bset(?:[ \t]+-[gxUu]{1,4}){1,2}|\bconfig(?:ure)? set)[ \t]+[\w.$-]{0,64}\Z")
_NETRC = re.compile(r"\b(?:login|machine|account|user(?:name)?)[ \t]+\S{1,128}[ \t]+\Z|(?:\A|\n)[ \t]*\Z", re.IGNORECASE)
_ENDS_ENTRY = re.compile(r"\S{1,256}[ \t]{0,16}(?:\r?\n|\Z|\b(?:machine|login|account|macdef|port)\b|\\\\|[\"'#])", re.IGNORECASE)
"""The value of `.netrc` ends its line or stands before the next word of the file."""
_DULL_PASS = re.compile(
    r"\b(?:first|second|third|forward|backward|single|last|final|next|each|every|per|one|two|\w{1,20}(?:ing|ion))[ \t]\Z",
    re.IGNORECASE,
)
_PIECE = re.compile(r"[bru]?[\"'](?:##|▁|Ġ|</?w>)")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){1,4}[\w.+-]{0,24}(?:\s|\Z|[\"',;)])", re.ASCII)
_SETTING = re.compile(r"[a-z_]{2,24}=")
_CALL_SITE = re.compile(r":?[\w<>]{1,48}:\d{1,6}\b")
_OF_KERNEL = re.compile(r"/api/kernels/[\w-]{1,64}/channels\?\Z")
_LIBRARY = re.compile(r"lib(?:secret|cred|auth|pwd?)\w{0,8}(?:-[\w.]{1,8}){0,4}", re.IGNORECASE)
_FINGERPRINT = re.compile(r"[\"']?[0-9A-F]{40}(?![0-9A-Za-z])")
_MESSAGE = re.compile(r":?[ \t]{0,4}[A-Z][a-z]{2,20}(?:[ \t][a-z]{1,20}){2}")
"""What a program or a logger says behind its own name: `passwd: Authentication token manipulation error`."""


def _names_no_secret(text: str, match: re.Match[str], name: str, outside: str) -> bool:
    """Tell whether a name is that of a pass of a compiler, a library, a program or a logger that speaks, or of a public key."""
    lowered = name.lower()
    if match.lastgroup == "pair" and text.startswith("==", match.end() - 2) and _VERSION.match(text, match.end()):
        return True  # `pyjwt==2.3.9`
    if _OF_KERNEL.search(outside) or (lowered.endswith("auth") and _SETTING.match(text, match.end())):
        return True
    if lowered == "pass" and _DULL_PASS.search(outside):
        return True
    if _LIBRARY.fullmatch(name) or lowered.endswith("publickeytoken") or _OF_CHECKSUM.search(outside):
        return True
    if match.lastgroup == "pair" and (lowered.endswith("existingsecret") or lowered == "session"):
        return (_OBJECT_NAME if lowered != "session" else _SESSION_ID).match(text, match.end()) is not None
    if match.lastgroup == "item" and _VALUE_OF_KEY.search(outside):
        return True  # `{"token": " secret", "logprob": -1.2}`: a piece of text of a model
    if match.lastgroup == "space" and name.startswith("-") and _LONG_OPTION.match(text, match.end()):
        return True  # `--ask-vault-pass --limit gpu01`: a switch
    if lowered.endswith("gpg_key") and _FINGERPRINT.match(text, match.end()):
        return True
    speaks = match.lastgroup == "pair" and (lowered == "passwd" or "." in name)
    return speaks and (_MESSAGE.match(text, match.end()) or _CALL_SITE.match(text, match.end())) is not None


_OF_CHECKSUM = re.compile(r"(?:checksum|digest|fingerprint|sha\d{1,3})/\Z", re.IGNORECASE)
_OBJECT_NAME = re.compile(r"[\"']?[a-z][a-z-]{0,62}[a-z](?:\.[a-z][a-z-]{0,62}){0,4}[\"']?(?=[\s,}]|\Z)")
"""What Kubernetes calls an object, without digits."""
_SESSION_ID = re.compile(r"[\"']?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])", re.IGNORECASE)
_VALUE_OF_KEY = re.compile(r"[\w\"'][\"'][ \t]{0,4}:[ \t]{0,4}[\"'][ \t]{0,4}\Z")
_LONG_OPTION = re.compile(r"--[a-z][a-z-]{1,40}(?=[\s=]|\Z)")
_ARN = re.compile(r"arn:[\w-]{0,16}:secretsmanager:[\w-]{0,24}:\d{0,12}:\Z")
_LABEL = re.compile(r"(?:^|[^A-Za-z])(?:id|env|prefix|hash)\Z", re.IGNORECASE)
_QUERY = re.compile(r"(?:[?&;]|%26|%3f)\Z", re.IGNORECASE)
_QUERY_VALUE = re.compile(r"[^\s&\"'<>#;]{6,2048}")
_QUERY_SIGNS = ("?", "&", ";", "6", "f", "F")
_WRAPPER = re.compile(
    r"[\w.]{0,40}(?:secret|str|bytes|b64\w{0,8}|quote|encode|password|token)\w{0,12}\((?=[bru]{0,2}[\"'])", re.IGNORECASE
)
_LONG = re.compile(r"\\{0,7}[bru]?[\"'`]?[A-Za-z0-9+/_~.:-]{16}")
_LONGEST_VALUE = 8_192
"""Characters within which the closing quote of a value is looked for."""
_LONG_RUN, _MOST_OF_RUN = 512, 16
_WINDOW, _MOST_OF_WINDOW = 4_096, 64


def assignment_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values behind names of secrets.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    position, limits = 0, _NameLimits(text)
    while match := _ANCHOR.search(lowered, position):
        if (rest_end := limits.rest_end(match.end())) is not None:
            yield match.start("name"), rest_end
            position = rest_end
            continue
        span = _span(text, match)
        if span is None:
            position = match.end("name")
            continue
        yield span
        position = max(span[1], match.end("name"))
        if changed := _new_value(text, position):
            yield changed
            position = changed[1]


def _new_value(text: str, position: int) -> tuple[int, int] | None:
    """Return what a secret is changed to: `password = "old" -> "new"`."""
    arrow = _CHANGE.match(text, position)
    return _value(text, arrow.end(), Strength.STRONG, closed=False, pair=False) if arrow else None


_CHANGE = re.compile(r"[ \t]{0,8}(?:->|=>|→|⇒)[ \t]{0,8}")


def next_line_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values that stand on the lines below their name or go on there, and of no others."""
    position, limits = 0, _NameLimits(text)
    while match := _ANCHOR.search(lowered, position):
        position = match.end("name")
        if (rest_end := limits.rest_end(match.end())) is not None:
            position = rest_end
        elif match.lastgroup in ("field", "item") or (match.lastgroup == "pair" and _MAY_GO_ON.match(text, match.end())):
            span = _span(text, match)
            if span is None:
                continue
            if text.find("\n", match.end("name"), span[1]) >= 0:
                yield span
            position = max(span[1], position)


_MAY_GO_ON = re.compile(r"[bruf]{0,2}\\{0,7}[\"'`]|[ \t\r]{0,8}\n|[|>!&#(\[{\\]|[\w.:<>]{1,64}!?[(\[{]")


class _NameLimits:
    """Says where a text consists of names of secrets, so that judging each by what follows would cost far more than other text.

    That is so behind 16 names in one run without a space of which more than 512 characters are left, and behind 64 within 4,096
    characters. What is left of the run or of these characters is then hidden whatever it is: no ordinary text has it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._run_end = self._run_count = self._window_end = self._window_count = 0

    def rest_end(self, at: int) -> int | None:
        """Return where the rest ends that is hidden from here on, None where the name that ends here is judged."""
        text = self._text
        if text.find("[redacted]", self._at, at) >= 0:
            self._run_end = self._window_end = 0  # what was hidden so stays as it is the next time
        if at >= self._run_end:
            run = _BARE.match(text, at)
            self._run_end, self._run_count = run.end() if run else 0, 0
        elif self._run_end - at > _LONG_RUN:
            self._run_count += 1
        if at >= self._window_end:
            self._window_end, self._window_count = min(at + _WINDOW, len(text)), 0
        self._window_count += 1
        self._at = at
        if self._run_count > _MOST_OF_RUN:
            return self._run_end
        return self._window_end if self._window_count > _MOST_OF_WINDOW and at < self._window_end else None


def names_secret(key: str) -> bool:
    """Tell whether a key of a JSON object says that its text is a secret whatever it looks like."""
    return strength_of(key) >= Strength.STRONG or key.lower().strip("_-") in _BARE_NAMES


_BARE_NAMES = frozenset({"token", "pass", "authorization", "cookie", "set-cookie", "webhook"})


def names_option(before: str, value: str) -> bool:
    """Tell whether a text of a list is the name of a secret and the next its value: `["--password", "..."]`."""
    if before.startswith("-"):
        return strength_of(before) >= Strength.MEDIUM and "=" not in before and not value.startswith("-") and not is_harmless(value)
    return len(before) <= 64 and strength_of(before) >= Strength.MEDIUM and is_secret_value(value, strength_of(before))


def _span(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return where the value of a name stands; None when the name or the value is harmless."""
    start, kind = match.start("name"), match.lastgroup
    before = text[max(start - 64, 0) : start]
    outside = before.rstrip(_NAME_SIGNS)
    name = before[len(outside) :] + text[start : match.end("name")]
    strength = strength_of(name)
    if strength is Strength.WEAK and before[-1:] in (" ", "-") and (spaced := _NAME_BEFORE.search(before)):
        strength = strength_of(f"{spaced['word']}_{name}")
    if strength is Strength.WEAK and kind == "pair" and outside[-1:] in _QUERY_SIGNS and _QUERY.search(outside):
        return _query_value(text, match.end())
    if kind == "space" and name.startswith("$"):
        return None  # `-B $PWD docker://image`: a variable is used
    if _names_no_secret(text, match, name, outside):
        return None
    if outside.endswith(":") and _ARN.search(outside):
        return None  # the name of a secret at its keeper
    if strength is Strength.NONE or outside.endswith("${") or (strength is Strength.WEAK and _is_dull(outside)):
        return None
    if strength is Strength.PASSWORD and _LABEL.search(name):
        strength = Strength.STRONG  # `password id: 49407`
    place_strength = _strength_here(text, match, name, before, strength)
    span = (
        _value(text, match.end(), place_strength, closed=match["close"] is not None, pair=kind in ("pair", "field"))
        if place_strength
        else None
    )
    if span is not None and kind == "pair" and (words := _MORE_WORDS.match(text, span[1])) and _OF_WORDS.search(name):
        return span[0], words.end()
    if span is None and kind == "space" and (distant := _FAR.match(text, match.end("name"))):
        return _value(text, distant.end(), strength, closed=False, pair=False) if _far_strength(text, distant, strength) else None
    return span


_OF_WORDS = re.compile(r"(?:phrase|mnemonic)s?\Z", re.IGNORECASE)
_MORE_WORDS = re.compile(r"(?:[ \t]{1,4}[A-Za-z0-9]{1,24}){1,24}[ \t\r]{0,8}(?=\n|\Z)", re.ASCII)
"""The other words of a passphrase without quotes, to the end of its line."""


def _strength_here(text: str, match: re.Match[str], name: str, before: str, strength: Strength) -> Strength:
    """Return how much the value must look like a secret, given what stands between it and the name."""
    kind = match.lastgroup
    option = name.startswith("-")
    if kind == "pair" and strength is Strength.WEAK and not _LONG.match(text, match.end()):
        return Strength.NONE
    if kind == "pair":
        return Strength.STRONG if option and strength is Strength.MEDIUM else strength
    if kind == "call":  # `set_token('...')`, and not `get_token('name')`
        quote = _FIRST_QUOTE.search(text, match.end(), match.end() + 64)
        value = _BARE.match(text, quote.end()) if quote else None
        return strength if strength >= Strength.MEDIUM and value and looks_random(value.group(), 12) else Strength.NONE
    if kind == "item" and _PIECE.match(text, match.end()):
        return Strength.NONE  # `'secret', '##ary'`: pieces of words
    if kind == "item":
        return strength if match["close"] and strength >= Strength.MEDIUM else Strength.NONE
    if kind == "field":
        return strength if strength >= Strength.MEDIUM else Strength.NONE
    if kind == "element":
        closing = text.find("</", match.end(), match.end() + 512)
        return strength if closing > 0 and "\n" not in text[match.end() : closing] else Strength.NONE
    if kind == "space":
        return _strength_after_space(text, match, name, before, strength)
    if text[match.end("name")] in "_-." and match["name"].lower() == "pass":
        return Strength.NONE  # `whole_pass_age=5s;;150`: a pass of something
    return _far_strength(text, match, strength)


_FIRST_QUOTE = re.compile(r"[\"']")


def _is_dull(outside: str) -> bool:
    """Tell whether the words before `key` say that it is one of a table: `fx_graph key=`, `cache hit for key `, `RSA key 0F3A`."""
    if not outside.endswith((" ", "\t")):
        return False
    return is_dull_key(outside[-40:].strip().rpartition(" ")[2]) or _OF_CACHE.search(outside[-48:]) is not None


_OF_CACHE = re.compile(r"\bcach(?:e|ed|ing)\b|\b(?:using|with|made by) (?:rsa|dsa|eddsa|ecdsa)[ \t]\Z", re.IGNORECASE)


_OTHER_NAME = re.compile(r"\bsha\d{1,3}:[ \t]{0,8}\Z|[ \t]--[a-z][a-z-]{0,30}=\Z", re.IGNORECASE)
"""At the end of what stands between a name and a value: the kind of a digest, another option."""


def _far_strength(text: str, match: re.Match[str], strength: Strength) -> Strength:
    """Return the strength where words stand between name and value: `API key for bob: 0123`."""
    value = _BARE.match(text, match.end())
    between = match.group()
    if _OTHER_NAME.search(between) and (strength < Strength.PASSWORD or between.endswith("=")):
        return Strength.NONE  # `--discovery-token-ca-cert-hash sha256:0f3a…`, `--partition=password-model --uid=ada`
    if strength is Strength.PASSWORD and value and _unlike_word(value.group()) and not value.group().isdigit():
        return strength
    return strength if strength >= Strength.STRONG and value and looks_random(value.group(), 12) else Strength.NONE


def _strength_after_space(text: str, match: re.Match[str], name: str, before: str, strength: Strength) -> Strength:
    if strength is Strength.WEAK and not name.startswith("-"):
        value = _BARE.match(text, match.end())
        return strength if value and looks_random(value.group(), 32) else Strength.NONE
    if name.startswith("-") or _SETTER.search(before):
        return Strength.STRONG if strength is Strength.MEDIUM else strength
    value = _BARE.match(text, match.end() + (text[match.end() : match.end() + 1] in ("'", '"')))
    value_text = value.group() if value else ""
    if strength is Strength.PASSWORD and _NETRC.search(before) and "\n" not in match["space"]:
        ends = _ENDS_ENTRY.match(text, match.end()) or _LONG.match(text, match.end())
        return strength if ends or (_unlike_word(value_text) and any(map(str.isdigit, value_text))) else Strength.NONE
    if strength is Strength.PASSWORD:
        if text[match.end() : match.end() + 1] in ("'", '"') or (match["space"].strip() and _unlike_word(value_text)):
            return strength
        return strength if looks_random(value_text, 8) else Strength.NONE
    if (
        strength >= Strength.MEDIUM
        and match["space"].strip()
        and _unlike_word(value_text)
        and any(sign.isdigit() for sign in value_text)
    ):
        return strength
    if strength is Strength.STRONG:
        return strength if looks_random(value_text, 12) else Strength.NONE
    return strength if strength is Strength.MEDIUM and looks_random(value_text, 20) else Strength.NONE


def _unlike_word(value: str) -> bool:
    return len(value) >= 6 and any(not sign.isalpha() for sign in value.rstrip(".,:;!?)"))


def _query_value(text: str, start: int) -> tuple[int, int] | None:
    value = _QUERY_VALUE.match(text, start)
    return value.span() if value and not is_harmless(value.group()) and _unlike_word(value.group()) else None


def _value(text: str, start: int, strength: Strength, *, closed: bool, pair: bool) -> tuple[int, int] | None:
    if text.startswith("(", start) and _OPENING.match(text, start + 1):  # auth=('user', 'password')
        end = text.find(")", start, start + 512)
        return (start + 1, end) if end > 0 else None
    opening = _OPENING.match(text, start)
    if opening:
        return _quoted(text, opening, strength)
    sign = text[start : start + 1]
    if sign == "\\" and (wrapped := _CONTINUED.match(text, start)):
        return _value(text, wrapped.end(), strength, closed=closed, pair=False)
    if pair and (sign in ("\r", "\n", "|", ">") or (sign in ("!", "&", "#") and _BELOW.match(text, start))):
        return _on_next_line(text, start, strength)
    if sign == "!" and _REFERENCE.match(text, start):
        return None
    if pair and sign in ("!", "&") and (marks := _YAML_MARKS.match(text, start)):
        return _value(text, marks.end(), strength, closed=closed, pair=False)
    if sign and (literal := literal_span(text, start, strength)):
        return literal
    scheme = _SCHEME.match(text, start)
    if scheme and not pair and scheme.group().isupper() and scheme.group().endswith("  "):
        scheme = None  # `--token TOKEN     access token`: the help of a program
    value = _BARE.match(text, scheme.end() if scheme else start)
    if value is None:
        return None
    if value.group().startswith("[redacted]"):
        return None
    if call := _WRAPPER.match(text, value.start()):  # SecretStr('...')
        return _quoted(text, _OPENING.match(text, call.end()), strength)
    begin, end = value.start(), _end_of_bare(text, value, closed=closed)
    bare = text[begin:end]
    if scheme and scheme.group().strip().lower() in _SCHEMES_OF_MANY_PARTS:
        return begin, line_end(text, begin)
    if scheme and not is_harmless(bare) and (strength >= Strength.STRONG or _unlike_word(bare) or len(bare) >= 12):
        return begin, end
    return (begin, end) if is_secret_value(bare, strength) else None


_CONTINUED = re.compile(r"\\\r?\n[ \t]{0,64}")
_BELOW = re.compile(rf"#[ \t][^\n]{{0,200}}\n|[!&][\w!.:/-]{{0,64}}[ \t]{{0,8}}\r?\n|{BLOCK_HEAD.pattern}", re.ASCII)
_YAML_MARKS = re.compile(r"(?:[!&][\w!.:/-]{0,64}[ \t]{1,8}){1,2}(?=[^\s#])")
_REFERENCE = re.compile(r"!(?:Ref|GetAtt|ImportValue|FindInMap)[ \t]{1,8}[\w.:-]{1,128}[ \t\r]{0,8}(?=\n|\Z)")
"""A tag of CloudFormation that names another value."""
_SCHEMES_OF_MANY_PARTS = frozenset({"digest", "hawk", "oauth", "aws4-hmac-sha256"})


def _quoted(text: str, opening: re.Match[str] | None, strength: Strength) -> tuple[int, int] | None:
    """Return the value with its quotes, or what stands behind the word for the kind of a header."""
    if opening is None:
        return None
    start, quote = opening.end(), opening["quote"]
    limit = min(start + _LONGEST_VALUE, len(text))
    end = _closing_quote(text, start, quote, limit)
    line = text.find("\n", start, limit)
    if 0 <= line < end and len(quote) == 1 and not text[start:line].strip():
        return _on_next_line(text, line, strength)  # YAML: the value begins on the line below its quote
    if end < 0 or (0 <= line < end and len(quote) < 3):
        bare = _BARE.match(text, start)  # no closing quote: it was cut off
        end = bare.end() if bare else start
        return (start, end) if bare and is_secret_value(bare.group(), strength) else None
    value = text[start:end]
    scheme = _SCHEME.match(value)
    if scheme:
        inner = value[scheme.end() :]
        return (start + scheme.end(), end) if inner and not is_harmless(inner) else None
    if value == "[redacted]" or not is_secret_value(value, strength):
        return None
    return opening.start(), end_of_strings(text, min(end + len(quote), limit))


def _closing_quote(text: str, start: int, quote: str, limit: int) -> int:
    r"""Return where the quote stands that ends a value, -1 where none does.

    A quote in JSON that stands in a string of JSON is written with n = 0, 1, 3 or 7 backslashes; one that is part of the value has
    2n + 1, a backslash of the value 2(n + 1). So the backslashes before the closing quote leave n when divided by 2(n + 1).
    """
    depth = len(quote) - 1
    if quote != "\\" * depth + quote[-1] or quote[-1] not in _QUOTES_OF_JSON:
        return text.find(quote, start, limit)  # three quotes, or written as an entity
    end = text.find(quote[-1], start, limit)
    while end >= 0:
        run = end - len(text[max(start, end - _MOST_BACKSLASHES) : end].rstrip("\\")) - max(start, end - _MOST_BACKSLASHES)
        closes = run % (2 * depth + 2) == depth
        # `\\"` may also be one quote of the value, written by another program; behind a closing one no word goes on
        if closes and not (run > depth and text[end + 1 : end + 2].isalnum()):
            return end - depth
        if run < depth and not closes:
            return end - run  # the quote of the string around it: the value was cut off
        end = text.find(quote[-1], end + 1, limit)
    return -1


_QUOTES_OF_JSON = "\"'`"
_MOST_BACKSLASHES = 64


def _on_next_line(text: str, start: int, strength: Strength) -> tuple[int, int] | None:
    if strength >= Strength.MEDIUM and (block := scalar_block(text, start, strength)):
        return block
    following = _LINE_END.match(text, start)
    if following is None or strength < Strength.STRONG:
        return None
    value = following["value"]
    line = text.rfind("\n", 0, start) + 1
    own = len(text[line:start]) - len(text[line:start].lstrip(" \t-"))
    deeper = len(following["indent"].expandtabs()) > own
    bare = value.strip("\"'")
    if value.endswith((":", ",")) or "=" in bare.rstrip("=") or not is_secret_value(bare, strength):
        return None
    return following.span("value") if deeper or any(sign.isdigit() for sign in bare) or looks_random(bare, 8) else None


def _end_of_bare(text: str, value: re.Match[str], *, closed: bool) -> int:
    """Return where a value without quotes ends: before the next pair and what closes the list around it."""
    value_text = value.group()
    following = _NEXT_PAIR.search(value_text)
    length = following.start() if following else len(value_text)
    if closed and not following:  # JSON and YAML in flow style: {"token": abc}
        length = len(value_text.rstrip("}]),;"))
    trimmed = value_text[:length].rstrip(",;")
    while trimmed and trimmed[-1] in _PAIRS and trimmed.count(trimmed[-1]) > trimmed.count(_PAIRS[trimmed[-1]]):
        trimmed = trimmed[:-1].rstrip(",;")
    return value.start() + len(trimmed)


_PAIRS = {")": "(", "]": "[", "}": "{"}
