"""What the ssh_config files say about a node: its address, user, keys and the way there.

The files are read as OpenSSH does: `Host`, `Match` (without `exec`), `Include`; the first value of an option counts. Paramiko's own
reader knows no `Include`, and a cluster's configuration is full of it.

`Hosts.route(node)` is the whole way as a tuple of hosts: jump hosts first, the node last. What OpenSSH would do with a line is
done; what would weaken us is not: `StrictHostKeyChecking no`, `ForwardAgent`, passwords and `Match exec` have no effect.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from glob import glob
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import untrusted_because
from assistant.errors import ConfigError

logger = logging.getLogger(__name__)

DEEPEST_INCLUDE = 16
"""As in OpenSSH; deeper is a file that includes itself."""
_LINE = re.compile(r"\s*+(\w++)(?:\s*+=\s*+|\s++)((?:.*\S)?)\s*", re.DOTALL)
_FLAGS = frozenset({"all", "canonical", "final"})
_RAW = frozenset({"proxycommand", "remotecommand", "localcommand", "knownhostscommand"})
"""Options whose value is a shell command: quotes in it are not ours to take away."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition of a block: `host`, `originalhost`, `user`, `localuser`, `all`, or one that is never met."""

    kind: str
    patterns: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One line that sets something, and under which conditions."""

    key: str
    """Lower case."""
    words: tuple[str, ...]
    location: str
    """`file:line`, for messages."""
    conditions: tuple[Criterion, ...] = ()
    """All must be met."""


@dataclass(frozen=True)
class ConfigReading:
    """Where relative names in a file start, and which files have been read."""

    folder: Path
    home: Path
    files: list[Path] = field(default_factory=list)


def read_config(path: Path, *, home: Path, folder: Path) -> tuple[list[ConfigOption], list[Path]]:
    """Return all options of a file and its includes, in order, and the files that were read.

    Args:
        path: The file; one that is missing or unreadable holds nothing.
        home: What `~` stands for.
        folder: Where relative `Include`s start: `~/.ssh` or `/etc/ssh`.

    Raises:
        ConfigError: A line cannot be understood; the message names file and line.
    """
    reading = ConfigReading(folder, home)
    return list(_options(path, reading, (), 0)), reading.files


def first_values(
    options: list[ConfigOption], facts: Callable[[Mapping[str, ConfigOption]], Mapping[str, str]]
) -> dict[str, list[ConfigOption]]:
    """Return the lines that speak about a host, by key, in order; of most options only the first counts.

    Args:
        options: Of all files, user's first.
        facts: Gives what `Match` looks at (`host`, `originalhost`, `user`, `localuser`), from the options found so far.
    """
    by_key: dict[str, list[ConfigOption]] = {}
    first: dict[str, ConfigOption] = {}
    for option in options:
        if all(_met(criterion, facts(first)) for criterion in option.conditions):
            by_key.setdefault(option.key, []).append(option)
            first.setdefault(option.key, option)
    return by_key


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether a name fits a pattern list: `*`, `?`, and `!` that rules a name out."""
    fits = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if _fits(pattern[1:], name):
                return False
        elif _fits(pattern, name):
            fits = True
    return fits


def _fits(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]")))


def _met(criterion: Criterion, facts: Mapping[str, str]) -> bool:
    if criterion.kind == "all":
        return not criterion.negated
    if criterion.kind not in facts:
        return False
    return matches(criterion.patterns, facts[criterion.kind]) is not criterion.negated


def _options(path: Path, reading: ConfigReading, outer: tuple[Criterion, ...], depth: int) -> Iterator[ConfigOption]:
    if depth > DEEPEST_INCLUDE:
        raise ConfigError(f"{path}: Include goes deeper than {DEEPEST_INCLUDE} files: does one include itself?")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        logger.debug("%s is not read: %s", path, error.strerror)
        return
    why = untrusted_because(path)
    if why:
        # as ssh does: a ProxyCommand in it would run with our rights
        raise ConfigError(f"ssh_config is not used: {why}")
    reading.files.append(path)
    block = outer
    for number, line in enumerate(text.splitlines(), 1):
        location = f"{path}:{number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, words = _split(line, location)
        if key == "host":
            block = (*outer, Criterion("originalhost", words))
        elif key == "match":
            block = (*outer, *_criteria(words, location))
        elif key == "include":
            for included in _included(words, reading):
                yield from _options(included, reading, block, depth + 1)
        else:
            yield ConfigOption(key, words, location, block)


def _split(line: str, location: str) -> tuple[str, tuple[str, ...]]:
    match = _LINE.fullmatch(line)
    if match is None or not match[2]:
        raise ConfigError(f"{location}: {line.strip()!r} is no `Option value`; ssh_config(5) lists the options")
    key = match[1].lower()
    if key in _RAW:
        return key, (match[2],)
    try:
        words = tuple(shlex.split(match[2], comments=True))
    except ValueError as error:
        raise ConfigError(f"{location}: {line.strip()!r}: {error}; close the quote") from error
    if not words:
        raise ConfigError(f"{location}: {match[1]} has no value")
    return key, words


def _criteria(words: tuple[str, ...], location: str) -> list[Criterion]:
    criteria: list[Criterion] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        negated = word.startswith("!")
        kind = word.lstrip("!").lower()
        if kind in _FLAGS:
            # our names are never made canonical, and there is one pass only: what waits for another one is passed over
            criteria.append(Criterion("all" if kind in ("all", "final") else "never", (), negated))
        elif not remaining:
            raise ConfigError(f"{location}: Match {kind} needs a value")
        elif kind in ("host", "originalhost", "user", "localuser"):
            criteria.append(Criterion(kind, tuple(remaining.pop(0).split(",")), negated))
        else:
            logger.debug("%s: Match %s is not looked at: the block never applies", location, kind)
            criteria.append(Criterion("never"))
            remaining.pop(0)
    return criteria


def _included(words: tuple[str, ...], reading: ConfigReading) -> Iterator[Path]:
    for word in words:
        pattern = reading.home / word[2:] if word.startswith("~/") else reading.folder / word
        # the plain function: Path.glob takes no absolute patterns
        yield from (Path(name) for name in sorted(glob(str(pattern))))  # noqa: PTH207


DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
"""What OpenSSH tries in ~/.ssh where no IdentityFile is named, as far as paramiko knows the kind."""
MOST_HOPS = 8
_SAFE = re.compile(r"[A-Za-z0-9_.:%@+\[\]-]+")
"""What may stand in a name: it can end up in a ProxyCommand, which a shell reads."""
_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Me:
    """The account that Nightshift runs as, on this machine."""

    user: str = field(default_factory=getpass.getuser)
    home: Path = field(default_factory=Path.home)
    uid: int = field(default_factory=os.getuid)
    machine: str = field(default_factory=socket.gethostname)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class Host:
    """All that must be known to connect to one host."""

    alias: str
    """As the scheduler, or a ProxyJump, calls it."""
    hostname: str
    user: str
    port: int = 22
    proxy_command: str = ""
    identity_files: tuple[Path, ...] = ()
    named_keys: bool = False
    """The identity files were named, not tried by default: a missing one is worth a word."""
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""
    """Path of the agent's socket; empty for none."""
    known_hosts: tuple[Path, ...] = ()
    revoked_keys: Path | None = None
    host_key_alias: str = ""
    connect_timeout_s: float | None = None
    keepalive_s: float | None = None

    @property
    def label(self) -> str:
        """Return the name for messages: `node03`, `login1 (10.0.0.1 port 2222)`."""
        port = f" port {self.port}" if self.port != 22 else ""
        return self.alias if self.hostname == self.alias and not port else f"{self.alias} ({self.hostname}{port})"

    @property
    def known_as(self) -> str:
        """Return the name under which its key stands in known_hosts."""
        name = (self.host_key_alias or self.hostname).lower()
        return name if self.port == 22 or self.host_key_alias else f"[{name}]:{self.port}"


class _Hop(NamedTuple):
    """One jump host of a ProxyJump."""

    alias: str
    user: str
    port: int | None


class Hosts:
    """The ssh_config files of this account, read anew when one of them changes."""

    def __init__(self, config: Path | None = None, *, me: Me | None = None, system: Path = Path("/etc/ssh")) -> None:
        """Read from `config` alone, or from ~/.ssh/config and the machine's ssh_config."""
        self.me = me or Me()
        self.system = system
        own = self.me.home / ".ssh"
        self._roots = [(config, own)] if config else [(own / "config", own), (system / "ssh_config", system)]
        self._options: list[ConfigOption] = []
        self._stamp: tuple[object, ...] = ()
        self._files: list[Path] = []
        self._routes: dict[str, tuple[Host, ...]] = {}

    def refresh(self) -> None:
        """Read the files again if one has changed.

        Raises:
            ConfigError: A line cannot be understood.
        """
        if self._stamp and stamp(self._files) == self._stamp:
            return
        options: list[ConfigOption] = []
        files: list[Path] = []
        for path, folder in self._roots:
            host_options, read = read_config(path, home=self.me.home, folder=folder)
            options += host_options
            files += [path, *read]
        self._options, self._files, self._routes = options, files, {}
        self._stamp = stamp(files)

    def route(self, node: str) -> tuple[Host, ...]:
        """Return the way to a node: jump hosts in order, the node last.

        Raises:
            ConfigError: The files are wrong about it: a bad port, a name with signs of the shell, jumps in a circle.
        """
        routes = self._routes  # a refresh by another thread makes new ones
        if node not in routes:
            routes[node] = self._way(node, "", None, ())
        return routes[node]

    def _way(self, alias: str, user: str, port: int | None, visited: tuple[str, ...]) -> tuple[Host, ...]:
        if alias in visited or len(visited) >= MOST_HOPS:
            raise ConfigError(f"the way to {visited[0]} goes in a circle: {' > '.join((*visited, alias))}; mend ProxyJump")
        values = self._values(alias, user)
        host = self._host(alias, user, port, values)
        jumps, command = _text(values, "proxyjump", "none"), _text(values, "proxycommand", "none")
        if jumps.lower() != "none" and ("proxycommand" not in values or _jump_stands_first(self._options, values)):
            first, *further = _jumps(jumps, host, self.me)
            way = self._way(first.alias, first.user, first.port, (*visited, alias))
            return (*way, *(self._host(*hop, self._values(hop.alias, hop.user)) for hop in further), host)
        if command.lower() != "none":
            return (replace(host, proxy_command=expand_tokens(command, host, self.me)),)
        return (host,)

    def _values(self, alias: str, user: str) -> dict[str, list[ConfigOption]]:
        return first_values(self._options, lambda first: self._facts(alias, user, first))

    def _facts(self, alias: str, user: str, first: Mapping[str, ConfigOption]) -> dict[str, str]:
        hostname = first["hostname"].words[0].replace("%h", alias) if "hostname" in first else alias
        login = user or (first["user"].words[0] if "user" in first else self.me.user)
        return {"host": hostname, "originalhost": alias, "user": login, "localuser": self.me.user}

    def _host(self, alias: str, user: str, port: int | None, values: Mapping[str, list[ConfigOption]]) -> Host:
        hostname = _text(values, "hostname", "%h").replace("%h", alias).replace("%%", "%")
        user = user or _text(values, "user", self.me.user)
        for label, name in (("name", alias), ("HostName", hostname), ("User", user)):
            if not _SAFE.fullmatch(name) or name.startswith("-"):
                raise ConfigError(f"{label} {name!r} is no name that can be connected to; write letters, digits, `.`, `-` and `_`")
        bare = Host(alias, hostname, user, port or _number(values, "port", 22, 65535))
        named_keys = self._paths(values, "identityfile", bare)
        trusted = self._known_hosts_paths(values, "userknownhostsfile", bare) or self._own("known_hosts", "known_hosts2")
        trusted += self._known_hosts_paths(values, "globalknownhostsfile", bare) or tuple(
            self.system / name for name in ("ssh_known_hosts", "ssh_known_hosts2")
        )
        revoked = self._paths(values, "revokedhostkeys", bare)
        return Host(
            alias,
            hostname,
            user,
            bare.port,
            identity_files=named_keys or (() if "identityfile" in values else self._own(*DEFAULT_KEYS)),
            named_keys=bool(named_keys),
            certificate_files=self._paths(values, "certificatefile", bare),
            identities_only=_text(values, "identitiesonly", "no").lower() in ("yes", "true"),
            agent=self._agent(values, bare),
            known_hosts=tuple(path for path in trusted if path != Path(os.devnull)),
            revoked_keys=revoked[0] if revoked else None,
            host_key_alias=_text(values, "hostkeyalias", ""),
            connect_timeout_s=_number(values, "connecttimeout", 0, 86400) or None,
            keepalive_s=_number(values, "serveraliveinterval", 0, 86400) or None,
        )

    def _own(self, *names: str) -> tuple[Path, ...]:
        return tuple(self.me.home / ".ssh" / name for name in names)

    def _paths(self, values: Mapping[str, list[ConfigOption]], key: str, host: Host) -> tuple[Path, ...]:
        words = [option.words[0] for option in values.get(key, ())]
        return tuple(dict.fromkeys(self._path(word, host) for word in words if word.lower() != "none"))

    def _known_hosts_paths(self, values: Mapping[str, list[ConfigOption]], key: str, host: Host) -> tuple[Path, ...]:
        words = values[key][0].words if key in values else ()
        return tuple(Path(os.devnull) if word.lower() == "none" else self._path(word, host) for word in words)

    def _path(self, word: str, host: Host) -> Path:
        text = expand_tokens(word, host, self.me)
        return self.me.home / text[2:] if text.startswith("~/") else Path(text)

    def _agent(self, values: Mapping[str, list[ConfigOption]], host: Host) -> str:
        word = _text(values, "identityagent", "SSH_AUTH_SOCK")
        if word.lower() == "none":
            return ""
        if word == "SSH_AUTH_SOCK":
            return self.me.environment.get("SSH_AUTH_SOCK", "")
        if word.startswith("$") and not word.startswith("${"):
            return self.me.environment.get(word[1:], "")
        return str(self._path(word, host))


def stamp(files: Sequence[Path]) -> tuple[object, ...]:
    """Return something that changes when one of the files does; a missing file counts, too."""
    stamps: list[object] = []
    for path in files:
        try:
            status = path.stat()
            stamps.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            stamps.append((path, None))
    return tuple(stamps)


def expand_tokens(text: str, host: Host, me: Me) -> str:
    """Return the text with `%h`, `%r`, `${HOME}` and their like replaced, as ssh_config(5) lists them.

    Raises:
        ConfigError: A token or a variable is unknown.
    """
    machine = me.machine
    tokens = {"%": "%", "h": host.hostname, "n": host.alias, "p": str(host.port), "r": host.user, "u": me.user}
    tokens |= {"d": str(me.home), "i": str(me.uid), "l": machine, "L": machine.partition(".")[0], "j": "", "k": host.known_as}
    tokens["C"] = sha1(f"{machine}{host.hostname}{host.port}{host.user}".encode(), usedforsecurity=False).hexdigest()

    def token(match: re.Match[str]) -> str:
        if match[1] not in tokens:
            raise ConfigError(f"{text!r}: %{match[1]} is unknown; known: {', '.join('%' + name for name in tokens)}")
        return tokens[match[1]]

    def variable(match: re.Match[str]) -> str:
        if match[1] not in me.environment:
            raise ConfigError(f"{text!r}: the environment holds no {match[1]}; set it, or write the path out")
        return me.environment[match[1]]

    return _TOKEN.sub(token, _VARIABLE.sub(variable, text))


def _text(values: Mapping[str, list[ConfigOption]], key: str, default: str) -> str:
    return values[key][0].words[0] if key in values else default


def _number(values: Mapping[str, list[ConfigOption]], key: str, default: int, most: int) -> int:
    if key not in values:
        return default
    option = values[key][0]
    word = option.words[0]
    if word.lower() == "none":
        return default
    if not word.isdecimal() or int(word) > most:
        raise ConfigError(f"{option.location}: {key} {word!r} must be a whole number up to {most}")
    return int(word)


def _jump_stands_first(options: Sequence[ConfigOption], values: Mapping[str, list[ConfigOption]]) -> bool:
    """Return whether ProxyJump stands before ProxyCommand: the first of the two counts."""
    jump, command = values["proxyjump"][0], values["proxycommand"][0]
    return next(option for option in options if option is jump or option is command) is jump


def _jumps(text: str, host: Host, me: Me) -> list[_Hop]:
    hops = []
    for word in expand_tokens(text, host, me).split(","):
        match = _JUMP.fullmatch(word.strip())
        if match is None:
            raise ConfigError(f"ProxyJump {text!r}: {word.strip()!r} is no [user@]host[:port]")
        hops.append(_Hop(match["host"].strip("[]"), match["user"] or "", int(match["port"]) if match["port"] else None))
    return hops
