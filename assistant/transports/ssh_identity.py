"""Which keys are shown to a host, in OpenSSH's order: the agent's that are named, the agent's others, then those in files.

Nothing is ever asked: a key with a passphrase that no agent holds is passed over, and the answer says so.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from assistant.transports.ssh_hosts import Host, stamp
from assistant.transports.ssh_known import CERTIFICATE, fingerprint

if TYPE_CHECKING:
    from paramiko.agent import AgentKey
    from paramiko.pkey import PKey

logger = logging.getLogger(__name__)

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
    """What a private key file held."""

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
