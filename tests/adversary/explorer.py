"""Every order of a few deterministic actors: a search over states in which each state is expanded once.

*Point.* An actor stops before each access to anything that another actor can change or observe: every call of the scheduler, every
transaction of a store, every read of a store outside of a transaction. Between two points it does nothing that others can observe.

*What is left out, and why nothing is lost by it.*

- Reads that commute. An access is a point at which others are tried only if its resource (a job, the list of jobs, the nodes, a
  table of a store) is used by two actors and written by one of them. Every other access commutes with each step of the others, so
  trying it first is enough (a persistent set of one actor; Godefroid 1996, chapter 4). Which resources are used by two is recorded
  while the search runs; when an access turns out to be of this sort after all, the search begins again with it.
- Equal states. An actor is a function of what it has read, so two orders that end in the same cluster, the same rows and the same
  answers to each actor have the same future. The rows of the audit are left out of the comparison, since they differ by order in
  numbers and chain only, and no decision is made by these.
- kill -9. It changes nothing but the actor, so it commutes with all steps of the others, and between two writes of its actor with
  that actor's reads. It is tried before an actor begins and after each of its writes (a change of the cluster, a commit). A kill
  within a transaction leaves what a kill before it leaves, by SQLite's atomicity.

The search keeps its path, not its states: each branch is played again from the start, and a state that is then not the same fails.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from itertools import permutations
from random import Random
from typing import Any, NamedTuple, Protocol

from assistant.errors import NightshiftError
from assistant.tooling import Context, Tool
from tests.scenarios.scene import Killed


class Choice(NamedTuple):
    """The actor that goes to its next point, and whether it is killed there, or before it begins."""

    actor: int
    dies: bool


class World(Protocol):
    """What the actors work on."""

    def reset(self) -> None:
        """Make it as it was before any actor began."""

    def digest(self) -> str:
        """Return a key of all that actors share."""

    def problems(self) -> list[str]:
        """Return what must never hold and holds now."""

    def finish(self) -> list[str]:
        """Settle what is left when all actors have ended or died, and return what is wrong then."""


class Turn:
    """A turn that one thread gives and another takes, one at a time: a bare lock, for a semaphore is a tenth of the search."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.acquire, self.release = self._lock.acquire, self._lock.release


@dataclass
class Actor:
    """A thread that goes on only when it has the turn."""

    number: int
    work: Callable[[], object]
    turn: Turn = field(default_factory=lambda: Turn())
    stop: str = "start"
    """Where it waits: "start", "shared" (others may use what it accesses next), "own" (a write that no other sees), "over"."""
    writes: bool = False
    """Whether its next access is a write."""
    label: str = ""
    """Its next access, for people."""
    killed: bool = False
    end: object = None
    observed: str = ""
    """Digest of all that it has read."""
    steps: int = 0
    """How many shared accesses it has made."""

    @property
    def over(self) -> bool:
        """Whether it has ended or was killed."""
        return self.stop == "over"


class Actors:
    """The actors of one cast, of whom one runs at a time."""

    def __init__(self, works: Sequence[Callable[[], object]]) -> None:
        self.actors = [Actor(number, work) for number, work in enumerate(works)]
        self.shared: set[str] = set()
        """Resources that two actors use and one of them writes."""
        self.points = 0
        """How many accesses there were."""
        self._used: dict[str, dict[int, bool]] = defaultdict(dict)
        self._back = Turn()
        self._closed = False
        self._by_thread: dict[int, Actor] = {}
        for actor in self.actors:
            threading.Thread(target=self._live, args=(actor,), daemon=True).start()

    def reset(self) -> None:
        """Let every actor that has begun die, and make all ready to begin."""
        for actor in self.actors:
            self.kill(actor)
            actor.stop, actor.killed, actor.end, actor.observed = "start", False, None, ""
            actor.label, actor.writes, actor.steps = "begin", False, 0

    def kill(self, actor: Actor) -> None:
        """Let an actor die where it waits."""
        if actor.stop == "start":
            actor.stop, actor.killed = "over", True
        elif not actor.over:
            actor.killed = True
            self.step(actor)

    def step(self, actor: Actor) -> None:
        """Let one actor go to its next point or its end."""
        actor.turn.release()
        self._back.acquire()

    def close(self) -> None:
        """End the threads."""
        self.reset()
        self._closed = True
        for actor in self.actors:
            actor.turn.release()

    def point(self, label: str, resources: Iterable[str], *, writes: bool) -> None:
        """Stop before an access if another actor or a kill can make a difference there; no effect outside of actors."""
        actor = self._by_thread.get(threading.get_ident())
        if actor is None:
            return
        self.points += 1
        if actor.killed:
            raise Killed
        names = list(resources)
        for name in names:
            self.uses(name, writes=writes)
        if not self.shared.isdisjoint(names):
            actor.stop = "shared"
        elif writes:
            actor.stop = "own"
        else:
            return
        actor.label, actor.writes = label, writes
        self._back.release()
        actor.turn.acquire()
        if actor.killed:
            raise Killed

    def keeping_the_answer(self, reader: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function by which an actor reads, of which it keeps only the answer or error and what its arguments show.

        What was read inside counts until the function returns: two actors that got the same answer are in the same state.
        """

        @wraps(reader)
        def read(*given: Any, **named: Any) -> Any:
            actor = self._by_thread.get(threading.get_ident())
            if actor is None:
                return reader(*given, **named)
            before = actor.observed
            try:
                answer = reader(*given, **named)
            except Exception as error:
                actor.observed = before
                self.observes(f"{reader.__qualname__} raised {error!r} {_shown(given)}")
                raise
            actor.observed = before
            self.observes(f"{reader.__qualname__} {answer!r} {_shown(given)}")
            return answer

        return read

    def answering_once(self, reader: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that reads files alone, and no file twice: none of them changes while the search runs."""
        answers: dict[str, Any] = {}

        @wraps(reader)
        def read(*given: Any, **named: Any) -> Any:
            given = tuple(list(one) if isinstance(one, Iterator) else one for one in given)
            key = repr((given, {name: value for name, value in named.items() if name != "clock"}))
            if key not in answers or " at 0x" in key:  # an address says nothing of what stands there
                before = self.points
                answers[key] = reader(*given, **named)
                assert self.points == before, f"{reader.__qualname__} reads more than files"
            answer = answers[key]
            return list(answer) if isinstance(answer, list) else answer

        return read

    def uses(self, resource: str, *, writes: bool) -> None:
        """Note that the running actor uses a resource."""
        actor = self._by_thread.get(threading.get_ident())
        if actor is None:
            return
        users = self._used[resource]
        users[actor.number] = users.get(actor.number, False) or writes
        if len(users) > 1 and any(users.values()):
            self.shared.add(resource)

    def observes(self, text: str) -> None:
        """Note what the running actor has read."""
        actor = self._by_thread.get(threading.get_ident())
        if actor is not None:
            actor.observed = hashlib.blake2b(f"{actor.observed}\n{text}".encode(errors="replace"), digest_size=16).hexdigest()

    def _live(self, actor: Actor) -> None:
        self._by_thread[threading.get_ident()] = actor
        while True:
            actor.turn.acquire()
            if self._closed:
                return
            try:
                actor.end = actor.work()
            except NightshiftError as error:
                actor.end = error
            except Killed:
                actor.end = "killed"
            except BaseException as error:  # noqa: BLE001 - a bug of an actor fails the test that made it
                actor.end = error
            actor.stop = "over"
            self._back.release()


def _shown(arguments: Sequence[object]) -> str:
    return repr([one for one in arguments if is_dataclass(one) and not isinstance(one, (Context, Tool))])


class Counterexample(AssertionError):
    """An order of the actors after which something is wrong."""


class Search:
    """Tries every order of the actors of a world, and every kill of some of them."""

    def __init__(
        self,
        world: World,
        actors: Actors,
        *,
        mortal: Iterable[int] = (),
        kills: int = 1,
        part: tuple[int, int] = (0, 1),
        preemptions: int | None = None,
        most_states: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            world: What they work on.
            actors: Who works.
            mortal: The actors that may be killed.
            kills: How many of them at most.
            part: Number of the part and of all parts. Orders are parted by how many shared accesses the others have made when the
                last actor makes its first one, so that all parts together are all orders and none is in two.
            preemptions: How often an actor that could go on is interrupted by another, at most; None: any number of times.
            most_states: Where the search stops, for one that is too large to end; None: nowhere. `cut` says whether it did.
        """
        self.world, self.actors, self.part, self.preemptions = world, actors, part, preemptions
        self.mortal, self.kills = frozenset(mortal), kills
        self.plays = 0
        """How often the actors were played from the start."""
        self.ends = 0
        """Different ends of the world that were settled and judged."""
        self.states: set[str] = set()
        self.most_states, self.cut = most_states, False
        self._settled: set[str] = set()
        self._dead, self._interrupted = 0, 0
        self._last: Actor | None = None

    def run(self) -> None:
        """Search.

        Raises:
            Counterexample: Something is wrong after an order of the actors.
            AssertionError: An actor ended with an error that is none of ours, or is not deterministic.
        """
        self._warm_up()
        while True:
            known = frozenset(self.actors.shared)
            self.states.clear()
            self._settled.clear()
            branches: list[tuple[tuple[Choice, ...], str]] = [((), "")]
            while branches and known == self.actors.shared:
                branches += self._play(*branches.pop())
                if self.most_states is not None and len(self.states) >= self.most_states:
                    self.cut = bool(branches)
                    return
            if known == self.actors.shared:
                return

    def _warm_up(self) -> None:
        """Play some orders, by which most of what two actors use becomes known before the search begins."""
        numbers = list(range(len(self.actors.actors)))
        orders = [list(order) for order in permutations(numbers)]
        dice = Random(1)
        for order in orders + [[dice.choice(numbers) for _ in range(200)] for _ in range(6)]:
            self._begin()
            for number in order:
                actor = self.actors.actors[number]
                while not actor.over:
                    self._take(Choice(number, False))
                    if len(order) > len(numbers):
                        break

    def summary(self) -> str:
        """Return how much was searched."""
        cut = ", cut off there" if self.cut else ""
        return f"{len(self.states):,} states, {self.plays:,} plays, {self.ends:,} different ends{cut}"

    def replay(self, path: Sequence[Choice]) -> list[str]:
        """Play one path and return its steps, for people."""
        self._begin()
        return [self._take(choice) for choice in path]

    def _begin(self) -> None:
        self.actors.reset()
        self.world.reset()
        self.plays, self._dead, self._interrupted, self._last = self.plays + 1, 0, 0, None

    def _play(self, path: tuple[Choice, ...], parent: str) -> list[tuple[tuple[Choice, ...], str]]:
        """Play a path and go on to the first state that is known; return the branches that were passed."""
        self._begin()
        for choice in path[:-1]:
            self._take(choice)
        assert not path or self._key() == parent, f"not the same again: {path}"
        if path:
            self._take(path[-1])
        branches: list[tuple[tuple[Choice, ...], str]] = []
        while (key := self._key()) not in self.states:
            self.states.add(key)
            self._judge(self.world.problems(), path)
            choices = self._choices()
            if not choices:
                if all(actor.over for actor in self.actors.actors):
                    self._settle(path)
                break
            branches += [((*path, choice), key) for choice in choices[1:]]
            path = (*path, choices[0])
            self._take(choices[0])
        return branches

    def _choices(self) -> list[Choice]:
        waiting = [actor for actor in self.actors.actors if not actor.over]
        # what is used by nobody else need not be tried later, too
        own = [actor for actor in waiting if actor.stop != "shared"][:1]
        choices = []
        for actor in own or waiting:
            if not self._in_part(actor) or not self._may_interrupt(actor):
                continue
            choices.append(Choice(actor.number, False))
            if actor.number in self.mortal and self._dead < self.kills and (actor.writes or actor.stop == "start"):
                choices.append(Choice(actor.number, True))
        return choices

    def _in_part(self, actor: Actor) -> bool:
        number, parts = self.part
        if actor is not self.actors.actors[-1] or actor.stop != "shared" or actor.steps:
            return True
        return sum(other.steps for other in self.actors.actors[:-1]) % parts == number

    def _may_interrupt(self, actor: Actor) -> bool:
        return self.preemptions is None or self._interrupted + self._interrupts(actor) <= self.preemptions

    def _interrupts(self, actor: Actor) -> bool:
        """Return whether a step of an actor interrupts the one that made the last shared access."""
        last = self._last
        return actor.stop == "shared" and last is not None and last is not actor and not last.over

    def _take(self, choice: Choice) -> str:
        actor = self.actors.actors[choice.actor]
        label = actor.label
        if self.preemptions is not None and actor.stop == "shared":
            self._interrupted += self._interrupts(actor)
            self._last = actor
        if not (choice.dies and actor.stop == "start"):
            actor.steps += actor.stop == "shared"
            self.actors.step(actor)
        if choice.dies:
            self._dead += 1
            self.actors.kill(actor)
        if isinstance(actor.end, BaseException) and not isinstance(actor.end, NightshiftError):
            raise AssertionError(f"actor {actor.number} failed after {label}") from actor.end
        return f"{choice.actor}: {label}{', then it is killed' if choice.dies else ''}"

    def _key(self) -> str:
        # an end is told by what was read before it
        actors = [(actor.stop, actor.killed, actor.steps, actor.observed) for actor in self.actors.actors]
        spent = self._dead, self._interrupted, self._last.number if self._last is not None else None
        return hashlib.blake2b(f"{self.world.digest()}\n{actors!r} {spent!r}".encode(errors="replace"), digest_size=16).hexdigest()

    def _settle(self, path: Sequence[Choice]) -> None:
        digest = repr((self.world.digest(), [(actor.killed, repr(actor.end)) for actor in self.actors.actors]))
        if digest not in self._settled:
            self._settled.add(digest)
            self.ends += 1
            self._judge(self.world.finish(), path)

    def _judge(self, problems: Sequence[str], path: Sequence[Choice]) -> None:
        if problems:
            ends = [actor.end for actor in self.actors.actors]
            steps = "\n".join(self.replay(path))
            raise Counterexample(f"{'; '.join(problems)}\nafter\n{steps}\nends: {ends}")
