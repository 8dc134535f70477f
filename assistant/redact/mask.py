"""Replace names of hosts and users by stand-ins, and back: for a model or a service that is not the site's own."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections.abc import Iterable

__all__ = ["Mask"]


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
            return self._pattern.sub(lambda match: self._stand_in("host", match.group()), text) if self._names else text

    def show(self, text: str) -> str:
        """Return the text with the names themselves; a stand-in that this mask does not know stays."""
        return _STAND_IN.sub(lambda match: self._name(match.group()), text)

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
            while (alias := f"{sort}-{digest[:length]}") in self._stands_for:
                length += 1
            self._names[name], self._stands_for[alias] = alias, name
        return self._names[name]

    def _compiled(self) -> re.Pattern[str]:
        numbered = {
            (match["stem"], len(match["number"]))
            for name, alias in self._names.items()
            if alias.startswith("host-") and (match := _NUMBERED.fullmatch(name))
        }
        number_patterns = [rf"{re.escape(stem)}\d{{{digits}}}" for stem, digits in sorted(numbered)]
        folded = [rf"{re.escape(stem)}\[[\d,-]+\]" for stem in sorted({stem for stem, _ in numbered})]
        # a numbered host is matched by its likes: thousands of alternatives would be slow
        single_names = [
            name for name, alias in self._names.items() if not (alias.startswith("host-") and _NUMBERED.fullmatch(name))
        ]
        plain = [re.escape(name) for name in sorted(single_names, key=lambda name: (-len(name), name)) if "[" not in name]
        names = "|".join([*folded, *plain, *number_patterns])
        return re.compile(rf"{_BOUNDARY}(?:{names})(?![\w-])")


_NAME = re.compile(r"(?=[^A-Za-z]{0,252}[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{1,252}")
_NUMBERED = re.compile(r"(?P<stem>.{0,252}[A-Za-z-])(?P<number>\d{1,252})")
_DIGITS = 6
_STAND_IN = re.compile(rf"(?:host|user)-[0-9a-f]{{{_DIGITS},64}}")
_BOUNDARY = r"(?:(?<![\w-])|(?<=\\n)|(?<=\\r)|(?<=\\t))"
"""No letter of the same word; the letter of an escape in JSON is none."""
_EVERYWHERE = frozenset({"root", "nobody", "daemon", "slurm", "munge", "nightshift"})
