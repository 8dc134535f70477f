"""Find secrets that a shell shows: piped or given to a program that asks, printed of a file that holds one, written into it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.redact.literals import like_mark
from assistant.redact.neighbours import tells_password
from assistant.redact.values import Strength, is_harmless, looks_random, strength_of

_TRACE = r"[^\n]{0,80}?\+{1,4}[ \t]"
_READER = (
    r"(?:\S{1,64}/)?(?:kinit|sudo|passwd|chpasswd|cryptsetup|docker|podman|nerdctl|helm|oras|skopeo|vault|gpg|gpg2|smbclient|htpasswd|gh"
    r"|crane|su|ssh-add|ldap\w{1,10}|kadmin|smbpasswd|openssl|restic|borg|mysql|psql|rclone|age|wandb|hf|huggingface-cli|modal|oc|az)\b"
)
"""Programs that read a password or a key from their standard input."""
_ECHO = (
    r"(?:echo|printf)(?:[ \t]+-\w{1,3}|[ \t]+'?%s(?:\\n)?'?){0,2}[ \t]+"
    r"(?P<quote>[\"']?)(?P<secret>(?!\$)[^\s\"'|]{4,256})(?P=quote)"
)
_PIPED = re.compile(rf"\b{_ECHO}[ \t]*\|[ \t]*(?:sudo[ \t]+(?!-S))?{_READER}[^\n|]{{0,200}}", re.ASCII)
_TRACED = re.compile(rf"^{_TRACE}{_ECHO}[ \t\r]*$(?=\n{_TRACE}{_READER}(?P<behind>[^\n]{{0,200}}))", re.ASCII | re.MULTILINE)
_TRACED_BEHIND = re.compile(rf"^{_TRACE}{_READER}(?P<behind>[^\n]{{0,200}})\n{_TRACE}{_ECHO}[ \t\r]*$", re.ASCII | re.MULTILINE)
_TYPED = re.compile(
    r"[Pp]ass(?:word|phrase|code)[^\n:]{0,80}:[ \t]{0,4}\r?\n[^\n]{0,80}?send(?:ing)?\b[^\n\"']{0,40}"
    r"[\"'](?P<secret>[^\"'\n\\]{3,128})"
)
"""What Expect tells that it has typed behind a prompt."""
_FROM_INPUT = re.compile(
    r"\bkinit\b|\bchpasswd\b|[ \t]-S\b|stdin|--passphrase-fd|\blogin\b|--with-token"
    r"|[ \t]-[iWw]?(?:[ \t]|\Z)|\bsu\b|passwd\b|\bcryptsetup\b"
)
"""What says that a program reads it from its input."""


def input_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what is piped into a program that reads a password, on its line or beside it in a shell's trace."""
    if "send" in text:
        yield from (match.span("secret") for match in _TYPED.finditer(text))
    if "<<" in text:
        yield from _here_spans(text)
    if "echo" not in text and "printf" not in text:
        return
    for match in _PIPED.finditer(text):
        if _FROM_INPUT.search(match.group(), match.end("secret") - match.start()) and not is_harmless(match["secret"]):
            yield match.span("secret")
    for pattern in (_TRACED, _TRACED_BEHIND):
        for match in pattern.finditer(text):
            program = text[max(match.start("behind") - 12, 0) : match.end("behind")]
            if _FROM_INPUT.search(program) and not is_harmless(match["secret"]):
                yield match.span("secret")


_HERE_STRING = re.compile(
    rf"(?<![\w.-]){_READER}(?P<behind>[^\n<]{{0,200}})(?:<<<[ \t]{{0,4}}\$?(?:(?P<quote>[\"'])"
    r"(?P<quoted>[^\"'\n]{2,256})(?P=quote)|(?P<bare>(?!\$)[^\s\"'|;]{4,256}))"
    r"|<<-?[ \t]{0,4}[\"']?(?P<word>\w{1,24})[\"']?[^\n]{0,80}\n(?P<document>[^\n]{2,256})\n[^\n]{0,80}(?P=word))",
    re.ASCII,
)
"""A program that reads a password, and the text that a shell gives to it."""


def _here_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _HERE_STRING.finditer(text):
        group = next(name for name in ("quoted", "bare", "document") if match[name])
        if _FROM_INPUT.search(text, match.start(), match.end("behind")) and not is_harmless(match[group]):
            yield match.span(group)


_PATH = r"(?P<path>[\w.~/$\\{}:@%-]{3,200})[\"']?"
_TARGET = _PATH.replace("path", "target")
_TO_FILE = r"(?:>>?|\|[ \t]{0,4}(?:sudo[ \t]{1,4})?tee(?:[ \t]{1,4}-a)?)"
_PRINTED = re.compile(
    r"(?<![\w./-])(?:cat|head|tail|type|bat|more|less|tac|get-content|gc|base64)"
    rf"(?:[ \t]{{1,4}}-{{1,2}}\w{{1,12}}){{0,3}}[ \t]{{1,4}}[\"']?{_PATH}"
    r"(?:[ \t]{0,4}(?:;|&&|\|\|)[^\n]{0,80})?[ \t\r]{0,8}\n(?=(?P<row>[^\n]{6,600}))",
    re.IGNORECASE,
)
_WRITTEN = re.compile(
    rf"\b(?:echo|printf)(?:[ \t]{{1,4}}-\w{{1,3}}|[ \t]{{1,4}}[\"']?%s(?:\\n)?[\"']?){{0,2}}[ \t]{{1,4}}"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{2,512})(?P=quote)|(?P<bare>(?!\$)[^\s\"'|>;]{4,512}))"
    rf"[ \t]{{0,4}}{_TO_FILE}[ \t]{{0,4}}[\"']?{_PATH}"
)
_TEED = re.compile(
    rf"\b(?:tee(?:[ \t]{{1,4}}-a)?[ \t]{{1,4}}[\"']?{_PATH}[^\n<]{{0,80}}<<<"
    rf"|(?:[sS]et|[aA]dd)-[cC]ontent[ \t]{{1,4}}(?:-\w{{1,12}}[ \t]{{1,4}})?[\"']?{_TARGET}(?:[ \t]{{1,4}}-[vV]alue)?)"
    r"[ \t]{0,4}[\"']?(?P<bare>(?!\$)[^\s\"']{4,512})"
)
_FILLED = re.compile(
    rf"\b(?:cat|tee)(?:[ \t]{{1,4}}-a)?[ \t]{{0,4}}>{{0,2}}[ \t]{{0,4}}[\"']?{_PATH}[^\n<]{{0,80}}"
    r"<<-?[ \t]{0,4}[\"']?\w{1,24}[\"']?[^\n]{0,40}\n(?P<bare>[^\n]{4,512})\n"
)
_FILLED_BEHIND = re.compile(
    rf"<<-?[ \t]{{0,4}}[\"']?\w{{1,24}}[\"']?[ \t]{{0,4}}{_TO_FILE}[ \t]{{0,4}}[\"']?{_PATH}"
    r"[^\n]{0,40}\n(?P<bare>[^\n]{4,512})\n"
)
_PLACE_OF_SECRETS = re.compile(r"/(?:secrets?|\.?vault|credentials)/", re.IGNORECASE)
_FILE_END = re.compile(r"\.(?:txt|key|conf|cfg|ini|env|json|ya?ml|asc|b64|dat|file|d)\Z", re.IGNORECASE)
_PASSWORD_FILES = frozenset({"passwd-s3fs", "pgpass", "netrc", "smbcredentials", "git-credentials"})


def file_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what is printed of a file that holds a secret, and of what is written into one.

    Args:
        text: As it is.
        lowered: The same in small letters, character for character.
    """
    if "\n" in text and any(program in lowered for program in _PRINTERS):
        for match in _PRINTED.finditer(text):
            strength = _strength_of_file(match["path"])
            if strength and (span := _printed_value(text, match, strength)):
                yield span
    for pattern in (_WRITTEN, _TEED, _FILLED, _FILLED_BEHIND) if _WRITES.search(lowered) else ():
        for match in pattern.finditer(text):
            group = "quoted" if match.groupdict().get("quoted") else "bare"
            path = match["path"] or match.groupdict().get("target") or ""
            if _strength_of_file(path) and not is_harmless(match[group]) and not match[group].startswith("[redacted"):
                yield match.span(group)


_PRINTERS = ("cat ", "head ", "tail ", "type ", "bat ", "more ", "less ", "tac ", "get-content ", "gc ", "base64 ")
_WRITES = re.compile(r"(?:>|tee|content)[^\n]{0,80}?(?:pass|pw|secret|token|key|cred|vault|netrc)")


def _strength_of_file(path: str) -> Strength:
    """Return how much a path says that its file holds a secret and nothing else."""
    name = re.split(r"[/\\]", path)[-1]
    stem = _FILE_END.sub("", name.lstrip("."))
    if path in ("/etc/passwd", "/etc/passwd-") or not stem:
        return Strength.NONE
    if _PLACE_OF_SECRETS.search(path) or stem.lower() in _PASSWORD_FILES:
        return Strength.PASSWORD
    if name.lower().endswith(".key"):
        return Strength.STRONG
    strength = max(strength_of(stem), strength_of(name.lstrip(".")))
    return strength if strength >= Strength.MEDIUM else Strength.NONE


def _printed_value(text: str, match: re.Match[str], strength: Strength) -> tuple[int, int] | None:
    """Return the value on the line below a command, behind what a launcher puts before both."""
    row = match["row"].rstrip()
    start = match.start("row")
    line = text.rfind("\n", max(match.start() - _LONGEST_MARK, 0), match.start()) + 1
    mark = _LAUNCHER.match(text, line, match.start())
    before = mark.group() if mark else ""
    if before and like_mark(row[: len(before)], before):
        start, row = start + len(before), row[len(before) :]
    start, row = start + len(row) - len(row.lstrip()), row.strip()
    if len(row) < _LEAST_PRINTED or any(map(str.isspace, row)) or is_harmless(row) or row.startswith("[redacted"):
        return None
    is_telling = looks_random(row, 12) or (strength >= Strength.STRONG and tells_password(row) and ":" not in row)
    return (start, start + len(row)) if is_telling else None


_LAUNCHER = re.compile(r"(?:\[?[\w-]{0,24}\d{1,6}\]?:|[\d:., TZ\[\]-]{8,40})[ \t]{0,4}")
_LEAST_PRINTED, _LONGEST_MARK = 6, 200
