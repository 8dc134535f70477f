"""Commands on nodes over SSH, as the account's own `ssh` would run them: its ssh_config, its agent, its known_hosts.

Nobody is ever asked for anything, and no host key is ever taken on trust. One connection a node is kept and used again.
"""

from __future__ import annotations

import logging
import shlex
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assistant.config import SshSettings
from assistant.errors import ConfigError
from assistant.ports import Failure, Reply
from assistant.transports.output import OutputLimits, OutputRoom
from assistant.transports.ssh_fanout import Crew

if TYPE_CHECKING:
    from assistant.transports.ssh_command import Finished
    from assistant.transports.ssh_hosts import Me
    from assistant.transports.ssh_pool import Pool

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""A node that has not answered by then no longer counts towards the fan-out."""
GRACE_S = 2.0
"""Beyond its deadline, for a node whose connection is being taken down; after that it is left behind."""


class SshTransport:
    """Runs commands on nodes over SSH. Close it, or use it in a `with`; the end of the program closes it, too."""

    name = "ssh"

    def __init__(self, settings: SshSettings | None = None, *, me: Me | None = None) -> None:
        """Reach nodes as the settings say; nothing is read or opened before the first command."""
        self.settings = settings or SshSettings()
        self._me = me
        self._hosts: Any = None
        self._pool: Pool | None = None
        self._crew = Crew()
        self._preparing = threading.Lock()

    def __enter__(self) -> SshTransport:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Run one command on every node side by side and return a reply for each; never raises for a node.

        A missing program is a reply with status 127. A node that was not reached says in `failure` why: none of the reasons
        means that it is unhealthy. A command that did not end in time or said too much is ended on the node as far as
        the connection still carries.

        Args:
            nodes: Names as the scheduler calls them; a name twice is asked once.
            command: Program and arguments, quoted for the account's shell, which runs them with LC_ALL=C.
            timeout_s: For each node, from connecting to the end of the command.
        """
        names = list(dict.fromkeys(nodes))
        if not names:
            return {}
        try:
            self._prepare()
        except ConfigError as error:
            return {name: _not_reached(name, Failure.CONFIG, str(error)) for name in names}
        typed = quoted(command)
        logger.debug("nodes=%d command=%s", len(names), command[0])
        room = OutputRoom(OutputLimits(self.settings.output_limit_bytes, self.settings.output_total_bytes), len(names))
        replies = self._crew.side_by_side(
            names,
            lambda node: self._ask(node, typed, timeout_s, room),
            fan_out=self.settings.fan_out,
            patience_s=PATIENCE_S,
            give_up_s=timeout_s + GRACE_S,
        )
        late = f"no answer within {timeout_s:g} s, not even to looking up its name or to ending the attempt"
        return {name: replies.get(name) or _not_reached(name, Failure.SILENT, late) for name in names}

    def close(self) -> None:
        """Close all connections; the next command opens new ones."""
        if self._pool is not None:
            self._pool.close()
        self._crew.close()

    def _prepare(self) -> None:
        """Read the settings of ssh anew where they have changed, and make the pool."""
        from assistant.transports.ssh_hosts import Hosts
        from assistant.transports.ssh_pool import Pool

        # one thread must not look into what another has made and not yet read
        with self._preparing:
            if self._hosts is None:
                self._hosts = Hosts(self.settings.config, me=self._me)
            self._hosts.refresh()
            if self._pool is None:
                pool = Pool(
                    connect_timeout_s=self.settings.connect_timeout_s,
                    keepalive_s=self.settings.keepalive_s,
                    idle_s=self.settings.idle_close_s,
                )
                weakref.finalize(self, pool.close)
                weakref.finalize(self, self._crew.close)
                self._pool = pool

    def _ask(self, node: str, typed: str, timeout_s: float, room: OutputRoom) -> Reply:
        from assistant.transports.ssh_command import marked
        from assistant.transports.ssh_failures import Deadline, NotReached

        deadline = Deadline(timeout_s)
        pool = self._pool
        if pool is None:
            return _not_reached(node, Failure.CONFIG, "the transport was closed meanwhile")
        try:
            route = self._hosts.route(node)
            line, mark = marked(typed)
            finished = pool.use(route, deadline, lambda connection: connection.run(line, deadline, output=room.place()))
        except NotReached as error:
            logger.debug("node=%s failure=%s %s", node, error.failure, error)
            return _not_reached(node, error.failure, str(error))
        except ConfigError as error:
            return _not_reached(node, Failure.CONFIG, str(error))
        return _reply(node, finished, mark)


def _reply(node: str, finished: Finished, mark: str) -> Reply:
    from assistant.transports.ssh_command import after_mark

    out, err = after_mark(finished.out, mark), finished.err.decode("utf-8", "replace")
    if out is None:
        said = (finished.out.decode("utf-8", "replace") or err).strip()[-200:]
        why = f"the account's shell on {node} did not run the command (forced command, nologin, restricted?); it said: {said!r}"
        return _not_reached(node, Failure.PROTOCOL, why)
    return Reply(node, True, finished.status, out.decode("utf-8", "replace"), err)


def quoted(command: Sequence[str]) -> str:
    """Return a command for a shell, each word standing for itself; the first is never taken for a word of the shell's own."""
    # quoted always: `time` and `if` are programs or arguments here, never syntax
    first = "'" + command[0].replace("'", "'\"'\"'") + "'"
    return " ".join([first, *(shlex.quote(word) for word in command[1:])])


def _not_reached(node: str, failure: Failure, why: str) -> Reply:
    return Reply(node, False, None, "", why, failure=failure)
