"""Take secrets out of text before it reaches the disk, a model or a screen; hide names, and show them again.

Pure, and harmless to what diagnosis reads: lines keep their number, and `tokens per second: 12`, `KeyError: 'secret'` or
`MAX_TOKENS=4096` stay as they are. What goes is replaced by `[redacted]`; doing it twice changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MASK", "Mask", "redact", "redact_value"]

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


class Mask:
    """Replaces names of hosts and users by stand-ins, and back: for a model or a service that is not the site's own.

    A name has the same stand-in whenever the key is the same; `show` knows those that this mask has hidden or was made with.
    Hosts that are numbered like a known one (node017 beside node016), and folded sets of them (`node[001-016]`), are hidden too.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), *, key: bytes = b"") -> None:
        """Begin with what is known.

        Args:
            hosts: Names of nodes and login hosts.
            users: Login names; those that every system has stay.
            key: Secret of the site: without it nobody can find a name by trying all.
        """
        self._key = key
        self._names: dict[str, str] = {}
        self._stands_for: dict[str, str] = {}
        self._lock = threading.Lock()
        self.learn(hosts, users)

    def learn(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Hide further names from now on."""
        new_hosts = sorted({host for host in hosts if _NAME.fullmatch(host)})
        with self._lock:
            for host in new_hosts:
                self._stand_in("host", host)
            for user in sorted({user for user in users if _NAME.fullmatch(user) and user not in _EVERYWHERE}):
                self._stand_in("user", user)
            self._pattern = self._compiled()

    def hide(self, text: str) -> str:
        """Return the text with stand-ins for names."""
        with self._lock:
            return self._pattern.sub(lambda found: self._stand_in("host", found.group()), text) if self._names else text

    def show(self, text: str) -> str:
        """Return the text with the names themselves; a stand-in that this mask does not know stays."""
        return _STAND_IN.sub(lambda found: self._name(found.group()), text)

    def _name(self, stand_in: str) -> str:
        # letters that follow may be hexadecimal digits, too
        for end in range(len(stand_in), len("host-") + _DIGITS - 1, -1):
            if stand_in[:end] in self._stands_for:
                return self._stands_for[stand_in[:end]] + stand_in[end:]
        return stand_in

    def _stand_in(self, sort: str, name: str) -> str:
        if name not in self._names:
            digest = hmac.new(self._key, f"{sort}:{name}".encode(), hashlib.sha256).hexdigest()
            length = _DIGITS
            while (given := f"{sort}-{digest[:length]}") in self._stands_for:
                length += 1
            self._names[name], self._stands_for[given] = given, name
        return self._names[name]

    def _compiled(self) -> re.Pattern[str]:
        numbered = {
            (found["stem"], len(found["number"]))
            for name, given in self._names.items()
            if given.startswith("host-") and (found := _NUMBERED.fullmatch(name))
        }
        alike = [rf"{re.escape(stem)}\d{{{digits}}}" for stem, digits in sorted(numbered)]
        folded = [rf"{re.escape(stem)}\[[\d,-]+\]" for stem in sorted({stem for stem, _ in numbered})]
        # a numbered host is matched by its likes: thousands of alternatives would be slow
        alone = [name for name, given in self._names.items() if not (given.startswith("host-") and _NUMBERED.fullmatch(name))]
        plain = [re.escape(name) for name in sorted(alone, key=lambda name: (-len(name), name)) if "[" not in name]
        names = "|".join([*folded, *plain, *alike])
        return re.compile(rf"{_BEFORE}(?:{names})(?![\w-])")


_NAME = re.compile(r"(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{1,252}")
_NUMBERED = re.compile(r"(?P<stem>.*[A-Za-z-])(?P<number>\d+)")
_DIGITS = 6
_STAND_IN = re.compile(rf"(?:host|user)-[0-9a-f]{{{_DIGITS},64}}")
_BEFORE = r"(?:(?<![\w-])|(?<=\\n)|(?<=\\r)|(?<=\\t))"
"""No letter of the same word; the letter of an escape in JSON is none."""
_EVERYWHERE = frozenset({"root", "nobody", "daemon", "slurm", "munge", "nightshift"})
