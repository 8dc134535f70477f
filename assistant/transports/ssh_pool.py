"""Connections that are kept: one a host for as long as it is of use, opened by whoever needs it first.

Jump hosts stand in the same pool, so a thousand nodes behind one share a single connection to it.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock, Thread, Timer
from typing import Any, TypeVar

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from assistant.errors import ConfigError
from assistant.ports import Failure
from assistant.transports.local import Output
from assistant.transports.ssh_command import (
    WINDOW_BYTES,
    Deadline,
    Finished,
    NotForwarded,
    NotReached,
    Proxy,
    Stale,
    Tunnel,
    collect,
    connect,
    ending,
    explained,
    hear_request,
    send_request,
)
from assistant.transports.ssh_hosts import Host
from assistant.transports.ssh_keys import CERTIFICATE, Identities, KnownHosts, KnownHostsFiles

logger = logging.getLogger(__name__)

Route = tuple[Host, ...]
Result = TypeVar("Result")


@dataclass
class _Place:
    """The slot of the pool for one host."""

    lock: Lock = field(default_factory=Lock)
    """Held while it is being opened, so that two do not open two."""
    connection: Connection | None = None


class Pool:
    """The kept connections."""

    def __init__(self, *, connect_timeout_s: float, keepalive_s: float, idle_s: float) -> None:
        """Keep connections until nobody has used them for `idle_s`."""
        self.connect_timeout_s, self.keepalive_s, self.idle_s = connect_timeout_s, keepalive_s, idle_s
        self._places: dict[Route, _Place] = {}
        self._lock = Lock()
        self._identities = Identities()
        self._known_hosts_files = KnownHostsFiles()
        self._sweeper: Timer | None = None

    def use(self, route: Route, deadline: Deadline, work: Callable[[Connection], Result]) -> Result:
        """Return what `work` makes of the connection to a host; a kept one that turns out dead is replaced once.

        Raises:
            NotReached: There is no connection, or `work` said so.
        """
        with self._borrowed(route, deadline) as connection:
            is_reused = not connection.fresh
            try:
                return work(connection)
            except Stale:
                connection.retired = True
                if not is_reused or deadline.passed:
                    raise
        logger.debug("host=%s kept connection is dead, connecting again", route[-1].alias)
        with self._borrowed(route, deadline) as connection:
            return work(connection)

    def close(self) -> None:
        """Close all connections; the pool can be used again afterwards."""
        with self._lock:
            places, self._places = self._places, {}
            sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
        connections = [place.connection for place in places.values() if place.connection is not None]
        for connection in connections:
            connection.hang_up()  # all at once: each then ends by itself, instead of one after the other
        for connection in reversed(connections):
            connection.close()

    @property
    def size(self) -> int:
        """How many connections stand."""
        with self._lock:
            return sum(place.connection is not None and place.connection.alive for place in self._places.values())

    @contextmanager
    def _borrowed(self, route: Route, deadline: Deadline) -> Iterator[Connection]:
        connection = self._get(route, deadline)
        try:
            yield connection
        finally:
            with self._lock:
                connection.users -= 1
                connection.used_at = time.monotonic()
                is_unused = connection.retired and not connection.busy
            if is_unused:
                connection.close()

    def _get(self, route: Route, deadline: Deadline) -> Connection:
        with self._lock:
            place = self._places.setdefault(route, _Place())
        if not place.lock.acquire(timeout=max(deadline.left_s(), 0.001)):
            raise NotReached(Failure.SILENT, f"{route[-1].label} is being connected to by another call, which got no answer yet")
        try:
            connection = place.connection
            if connection is None or not connection.alive:
                if connection is not None and not connection.busy:
                    connection.close()
                place.connection = connection = self._open(route, deadline)
            with self._lock:
                connection.users += 1
            self._sweep_later()
            return connection
        finally:
            place.lock.release()

    def _open(self, route: Route, deadline: Deadline) -> Connection:
        host = route[-1]
        within = deadline.sooner(host.connect_timeout_s or self.connect_timeout_s)
        known_hosts = self._known_hosts_files.of(host.known_hosts)
        try:
            stream = connect(host, within) if len(route) == 1 else self._through(route[:-1], host, within)
            return Connection.open(host, stream, known_hosts, self._identities, within, keepalive_s=self.keepalive_s)
        except (OSError, ConfigError) as error:
            raise explained(error, host.label, "connect to") from error

    def _through(self, way: Route, host: Host, deadline: Deadline) -> Any:
        try:
            return self.use(way, deadline, lambda jump: jump.tunnel(host, deadline))
        except NotForwarded:
            raise
        except NotReached as error:
            raise NotReached(Failure.PROXY, f"the way to {host.label} leads through {way[-1].label}: {error}") from error

    def _sweep_later(self) -> None:
        with self._lock:
            if self._sweeper is None:
                self._sweeper = Timer(self.idle_s, self._sweep)
                self._sweeper.daemon = True
                self._sweeper.start()

    def _sweep(self) -> None:
        """Close what nobody has used for a while."""
        before = time.monotonic() - self.idle_s
        with self._lock:
            self._sweeper = None
            idle = [
                (route, place.connection)
                for route, place in self._places.items()
                if place.connection is not None and not place.connection.busy and place.connection.used_at <= before
            ]
            for _, connection in idle:
                connection.retired = True
            live_count = len(self._places) - len(idle)
        for _, connection in idle:
            connection.close()
        if live_count:
            self._sweep_later()


# One SSH connection: open, verify the host, log in, run commands. With `ssh_keys`, all that speaks paramiko.
#
# Every wait has an end: paramiko's own calls that may block for ever (`exec_command`, `recv_exit_status`) are not used.

LOG = "assistant.transports.ssh.paramiko"
"""Where paramiko's own words go; it would print tracebacks to the screen for each dead host."""
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
"""Fastest first: half as much time again for a long log as with the order of paramiko, and no CBC."""
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
WAKE_S = 1.0
"""How often a connection's thread looks whether it is to end; paramiko's 0.1 s costs CPU with a thousand kept connections."""
STALE_AFTER_S = 5.0
"""How long a kept connection may take to give a channel before another connection is tried."""

logging.getLogger(LOG).addHandler(logging.NullHandler())
if logging.getLogger(LOG).level == logging.NOTSET:
    logging.getLogger(LOG).setLevel(logging.CRITICAL + 1)


class _Transport(paramiko.Transport):  # type: ignore[misc]
    """Asks for the kinds of host key that can be verified, and hears by which signal a command ended."""

    kinds: tuple[str, ...] = ()

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        plain = self._preferred_keys
        all_kinds = (*plain, *(f"{kind}{CERTIFICATE}" for kind in plain))
        certified = [kind for kind in all_kinds if CERTIFICATE in self.kinds and kind.endswith(CERTIFICATE)]
        known_kinds = [kind for kind in all_kinds if _as_key_type(kind) in self.kinds]
        return tuple(dict.fromkeys([*certified, *known_kinds, *all_kinds]))


def _as_key_type(algorithm: str) -> str:
    """Return the type of key behind an algorithm: RSA keys sign under several names."""
    return "ssh-rsa" if algorithm in ("rsa-sha2-256", "rsa-sha2-512") else algorithm


_Transport._channel_handler_table = {**paramiko.Transport._channel_handler_table, MSG_CHANNEL_REQUEST: hear_request}


class Connection:
    """A connection to one host, logged in."""

    def __init__(self, host: Host, transport: _Transport, stream: Any, proxy: Proxy | None) -> None:
        self.host = host
        self.users = 0
        """How many commands and tunnels use it now."""
        self.retired = False
        """Nobody new gets it; it is closed with its last user."""
        self.used_at = time.monotonic()
        self.fresh = True
        """Nothing has been asked of it yet."""
        self._transport, self._stream, self._proxy = transport, stream, proxy
        self._tunnels: list[paramiko.Channel] = []

    @classmethod
    def open(
        cls, host: Host, stream: Any, known_hosts: KnownHosts, identities: Identities, deadline: Deadline, *, keepalive_s: float
    ) -> Connection:
        """Return a connection over a stream, which belongs to it from now on.

        Raises:
            NotReached: Nobody answers, the host is not the one it should be, or does not let us in.
            ConfigError: A list of revoked keys cannot be read.
        """
        proxy = stream if isinstance(stream, Proxy) else None
        transport = None
        try:
            transport = _Transport(proxy.socket if proxy else stream)
            _prepare(transport, known_hosts.kinds(host), deadline)
            _greet(transport, host, deadline)
            _verify(transport, host, known_hosts)
            _log_in(transport, host, identities, deadline)
            if host.keepalive_s or keepalive_s:
                transport.set_keepalive(host.keepalive_s or keepalive_s)
            return cls(host, transport, stream, proxy)
        except BaseException as error:
            proxy_output = proxy.last_words() if proxy else ""
            _close(transport, stream)
            if proxy and isinstance(error, NotReached) and error.failure in (Failure.PROTOCOL, Failure.LOST, Failure.SILENT):
                raise NotReached(
                    Failure.PROXY, f"ProxyCommand of {host.label} gives no connection: {proxy_output or error}"
                ) from error
            raise

    @property
    def alive(self) -> bool:
        """Whether it stands, as far as this side knows."""
        return bool(self._transport.is_active()) and not self.retired

    @property
    def busy(self) -> bool:
        """Whether a command or another connection runs over it."""
        return self.users > 0 or any(not tunnel.closed for tunnel in self._tunnels)

    def tunnel(self, target: Host, deadline: Deadline) -> Any:
        """Return a stream through this host to another one.

        Raises:
            Stale: This connection is dead; nothing has happened yet.
            NotReached: The other host cannot be reached from here.
        """
        stream = Tunnel(self._channel("direct-tcpip", deadline, target=target, window_size=None))
        self._tunnels = [*(tunnel for tunnel in self._tunnels if not tunnel.closed), stream]
        return stream

    def run(self, command: str, deadline: Deadline, *, output: Output) -> Finished:
        """Run a command in the account's shell and return what it left.

        Raises:
            Stale: This connection is dead; the command was not sent.
            NotReached: The command did not end in time, said too much or the connection broke.
        """
        channel = self._channel("session", deadline, window_size=WINDOW_BYTES)
        try:
            send_request(channel, "exec", command, reply=True)
            channel.shutdown_write()
            finished = collect(channel, self.host, deadline, output)
        except NotReached as error:
            output.drop()
            self._end(channel, error.output)
            raise
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise NotReached(Failure.LOST, f"the connection to {self.host.label} broke while the command ran: {error}") from error
        finally:
            with suppress(OSError, EOFError, paramiko.SSHException):
                channel.close()
        return finished

    def hang_up(self) -> None:
        """Cut the line, so that everybody who waits for it wakes; `close` cleans up."""
        with suppress(OSError, EOFError):
            (self._proxy.socket if self._proxy else self._stream).shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and everything on it."""
        self.retired = True
        self.hang_up()
        _close(self._transport, self._stream)

    def _channel(self, kind: str, deadline: Deadline, *, window_size: int | None, target: Host | None = None) -> paramiko.Channel:
        fresh, self.fresh = self.fresh, False
        wait = deadline if fresh else deadline.sooner(max(deadline.left_s() / 2, 0.001)).sooner(STALE_AFTER_S)
        addresses = {"dest_addr": (target.hostname, target.port), "src_addr": ("127.0.0.1", 0)} if target else {}
        try:
            return self._transport.open_channel(kind, timeout=wait.left_s(), window_size=window_size, **addresses)
        except paramiko.ChannelException as error:
            if target:
                raise NotForwarded(
                    Failure.UNREACHABLE,
                    f"{self.host.label} cannot reach {target.label}: {error.text}; AllowTcpForwarding, or a dead host",
                ) from error
            raise Stale(Failure.LOST, f"{self.host.label} opens no further session on this connection: {error.text}") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            silent = self._transport.is_active()
            failure = Failure.SILENT if silent else Failure.LOST
            why = (
                f"gave no answer within {wait.seconds:.1f} s: it, its sshd or the network hangs" if silent else f"hung up: {error}"
            )
            raise Stale(failure, f"{self.host.label} {why}") from error

    def _end(self, channel: paramiko.Channel, output: bytes) -> None:
        """Ask for the end of a command that is given up; where nothing gets through, it lives until its node is back."""
        with suppress(OSError, EOFError, paramiko.SSHException):
            send_request(channel, "signal", "KILL", reply=False)
        kill = ending(output)
        if kill:
            # sshd takes no signals for root; nobody waits for this second way, which may hang as the first
            Thread(target=self._end_by_kill, args=(kill,), name="ssh-kill", daemon=True).start()

    def _end_by_kill(self, kill: str) -> None:
        with suppress(NotReached, OSError, EOFError, paramiko.SSHException):
            channel = self._channel("session", Deadline(STALE_AFTER_S), window_size=None)
            send_request(channel, "exec", kill, reply=True)
            channel.status_event.wait(STALE_AFTER_S)
            channel.close()


def _prepare(transport: _Transport, kinds: list[str], deadline: Deadline) -> None:
    transport.kinds = tuple(kinds)
    transport.set_log_channel(LOG)
    options = transport.get_security_options()
    options.ciphers, options.digests = CIPHERS, MACS
    transport.sock.settimeout(WAKE_S)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = max(deadline.left_s(), 0.001)
    transport.clear_to_send_timeout = 10.0


def _greet(transport: _Transport, host: Host, deadline: Deadline) -> None:
    try:
        transport.start_client(timeout=deadline.left_s())
    except (OSError, EOFError, paramiko.SSHException) as error:
        if not deadline.passed:
            raise explained(error, host.label, "speak SSH with") from error
    if not transport.initial_kex_done:
        raise NotReached(
            Failure.SILENT,
            f"{host.label} took the connection, but said nothing within {deadline.seconds:.1f} s: the machine or its sshd hangs",
        )


def _verify(transport: _Transport, host: Host, known_hosts: KnownHosts) -> None:
    key = transport.get_remote_server_key()
    certificate = key.public_blob
    kind, blob = (certificate.key_type, certificate.key_blob) if certificate else (key.get_name(), key.asbytes())
    refusal = known_hosts.refusal(host, kind, blob, now=datetime.now(UTC))
    if refusal:
        raise NotReached(*refusal)


def _log_in(transport: _Transport, host: Host, identities: Identities, deadline: Deadline) -> None:
    tried: list[str] = []
    end = ""
    with identities.offered(host) as (offered, problems):
        for identity in offered:
            transport.auth_timeout = max(deadline.left_s(), 0.001)
            try:
                if not transport.auth_publickey(host.user, identity.key):
                    return
                end = "; it wants a second factor, for which nobody is there"
                tried.append(identity.label)
                break
            except paramiko.BadAuthenticationType as error:
                end = f"; it takes only {', '.join(error.allowed_types)}, and nobody types a password here"
                break
            except paramiko.AuthenticationException:
                tried.append(identity.label)
                if not transport.is_active():
                    end = "; it hung up: too many keys? name one by IdentityFile with IdentitiesOnly yes"
                    break
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise explained(error, host.label, "log in to") from error
            if deadline.passed:
                raise NotReached(Failure.SILENT, f"{host.label} did not say within {deadline.seconds:.1f} s whether it lets us in")
    keys = f"refused {', '.join(tried)}" if tried else "no key to show"
    hints = "".join(f"; {problem}" for problem in problems)
    raise NotReached(
        Failure.AUTHENTICATION,
        f"{host.label} does not let {host.user} in: {keys}{end}{hints}; check User in ssh_config and authorized_keys there",
    )


def _close(transport: paramiko.Transport | None, stream: Any) -> None:
    with suppress(OSError, EOFError):
        stream.shutdown(socket.SHUT_RDWR)
    if transport is not None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            transport.close()
            transport.join(WAKE_S)
    stream.close()
