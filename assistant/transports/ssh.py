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
from assistant.redact import tail_of
from assistant.transports.local import OutputLimits, OutputRoom

if TYPE_CHECKING:
    from assistant.transports.ssh_command import Finished
    from assistant.transports.ssh_hosts import Me
    from assistant.transports.ssh_pool import Pool
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

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
        self._crew = SshCrew()
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
        from assistant.transports.ssh_command import Deadline, NotReached, marked

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
        excerpt = tail_of((finished.out.decode("utf-8", "replace") or err).strip(), 200)
        why = f"the account's shell on {node} did not run the command (forced command, nologin, restricted?); it said: {excerpt!r}"
        return _not_reached(node, Failure.PROTOCOL, why)
    return Reply(node, True, finished.status, out.decode("utf-8", "replace"), err)


def quoted(command: Sequence[str]) -> str:
    """Return a command for a shell, each word standing for itself; the first is never taken for a word of the shell's own."""
    # quoted always: `time` and `if` are programs or arguments here, never syntax
    first = "'" + command[0].replace("'", "'\"'\"'") + "'"
    return " ".join([first, *(shlex.quote(word) for word in command[1:])])


def _not_reached(node: str, failure: Failure, why: str) -> Reply:
    return Reply(node, False, None, "", why, failure=failure)


# Many nodes side by side, so that nobody waits for a dead one.
#
# At most `fan_out` nodes are asked at once. One that has said nothing for `patience_s` gives its place to the next, so a row of
# dead
# nodes holds up nobody; and who is not back by `give_up_s` is left behind, even where the system's resolver hangs.

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_THREADS = 1024
"""Beyond this, places are given up no more: threads cost memory."""


class SshCrew:
    """Threads that are kept for the next round: to make one takes longer than to ask a node over a kept connection."""

    def __init__(self, idle_s: float = 30.0) -> None:
        """Let threads go that had nothing to do for `idle_s`."""
        self.idle_s = idle_s
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0

    def side_by_side(
        self, items: Iterable[Item], work: Callable[[Item], Answer], *, fan_out: int, patience_s: float, give_up_s: float
    ) -> dict[Item, Answer]:
        """Return the answer for each item; an item that was given up is missing.

        Args:
            items: Distinct.
            work: Asks one; runs in a thread and must not raise.
            fan_out: How many at once.
            patience_s: After this long an item does not count as one of these any more.
            give_up_s: For each item, from the moment that its work began.
        """
        return _Round(self, items, work, fan_out, patience_s, give_up_s).run()

    def hire(self, task: Callable[[], None]) -> None:
        """Run a task in a thread that is free, or in a new one."""
        with self._lock:
            free = self._idle > 0
            self._idle -= free
        if free:
            self._tasks.put(task)
        else:
            Thread(target=self._serve, args=(task,), name="ssh-fan-out", daemon=True).start()

    def close(self) -> None:
        """Let all threads go that have nothing to do."""
        with self._lock:
            free, self._idle = self._idle, 0
        for _ in range(free):
            self._tasks.put(None)

    def _serve(self, task: Callable[[], None] | None) -> None:
        while task is not None:
            task()
            with self._lock:
                self._idle += 1
            try:
                task = self._tasks.get(timeout=self.idle_s)
            except Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return
                task = self._tasks.get()  # somebody counted on this thread just now


class _Round(Generic[Item, Answer]):
    def __init__(
        self,
        crew: SshCrew,
        items: Iterable[Item],
        work: Callable[[Item], Answer],
        fan_out: int,
        patience_s: float,
        give_up_s: float,
    ) -> None:
        self.crew = crew
        self.work, self.fan_out, self.patience_s, self.give_up_s = work, fan_out, patience_s, give_up_s
        self.waiting = deque(items)
        self.running: dict[Item, float] = {}
        self.answers: dict[Item, Answer] = {}
        self.left_behind: set[Item] = set()
        self.total = len(self.waiting)
        self.threads = 0
        self.changed = Condition()

    def run(self) -> dict[Item, Answer]:
        with self.changed:
            while len(self.answers) + len(self.left_behind) < self.total:
                self._hire()
                self.changed.wait(self._next_look_s())
                self._leave_behind()
            return dict(self.answers)

    def _hire(self) -> None:
        thread_count = min(self.fan_out + self._silent(), len(self.waiting) + len(self.running), MOST_THREADS)
        while self.threads < thread_count:
            self.threads += 1
            self.crew.hire(self._serve)

    def _serve(self) -> None:
        while True:
            with self.changed:
                if not self.waiting or self.threads > max(self.fan_out + self._silent(), 1):
                    self.threads -= 1
                    return
                item = self.waiting.popleft()
                self.running[item] = time.monotonic()
            answer = self.work(item)
            with self.changed:
                if item in self.left_behind:
                    return
                del self.running[item]
                self.answers[item] = answer
                if len(self.answers) + len(self.left_behind) == self.total:
                    self.changed.notify()

    def _silent(self) -> int:
        before = time.monotonic() - self.patience_s
        return sum(began < before for began in self.running.values())

    def _leave_behind(self) -> None:
        before = time.monotonic() - self.give_up_s
        for item in [item for item, began in self.running.items() if began < before]:
            del self.running[item]
            self.left_behind.add(item)
            self.threads -= 1  # the thread is lost to us; it ends with its work

    def _next_look_s(self) -> float:
        now = time.monotonic()
        ends = [began + self.give_up_s for began in self.running.values()]
        if self.waiting:
            ends += [began + self.patience_s for began in self.running.values() if now - began < self.patience_s]
            ends.append(now + self.patience_s)  # for those who have been hired and not yet begun
        return max(min(ends, default=now + self.patience_s) - now, 0.0) + 0.005
