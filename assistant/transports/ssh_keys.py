"""Whose host key is trusted, and which of our keys are shown to a host.

Trusted are the known_hosts files as sshd(8) describes them, with hashed names, `@cert-authority` and `@revoked`. A key is never
added here. What is unknown or different is refused, with the way to mend it.

Our keys come in OpenSSH's order: the agent's that are named, the agent's others, then those in files. Nothing is ever asked: a key
with a passphrase that no agent holds is passed over, and the answer says so.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import ConfigError
from assistant.ports import Failure
from assistant.transports.ssh_hosts import Host, matches, stamp

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate
    from paramiko.agent import AgentKey
    from paramiko.pkey import PKey

logger = logging.getLogger(__name__)

CERTIFICATE = "-cert-v01@openssh.com"
"""How the name of a certified key's type ends."""


@dataclass(frozen=True, slots=True)
class KnownHostEntry:
    """One line of a known_hosts file."""

    marker: str
    """`@cert-authority`, `@revoked` or empty."""
    names: tuple[str, ...]
    salt: bytes
    digest: bytes
    """Of the name, where the file hides names; else empty, like `salt`."""
    kind: str
    key: bytes
    location: str

    def speaks_of(self, name: str) -> bool:
        """Return whether the line is about a host of this name."""
        if self.digest:
            return hmac.compare_digest(hmac.digest(self.salt, name.encode(), "sha1"), self.digest)
        return matches(self.names, name)


class KnownHostRefusal(NamedTuple):
    """Why a host key is not trusted."""

    failure: Failure
    why: str


class KnownHosts:
    """The entries of some known_hosts files; made once and shared, for reading them is what costs."""

    def __init__(self, entries: Iterable[KnownHostEntry], files: Sequence[Path] = ()) -> None:
        """Trust these entries."""
        self.files = tuple(files)
        self._plain: dict[str, list[KnownHostEntry]] = {}
        self._patterned: list[KnownHostEntry] = []
        self._by_name: dict[str, list[KnownHostEntry]] = {}
        for entry in entries:
            if entry.digest or any(sign in name for name in entry.names for sign in "*?!"):
                self._patterned.append(entry)
            else:
                for name in entry.names:
                    self._plain.setdefault(name, []).append(entry)

    def about(self, name: str) -> list[KnownHostEntry]:
        """Return the entries that speak of a host, as it is written in the files: `node03`, `[node03]:2222`."""
        if name not in self._by_name:
            self._by_name[name] = [*self._plain.get(name, ()), *(entry for entry in self._patterned if entry.speaks_of(name))]
        return self._by_name[name]

    def kinds(self, host: Host) -> list[str]:
        """Return the types of key that would be trusted of a host, so that it is asked for one of these first."""
        entries = self._entries(host)
        certified = [entry for entry in entries if entry.marker == "@cert-authority"]
        return [CERTIFICATE, *_kinds(entries)] if certified else _kinds(entries)

    def refusal(self, host: Host, kind: str, key: bytes, *, now: datetime) -> KnownHostRefusal | None:
        """Return why a host's key must not be trusted, None when it may.

        Args:
            host: Whose key it is meant to be.
            kind: Type of the key: `ssh-ed25519`, `ssh-ed25519-cert-v01@openssh.com`.
            key: The key or the certificate as it went over the wire.
            now: For the dates in certificates.

        Raises:
            ConfigError: The list of revoked keys cannot be read.
        """
        entries = self._entries(host)
        revoked = [entry for entry in [*entries, *_read_revoked(host.revoked_keys)] if entry.marker == "@revoked"]
        if kind.endswith(CERTIFICATE):
            return _certificate_refusal(host, kind, key, entries, revoked, now)
        for entry in revoked:
            if entry.key == key:
                return _revoked(host, entry)
        plain = [entry for entry in entries if not entry.marker]
        if any(entry.key == key for entry in plain):
            return None
        rivals = [entry for entry in plain if entry.kind == kind]
        # without an entry for its port, a host may pass by its bare name, but nobody is accused on that ground
        if rivals and self.about(host.known_as):
            return KnownHostRefusal(Failure.KEY_MISMATCH, _changed(host, kind, key, rivals[0]))
        return KnownHostRefusal(Failure.UNKNOWN_KEY, _unknown(host, kind, key, plain))

    def _entries(self, host: Host) -> list[KnownHostEntry]:
        return self.about(host.known_as) or self.about((host.host_key_alias or host.hostname).lower())


class KnownHostsFiles:
    """Reads known_hosts files once, and again when one changes."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, ...], tuple[tuple[object, ...], KnownHosts]] = {}
        self._lock = Lock()

    def of(self, files: tuple[Path, ...]) -> KnownHosts:
        """Return what these files hold now; a missing file holds nothing."""
        now = stamp(files)
        with self._lock:  # or each of many new connections would read them
            cached = self._read.get(files)
            if cached is None or cached[0] != now:
                cached = now, KnownHosts((entry for path in files for entry in read_known_hosts(path)), files)
                self._read[files] = cached
            return cached[1]


def read_known_hosts(path: Path) -> list[KnownHostEntry]:
    """Return the entries of a file; lines that make no sense are passed over, as OpenSSH does."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        logger.debug("%s is not read: %s", path, error.strerror)
        return []
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        entry = _entry(words, f"{path}:{number}")
        if entry is None:
            logger.debug("%s:%d is no entry of known_hosts", path, number)
        else:
            entries.append(entry)
    return entries


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(sha256(key).digest()).decode().rstrip("=")


def _entry(words: list[str], location: str) -> KnownHostEntry | None:
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or marker not in ("", "@cert-authority", "@revoked"):
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
        if words[0].startswith("|"):
            _, version, salt, digest = words[0].split("|")
            if version != "1":
                return None
            return KnownHostEntry(marker, (), base64.b64decode(salt), base64.b64decode(digest), words[1], key, location)
    except (binascii.Error, ValueError):
        return None
    return KnownHostEntry(marker, tuple(words[0].lower().split(",")), b"", b"", words[1], key, location)


def _read_revoked(path: Path | None) -> list[KnownHostEntry]:
    """Return the keys of a RevokedHostKeys file, one a line.

    Raises:
        ConfigError: It cannot be read; then no host may be trusted.
    """
    if path is None:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"RevokedHostKeys {path} cannot be read ({error}); it must be text, one public key a line, no KRL"
        ) from error
    revoked = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not line.startswith("#"):
            entry = _entry(["@revoked", "*", *words], f"{path}:{number}")
            if entry is None:
                raise ConfigError(f"RevokedHostKeys {path}:{number} is no public key; a KRL is not understood")
            revoked.append(entry)
    return revoked


def _kinds(entries: Iterable[KnownHostEntry]) -> list[str]:
    return list(dict.fromkeys(entry.kind for entry in entries if not entry.marker))


def _certificate_refusal(
    host: Host, kind: str, key: bytes, entries: Sequence[KnownHostEntry], revoked: Sequence[KnownHostEntry], now: datetime
) -> KnownHostRefusal | None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_identity
    from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate

    def blob(public: object) -> bytes:
        text: bytes = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)  # type: ignore[attr-defined]
        return base64.b64decode(text.split()[1])

    try:
        certificate = load_ssh_public_identity(kind.encode() + b" " + base64.b64encode(key))
        if not isinstance(certificate, SSHCertificate):
            raise ValueError("it is a plain key")
        certificate.verify_cert_signature()
    except (ValueError, InvalidSignature) as error:
        return KnownHostRefusal(
            Failure.KEY_MISMATCH, f"the host certificate of {host.label} cannot be read or is not signed by its own signer: {error}"
        )
    signer, own = blob(certificate.signature_key()), blob(certificate.public_key())
    for entry in revoked:
        if entry.key in (signer, own):
            return _revoked(host, entry)
    if any(not entry.marker and entry.key == own for entry in entries):
        return None  # the key itself is known: who signed it does not matter
    if not any(entry.marker == "@cert-authority" and entry.key == signer for entry in entries):
        files = _files(host)
        return KnownHostRefusal(
            Failure.UNKNOWN_KEY,
            f"the host certificate of {host.label} is signed by {fingerprint(signer)}, which no @cert-authority line for "
            f"{host.known_as} in {files} names; ask who runs the authority, then add its line",
        )
    problem = _problem(certificate, (host.host_key_alias or host.hostname).lower(), now)
    if problem:
        return KnownHostRefusal(Failure.KEY_MISMATCH, f"the host certificate of {host.label} {problem}; have it signed anew")
    return None


def _problem(certificate: SSHCertificate, name: str, now: datetime) -> str:
    """Return what is wrong with a certificate whose signer is trusted, empty when nothing is."""
    from cryptography.hazmat.primitives.serialization import SSHCertificateType

    principals = [principal.decode("utf-8", "replace").lower() for principal in certificate.valid_principals]
    if certificate.type is not SSHCertificateType.HOST:
        return "is one for users, not for hosts"
    if not any(matches((principal,), name) for principal in principals):
        return f"is for {', '.join(principals) or 'nobody'}, not for {name}"
    if now.timestamp() < certificate.valid_after:
        return "is not valid yet (are the clocks right?)"
    if now.timestamp() >= certificate.valid_before:
        return f"has run out on {datetime.fromtimestamp(certificate.valid_before, UTC):%Y-%m-%d %H:%M} UTC"
    if certificate.critical_options:
        return f"has critical options that are unknown here: {sorted(certificate.critical_options)}"
    return ""


def _revoked(host: Host, entry: KnownHostEntry) -> KnownHostRefusal:
    return KnownHostRefusal(
        Failure.KEY_REVOKED,
        f"{host.label} shows a key that {entry.location} revokes ({entry.kind} {fingerprint(entry.key)}): do not trust this host "
        "until its key has been replaced",
    )


def _files(host: Host) -> str:
    return ", ".join(str(path) for path in host.known_hosts) or "any known_hosts file"


def _add(host: Host, kind: str) -> str:
    port = f"-p {host.port} " if host.port != 22 else ""
    target = host.known_hosts[0] if host.known_hosts else "~/.ssh/known_hosts"
    return f"ssh-keyscan -t {kind.removeprefix('ssh-')} {port}{host.hostname} >> {target}"


def _unknown(host: Host, kind: str, key: bytes, other_entries: Sequence[KnownHostEntry]) -> str:
    also = f" (known is only {', '.join(_kinds(other_entries))}, {other_entries[0].location})" if other_entries else ""
    return (
        f"the host key of {host.label} is not known{also}: {kind} {fingerprint(key)}, looked for "
        f"{host.known_as} in {_files(host)}; "
        "compare it on the node (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then add it: " + _add(host, kind)
    )


def _changed(host: Host, kind: str, key: bytes, entry: KnownHostEntry) -> str:
    path = entry.location.rpartition(":")[0]
    return (
        f"the host key of {host.label} is not the one of {entry.location}: "
        f"{kind} {fingerprint(key)}, not {fingerprint(entry.key)}; "
        "either the node was installed anew or another machine answers in its place. When that is certain: "
        f"ssh-keygen -R '{host.known_as}' -f {path}, then {_add(host, kind)}"
    )


CERTIFICATE_SUFFIX = "-cert.pub"
"""What follows a key's name in the name of its certificate's file."""
AGENT_ANSWERS_WITHIN_S = 5.0
"""An agent that asks its owner to confirm may wait for ever."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key to log in with, and what to call it in a message."""

    key: PKey
    label: str


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The content of a private key file: the key, or why it is passed over."""

    key: PKey | None
    problem: str


class Identities:
    """The private keys of this account; files are read once, agents each time."""

    def __init__(self) -> None:
        self._files: dict[tuple[Path, Path | None], tuple[object, _Loaded]] = {}
        self._lock = Lock()

    @contextmanager
    def offered(self, host: Host) -> Iterator[tuple[list[Identity], list[str]]]:
        """Give the keys for a host, and why others cannot be used; the agent stays open meanwhile."""
        with _agent_keys(host.agent) as agent_keys:
            in_files, problems = self._in_files(host)
            configured = {bytes(identity.key.asbytes()) for identity in in_files} | set(_public_halves(host))
            agents = [Identity(key, f"{key.get_name()} {fingerprint(_blob(key))} (agent)") for key in agent_keys]
            first = [identity for identity in agents if _blob(identity.key) in configured or _is_certificate(identity.key)]
            agent_others = [] if host.identities_only else [identity for identity in agents if identity not in first]
            if host.identities_only:
                first = [identity for identity in first if _blob(identity.key) in configured]
            offered_blobs = {_blob(identity.key) for identity in first + agent_others}
            yield first + agent_others + [identity for identity in in_files if _blob(identity.key) not in offered_blobs], problems

    def _in_files(self, host: Host) -> tuple[list[Identity], list[str]]:
        identities, problems = [], []
        for path in host.identity_files:
            certificates = [None, Path(f"{path}{CERTIFICATE_SUFFIX}"), *host.certificate_files]
            for certificate in reversed(certificates):  # a certificate goes before the bare key
                loaded = self._load(path, certificate)
                if loaded.key is not None:
                    how = f"{path}, {certificate.name}" if certificate else str(path)
                    identities.append(Identity(loaded.key, f"{loaded.key.get_name()} {fingerprint(loaded.key.asbytes())} ({how})"))
                elif certificate is None and loaded.problem and (host.named_keys or "missing" not in loaded.problem):
                    problems.append(loaded.problem)
        return list({_blob(identity.key): identity for identity in identities}.values()), problems

    def _load(self, path: Path, certificate: Path | None) -> _Loaded:
        now = stamp([path, *([certificate] if certificate else [])])
        with self._lock:
            cached = self._files.get((path, certificate))
            if cached is None or cached[0] != now:
                cached = now, _load(path, certificate)
                self._files[path, certificate] = cached
            return cached[1]


def _load(path: Path, certificate: Path | None) -> _Loaded:
    from paramiko.pkey import PKey, UnknownKeyType
    from paramiko.ssh_exception import SSHException

    if certificate is not None and not certificate.is_file():
        return _Loaded(None, "")
    try:
        key = PKey.from_path(path)
        key.public_blob = None  # paramiko adds a certificate that lies beside: each is offered by itself here
        if certificate is not None:
            key.load_certificate(str(certificate))
    except FileNotFoundError:
        return _Loaded(None, f"{path} is missing")
    except TypeError:
        return _Loaded(None, f"{path} is locked by a passphrase: ssh-add it, for nobody is asked here")
    except (OSError, ValueError, SSHException, UnknownKeyType) as error:
        if any(word in str(error).lower() for word in ("password", "passphrase", "encrypted")):
            return _Loaded(None, f"{path} is locked by a passphrase: ssh-add it, for nobody is asked here")
        return _Loaded(None, "" if certificate else f"{path} cannot be used: {error}")
    return _Loaded(key, "")


@contextmanager
def _agent_keys(path: str) -> Iterator[list[AgentKey]]:
    if not path:
        yield []
        return
    from paramiko.agent import AgentSSH
    from paramiko.ssh_exception import SSHException

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        agent = AgentSSH()
        try:
            connection.settimeout(AGENT_ANSWERS_WITHIN_S)
            connection.connect(path)
            agent._connect(connection)
            keys = list(agent.get_keys())
        except (OSError, SSHException, ValueError) as error:
            logger.debug("agent %s gives no keys: %s", path, error)
            keys = []
        yield keys


def _public_halves(host: Host) -> Iterator[bytes]:
    """Yield the public keys beside the named files: the agent may hold a private half that lies in no file."""
    from paramiko.pkey import PublicBlob

    for path in host.identity_files if host.named_keys else ():
        for public in (Path(f"{path}.pub"), path):
            try:
                text = public.read_text(encoding="ascii")
                if not text.startswith("-----"):
                    yield PublicBlob.from_string(text).key_blob
            except (OSError, ValueError):
                continue


def _blob(key: PKey) -> bytes:
    certified = getattr(key, "public_blob", None)
    if certified is not None:
        return bytes(certified.key_blob)
    agent_blob = getattr(key, "blob", None)  # an agent's key is what the agent calls it
    return bytes(agent_blob) if agent_blob is not None else bytes(key.asbytes())


def _is_certificate(key: PKey) -> bool:
    return str(key.get_name()).endswith(CERTIFICATE)
