"""Take secrets out of text before it reaches the disk, a model or a screen.

Pure, and harmless to what diagnosis reads: lines keep their number, and `tokens per second: 12`, `KeyError: 'secret'` or
`MAX_TOKENS=4096` stay as they are. What goes is replaced by `[redacted]`; doing it twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MASK", "redact", "redact_value"]

MASK = "[redacted]"

_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;&]+)"""

_PRIVATE_KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL)

_WHOLE = re.compile(
    "|".join(
        (
            r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b",  # AWS access key and role ids
            r"\bhf_[A-Za-z0-9]{20,}\b",
            r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}\b",
            r"\bglpat-[A-Za-z0-9_-]{16,}\b",
            r"\bsk-[A-Za-z0-9_-]{20,}\b",
            r"\bnvapi-[A-Za-z0-9_-]{20,}\b",
            r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}\b",
            r"\bAIza[A-Za-z0-9_-]{30,}\b",
            r"\bya29\.[A-Za-z0-9_-]{20,}\b",
            r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web token
            r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}",
        )
    )
)
"""Shapes that are secrets wherever they stand."""

_URL = re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.IGNORECASE)

_NAMED = re.compile(
    rf"""(?P<keep>
          (?<![\w.-])(?:[\w.-]*[_.-])?(?:passwords?|passwd|passphrase|secrets?|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]?id)?
            |private[_-]?key|client[_-]?secret|(?:auth|access|refresh|session|bearer|id)[_-]?token)
          ["']?[ \t]*(?:=|:(?!:))[ \t]*
        | --(?:password|token|api-key|secret)(?:[ \t]+|=)
        | \bBearer[ \t]+ | \bAuthorization:[ \t]*(?:Basic|Token)[ \t]+
        | \bwandb[ \t]+login[ \t]+(?:--relogin[ \t]+)?
        | [?&](?:X-Amz-(?:Signature|Credential|Security-Token)|Signature|sig|token|access_token|AWSAccessKeyId)=
        ){_VALUE}""",
    re.IGNORECASE | re.VERBOSE,
)
"""A secret known by the name before it."""

_VARIABLE = re.compile(
    rf"""(?P<keep>(?<!\w)[A-Z][A-Z0-9_]*(?:_KEY|_TOKEN|_PAT|_PWD|PASSWORD|SECRET|CREDENTIALS)["']?[ \t]*[=:][ \t]*)"""
    rf"""(?P<value>{_VALUE})"""
)
"""An environment variable as `env` or `export` prints it."""

_HARMLESS = re.compile(
    r"""["']?(?:-?\d+(?:\.\d+)?|true|false|none|null|yes|no|<[^>]*>|/[\w./-]+|\*+|\[redacted\].*)["']?\Z""", re.IGNORECASE
)
"""Values that are no secrets: numbers, switches, special tokens, paths to where the secret lies."""

_SECRET_NAME = re.compile(
    r"(?:\A|[_.-])(?:password|passwd|passphrase|secret|token|api_?key|access_?key|private_?key|credentials?)\Z", re.I
)


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted]`; the number of lines stays."""
    if not text:
        return text
    text = _PRIVATE_KEY.sub(_masked_lines, text)
    text = _WHOLE.sub(MASK, text)
    text = _URL.sub(rf"\g<keep>{MASK}@", text)
    text = _VARIABLE.sub(_unless_harmless, text)
    return _NAMED.sub(rf"\g<keep>{MASK}", text)


def redact_value(value: Any) -> Any:
    """Return a JSON value with the secrets in its texts, and under names such as `api_key`, replaced."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: MASK if _names_secret(key, item) else redact_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_value(item) for item in value]
    return value


def _names_secret(key: object, value: object) -> bool:
    return isinstance(value, str) and bool(value) and bool(_SECRET_NAME.search(str(key)))


def _masked_lines(found: re.Match[str]) -> str:
    return "\n".join([MASK] * (found.group().count("\n") + 1))


def _unless_harmless(found: re.Match[str]) -> str:
    return found.group() if _HARMLESS.match(found["value"]) else found["keep"] + MASK
