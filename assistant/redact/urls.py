"""Find secrets in addresses: `scheme://user:password@host`, also with `@`, `/` or `:` in the password; also without a scheme."""

from __future__ import annotations

import re
from collections.abc import Iterator

_AUTHORITY = re.compile(r"://(?P<user>[^\s@'\"<>`]{0,512})@", re.ASCII)
"""From the scheme to the first `@`; `/` in between is allowed only behind a colon, see `url_spans`."""
_MORE = re.compile(r"[^\s/@'\"<>`?#]{0,256}@(?=[\w.\[-])", re.ASCII)
"""A further part of a password that holds `@` itself."""
_PORT = re.compile(r":\d{1,5}(?:[/?#]|\Z)")
_PATH_SIGN = re.compile(r"[/?#]")
_PLAIN_USERS = frozenset({"git", "ec2-user", "ubuntu", "root", "hg", "svn"})

_BARE = re.compile(
    r"(?<![\w/.@:\\-])[A-Za-z][\w.-]{0,31}:(?P<password>[^\s:/@'\"\[\]{}()<>,]{3,64})@"
    r"(?:tcp\(|unix\(|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b|[A-Za-z0-9-]{1,63}:\d{2,5}\b)",
    re.ASCII,
)
"""`user:password@host:port`, as in proxies and Go's database sources."""
_ORACLE = re.compile(r"(?<![\w/])[A-Za-z]\w{0,31}/(?P<password>[^\s/@'\"]{3,64})@(?://|[\w.-]{1,63}:\d{4,5}/)", re.ASCII)


def url_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of user and password of addresses."""
    if "@" not in text:
        return
    position = 0
    while "://" in text and (match := _AUTHORITY.search(text, position)):
        position = match.end()
        user = match["user"]
        if _is_path(user) or not user or user == "[redacted]":
            continue
        while more := _MORE.match(text, position):
            position = more.end()
        if ":" in user or user not in _PLAIN_USERS:
            yield match.start("user"), position - 1
    for pattern in (_BARE, _ORACLE):
        for match in pattern.finditer(text):
            yield match.span("password")


def _is_path(user: str) -> bool:
    """Tell whether what stands before `@` is host and path: `s3://bucket/checkpoint@step-100`."""
    first = _PATH_SIGN.search(user)
    if first is None:
        return False
    colon = user.find(":")
    return colon < 0 or colon > first.start() or _PORT.match(user, colon) is not None
