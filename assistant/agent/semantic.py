"""The agent without a language model: the sentence chooses what is asked, names that exist fill it in, templates answer.

Whether a sentence is an order or a question excludes what it cannot ask for, whatever its meaning seems to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from assistant.agent.answer import Answer, AnswerKind, Listener, cut_text, one_line, question_of
from assistant.agent.chooser import IntentChoice, QuestionIntent, ToolChooser, WordChooser, intents, spelling
from assistant.agent.compose import composed_lines, of_two_jobs, query_lines, query_of
from assistant.agent.corrections import corrected, takes_back, undoes
from assistant.agent.dialogue import (
    Dialogue,
    QuestionRequest,
    QuestionTurn,
    choose_option,
    completed,
    follow_up,
    shown_source,
)
from assistant.agent.dialogue_file import keep, recall
from assistant.agent.languages.sentence import known_names, read_sentence
from assistant.agent.likeliest import likeliest_job
from assistant.agent.moods import CHANGING, agrees, excluded_intents, lifts_rules
from assistant.agent.orders import OrderKind, OrderReading, fits_change, read_order, stems_of
from assistant.agent.plain_english import plain_text, renounced
from assistant.agent.pointers import resolve_pointers, variants
from assistant.agent.proposals import BY
from assistant.agent.scope import Reader, order_beside, order_scope, ordered_names, orders_besides, without
from assistant.agent.tell_approvals import own_waiting_told, undo_told, withdrawal_told
from assistant.agent.tell_orders import (
    all_but_told,
    later_told,
    order_told,
    spared_told,
    until_told,
    with_waiting_object,
)
from assistant.agent.tellers import READINGS, TELLERS, RecoveringTurn, Recovery, tell_unknown
from assistant.agent.words import NameInventory, Names, read_inventory, read_names
from assistant.gate import Gate
from assistant.ports import Clock

MODE = "semantic"
SURE = 0.42
"""Below this share of the best reading, and with a second one near, the answer says what else could have been meant."""
FAIR = 0.2
"""Below this it asks back: a wrong answer to a question costs a look, and the right one came first far more often."""
LEAST = 0.08
"""Below this nothing was understood."""
SURE_OF_CHANGE = 0.5
ORDERED = 0.15
"""Share of the readings that ask for a change, from which on a model may propose one."""
VERB_SAYS = 0.95
"""How sure a verb with its own kind of thing makes."""
POINTERS = frozenset("it that this them they these those one him her there".split())
_SAYS_LITTLE = frozenset({"approve", "out_of_scope"})
"""Where words that nothing knows end up: never offered, and taken only when it is sure."""
NEAR = 0.4
"""How near the second reading must be; a lonely one is taken, but for a change."""
NOT_UNDERSTOOD = "I did not understand that. I know the jobs, nodes, logs, checkpoints and incidents of this cluster; ask: help"
NO_RULE_LIFTED = (
    "No words lift the rules: the policy is in mode {mode}, only the site's policy file changes that, and a person answers "
    "requests with nightshift approve or deny. Nothing was done. Ask for one thing by its name, or: which mode are you in"
)
MOST_SHOWN = 60_000


class SemanticAgent:
    """Answers questions one after the other."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        chooser: ToolChooser | None = None,
        *,
        recovery: Recovery | None = None,
        talks: Path | None = None,
        thread: str = "",
    ) -> None:
        """Begin, or go on with, a conversation.

        Args:
            gate: Every call goes through it.
            clock: For `today`.
            chooser: What chooses the tool; by words where none is given.
            recovery: Works the playbook of a job; without it only single changes are proposed.
            talks: File in which conversations are kept; None keeps nothing.
            thread: Which conversation it is.
        """
        self._recovery, self._talks, self._thread = recovery, talks, thread
        self._gate, self._clock = gate, clock
        self._chooser = chooser or _by_words()
        self._intents = intents()
        self._spelling = spelling()
        self.state = recall(talks, thread) if talks is not None else Dialogue()

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        """Answer a question.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.
            listener: Is told of each reading call when it was made.

        Raises:
            InputError: It is empty or too long.
        """
        dialogue = self.state
        reading = read_sentence(question_of(question), lambda: known_names(read_inventory(self._gate)))
        answer = reading.refusal(MODE) or reading.remarked(
            self._answer(choose_option(reading.english, dialogue), trusted=trusted, listener=listener)
        )
        if self._talks is not None and self.state is not dialogue:
            keep(self._talks, self._thread, self.state)
        return answer

    def _answer(self, words: str, *, trusted: bool, listener: Listener | None) -> Answer:
        number = shown_source(words)
        if number is not None and self.state.sources:
            return self._source(number)
        if lifts_rules(words):
            return Answer(NO_RULE_LIFTED.format(mode=self._gate.policy.mode), AnswerKind.REFUSED, MODE, "refused")
        inventory = read_inventory(self._gate)
        own = [number for number in self.state.proposed if number in inventory.approvals]
        if own and takes_back(words):
            return self._answer_by(
                "hold", words, inventory, lambda turn: withdrawal_told(turn, own), trusted=trusted, listener=listener
            )
        if undoes(words):
            return self._answer_by("changes", words, inventory, undo_told, trusted=trusted, listener=listener)

        def read(text: str) -> tuple[Names, OrderReading]:
            names = read_names(text, inventory)
            return names, self._order(names)

        if right := corrected(words, self.state, lambda text: read_names(text, inventory)):
            answer = self._answer_scoped(right, inventory, read, trusted=trusted, listener=listener)
            return replace(answer, text=f'(Taken as: "{one_line(right, 160)}".)\n{answer.text}')
        return self._answer_scoped(words, inventory, read, trusted=trusted, listener=listener)

    def _answer_by(
        self,
        intent: str,
        words: str,
        inventory: NameInventory,
        tell: Callable[[QuestionTurn], Iterator[str]],
        *,
        names: Names | None = None,
        trusted: bool,
        listener: Listener | None,
    ) -> Answer:
        """Answer without a proposal."""
        request = QuestionRequest(intent, words, names or Names())
        turn = RecoveringTurn(self._gate, inventory, request, self._clock.now(), trusted, listener=listener)
        lines = list(tell(turn))
        self.state = replace(self.state, pending="", options=(), order="")
        return Answer("\n".join(lines), turn.kind, MODE, intent, sources=tuple(turn.sources))

    def _answer_scoped(
        self, words: str, inventory: NameInventory, read: Reader, *, trusted: bool, listener: Listener | None
    ) -> Answer:
        """Answer what a sentence orders, and say what it leaves out."""
        scope = order_scope(words, read)
        if scope is None:
            return self._answer_whole(words, inventory, read, trusted=trusted, listener=listener)
        if scope.many:
            names = read(scope.order)[0]
            return self._answer_by(
                scope.many if scope.many in CHANGING else "cancel",
                words,
                inventory,
                lambda turn: all_but_told(turn, scope.many, scope.spared),
                names=names,
                trusted=trusted,
                listener=listener,
            )
        answer = self._answer_whole(scope.order, inventory, read, spared=scope.spared, trusted=trusted, listener=listener)
        request = QuestionRequest(answer.intent, words, scope.spared)
        turn = QuestionTurn(self._gate, inventory, request, self._clock.now(), trusted, sources=list(answer.sources))
        left_out = list(spared_told(turn, scope.spared))
        return replace(answer, text="\n".join([answer.text, *left_out]), sources=tuple(turn.sources))

    def _answer_whole(
        self,
        words: str,
        inventory: NameInventory,
        read: Reader,
        *,
        spared: Names | None = None,
        trusted: bool,
        listener: Listener | None,
    ) -> Answer:
        """Answer a question or an order of which nothing is left out."""
        names = resolve_pointers(read_names(words, inventory), self.state, inventory)
        if agrees(words):
            names = replace(names, approvals=names.approvals or self._agreed(inventory))
        order = self._order(names)
        if order.kind in (OrderKind.HOLD, OrderKind.UNSERVED):
            other_order = order_beside(words, read) if order.kind is OrderKind.HOLD else ""
            return self._without_proposal(order, words, names, inventory, other_order, trusted=trusted, listener=listener)
        besides = orders_besides(words, order.change, read) if order.kind is OrderKind.SERVED else []
        if order.kind is OrderKind.SERVED:
            ordered = ordered_names(words, names, order.change, read)
            if ordered is None:
                objects = ", ".join(names.jobs if order.change in ("cancel", "recover") else names.nodes)
                which = _back(QuestionRequest(order.change, words, names), f"Which is meant: {objects}? Nothing is proposed.", ())
                self.state = replace(self.state, pending=order.change, options=())
                return which
            names = ordered
        names = without(names, spared) if spared is not None else names
        intent = "approve" if agrees(words) and not self.state.pending else follow_up(words, names, self.state)
        choices = [IntentChoice(intent, 1.0)] if intent else self._choices(names, order)
        request = _filled(
            QuestionRequest(choices[0].intent, words, names, confidence=choices[0].probability), self.state, self._intents
        )
        turn = RecoveringTurn(
            self._gate, inventory, request, self._clock.now(), trusted, listener=listener, recovery=self._recovery
        )
        turn.spoken_job = next(iter(self.state.jobs), "")
        query, job_note = query_of(turn), ""
        if query is None:
            request = with_waiting_object(of_two_jobs(request), self._gate)
            turn.request, job_note = likeliest_job(request, inventory, self._intents[request.intent].needs)
            back = self._unsure_of_change(turn.request, order, choices) or self._asks_back(turn.request, choices, inventory)
            if back is not None:
                pending = turn.request.intent if back.options[:1] != ("help",) else ""
                self.state = replace(self.state, pending=pending, options=back.options)
                return back
        if listener is not None:
            listener("")
        lines = query_lines(turn, query) if query is not None else composed_lines(turn, _lines)
        lines[1:1] = [job_note] if job_note else []
        lines += _else_meant(turn.request, choices) if turn.kind is AnswerKind.ANSWER and query is None else ()
        if turn.request.intent in CHANGING:
            own = [number for number in self.state.proposed if number in inventory.approvals]
            lines += [*_not_taken(turn.request, besides), *own_waiting_told(turn, own)]
        self.state = self.state.advance(turn, lines)
        return Answer(
            "\n".join(lines),
            turn.kind,
            MODE,
            turn.request.intent,
            round(request.confidence, 3),
            tuple(turn.sources),
            tuple(dict.fromkeys(turn.evidence)),
            tuple(dict.fromkeys(turn.incidents)),
            tuple(turn.proposals),
            notes=tuple(note for note in inventory.unknown if note.partition(": ")[2] not in "\n".join(lines)),
        )

    def _agreed(self, inventory: NameInventory) -> tuple[int, ...]:
        """Return what a yes may be for: approvals of the last answer, else of this conversation, else about what was spoken of."""
        last = [number for number in self.state.approvals if number in inventory.approvals]
        own = [number for number in self.state.proposed if number in inventory.approvals]
        if last or own:
            return tuple(last or own[-1:])
        if self.state.intent not in ("approvals", "plan", "recover", "explain_job"):
            return ()
        rows = self._gate.call("list_approvals", {}, why="what a yes may be for", by=BY).value or ()
        job = self.state.jobs[0] if self.state.jobs else ""
        about = [row for row in rows if self.state.intent == "approvals" or (job and row["arguments"].get("job") == job)]
        return (int(about[0]["approval"]),) if len(about) == 1 else ()

    def orders(self, names: Names) -> bool:
        """Tell whether a question may ask for a change, by its own words."""
        wishes, order = CHANGING | {"plan", "approve"}, self._order(names)
        if order.kind in (OrderKind.HOLD, OrderKind.UNSERVED):
            return False
        return sum(choice.probability for choice in self._choices(names, order) if choice.intent in wishes) >= ORDERED

    def _order(self, names: Names) -> OrderReading:
        """Return what a question orders; a bare number may be a job."""
        text = self._spelling.mended(renounced(plain_text(names.masked)))
        return read_order(text.replace("{number}", "{job}"), self.state.subject)

    def _without_proposal(
        self,
        order: OrderReading,
        words: str,
        names: Names,
        inventory: NameInventory,
        other_order: str = "",
        *,
        trusted: bool,
        listener: Listener | None,
    ) -> Answer:
        """Answer an order that forbids something, or whose verb Nightshift has no change for."""
        intent = "hold" if order.kind is OrderKind.HOLD else "no_such_change"
        request = QuestionRequest(intent, words, names)
        if order.object_word in POINTERS and not (names.jobs or names.nodes or names.incidents or names.numbers or names.strangers):
            request = completed(request, names, self.state.only_subject())
        turn = RecoveringTurn(self._gate, inventory, request, self._clock.now(), trusted, listener=listener)
        if listener is not None:
            listener("")
        lines = list(order_told(turn, order))
        lines += [f'Not taken as an order: "{one_line(other_order, 120)}". Say it by itself if it is meant.'] if other_order else []
        self.state = self.state.spoken(request)
        return Answer("\n".join(lines), turn.kind, MODE, intent, sources=tuple(turn.sources))

    def _unsure_of_change(self, request: QuestionRequest, order: OrderReading, choices: Sequence[IntentChoice]) -> Answer | None:
        """Return the question whether a change is meant, where the verb of a sentence is none that stands for it."""
        if request.intent not in CHANGING or fits_change(order, request.intent, _learned_stems(request.intent)):
            return None
        second = next((choice.intent for choice in choices[1:] if choice.intent not in _SAYS_LITTLE | CHANGING), "help")
        options = (_reading(request.intent, request), _reading(second, request))
        verb = f"{order.verb!r} is no order that I know" if order.verb else "No change is named there that I know"
        return _back(request, f"{verb}; nothing is proposed. Did you mean: {options[0]}? Or: {options[1]}?", options)

    def _choices(self, names: Names, order: OrderReading) -> Sequence[IntentChoice]:
        """Return the readings; who asks whether a node is back does not ask to put it back."""
        readings, out = self._readings(names), excluded_intents(names.masked)
        if order.kind is OrderKind.SERVED and order.change not in out:
            # the verb and its object say more than the sentence as a whole
            return [
                IntentChoice(order.change, VERB_SAYS),
                *(row for row in readings if row.intent not in {order.change, *CHANGING}),
            ]
        remaining = [choice for choice in readings if choice.intent not in out]
        total, remaining_share = sum(choice.probability for choice in readings), sum(choice.probability for choice in remaining)
        return (
            [
                IntentChoice(choice.intent, min(1.0, choice.probability * total / max(remaining_share, LEAST)))
                for choice in remaining
            ]
            if out
            else readings
        )

    def _readings(self, names: Names) -> Sequence[IntentChoice]:
        """Return the readings of all that words stand for: a bare number is a job or an incident, `it` what was spoken of."""
        plain = self._spelling.mended(names.masked)
        ways = [(plain.replace("{number}", slot), 1.0) for slot in ("{job}", "{incident}")] if names.numbers else [(plain, 1.0)]
        ways += [(self._spelling.mended(sentence), counts) for sentence, counts in variants(names, self.state)]
        best: dict[str, float] = {}
        for sentence, counts in ways:
            for name, probability in self._chooser.choose(sentence):
                best[name] = max(best.get(name, 0.0), probability * counts)
        return [IntentChoice(name, best[name]) for name in sorted(best, key=lambda name: -best[name])]

    def _asks_back(self, request: QuestionRequest, choices: Sequence[IntentChoice], inventory: NameInventory) -> Answer | None:
        first, second = choices[0], choices[1] if len(choices) > 1 else IntentChoice("help", 0.0)
        if first.probability < (SURE if first.intent in _SAYS_LITTLE else LEAST):
            return Answer(NOT_UNDERSTOOD, AnswerKind.UNKNOWN, MODE, "out_of_scope", round(request.confidence, 3), options=("help",))
        least = SURE_OF_CHANGE if request.intent in CHANGING else FAIR
        lonely = request.intent not in CHANGING and second.probability <= first.probability * NEAR
        if first.probability < least and not lonely:
            changes = CHANGING if first.probability < SURE else frozenset()
            offered = [choice.intent for choice in choices if choice.intent not in _SAYS_LITTLE | changes]
            options = tuple(_reading(intent, request) for intent in offered[:2])
            return _back(request, f"Did you mean: {options[0]}? Or: {options[1]}?", options)
        return _missing(request, self._intents[request.intent], inventory)

    def _source(self, number: int) -> Answer:
        cited = next((source for source in self.state.sources if source.number == number), None)
        if cited is None:
            numbers = ", ".join(str(source.number) for source in self.state.sources)
            return Answer(f"The last answer has no source {number}; it has {numbers}.", AnswerKind.UNKNOWN, MODE, "show")
        text = cited.value if isinstance(cited.value, str) else _pretty(cited.value)
        body = cut_text(cited.error or text, MOST_SHOWN)
        return Answer(f"[{number}] {cited.call}\n{body}", AnswerKind.ANSWER, MODE, "show", sources=(cited,))


@cache
def _learned_stems(intent: str) -> frozenset[str]:
    return stems_of(intents()[intent].says)


@cache
def _by_words() -> WordChooser:
    return WordChooser.load()


def _lines(turn: QuestionTurn) -> Iterator[str]:
    strangers = turn.request.names.strangers
    needs = intents()[turn.request.intent].needs
    lacks = ("job" in needs and not turn.request.job) or ("node" in needs and not turn.request.nodes)
    lacks = lacks or ("incident" in needs and turn.request.incident is None)
    if needs.count("job") > 1:
        lacks = lacks or not turn.request.other_job
    if strangers and (lacks or turn.request.intent in CHANGING or turn.request.intent in ("plan", "seen_before", "node_history")):
        for stranger in strangers:
            yield from tell_unknown(turn, stranger)
        return
    for stranger in strangers:
        yield f"(Left out: {stranger}.)"
    if turn.request.intent in CHANGING:
        if later := later_told(turn):
            yield later
            return
        yield from filter(None, [until_told(turn)])
    yield from TELLERS[turn.request.intent](turn)


def _not_taken(request: QuestionRequest, besides: Sequence[str]) -> Iterator[str]:
    """Say what of an order was not taken: another change in the same sentence, more than one job."""
    for clause in besides:
        yield f'Not taken: "{one_line(clause, 120)}". One change at a time; say it by itself.'
    if request.intent in ("cancel", "recover") and len(request.names.jobs) > 1:
        yield f"Taken is job {request.job} alone; not taken: {', '.join(job for job in request.names.jobs if job != request.job)}."


def _else_meant(request: QuestionRequest, choices: Sequence[IntentChoice]) -> Iterator[str]:
    """Say what else could have been meant, where that is near."""
    alternatives = [choice for choice in choices[1:] if choice.intent not in _SAYS_LITTLE | CHANGING]
    if choices[0].probability < SURE and alternatives and alternatives[0].probability > choices[0].probability * NEAR:
        nearest = _reading(alternatives[0].intent, request)
        yield f"(I took this for: {_reading(request.intent, request)}. If not, ask for instance: {nearest})"


def _filled(request: QuestionRequest, dialogue: Dialogue, intents_by_name: Mapping[str, QuestionIntent]) -> QuestionRequest:
    """Return what is asked with its names; a bare number goes where the intent needs one."""
    names, intent = request.names, intents_by_name[request.intent]
    jobs, incidents = list(names.jobs), list(names.incidents)
    for number in names.numbers:
        if "job" in intent.needs and len(jobs) < intent.needs.count("job"):
            jobs.append(number)
        else:
            incidents.append(int(number))
    filled = replace(
        request,
        job=jobs[0] if jobs else "",
        other_job=jobs[1] if len(jobs) > 1 else "",
        nodes=names.nodes,
        incident=incidents[0] if incidents else None,
    )
    if intent.needs.count("job") > 1 and len(jobs) == 1 and dialogue.jobs:
        return replace(filled, other_job=next((job for job in dialogue.jobs if job != jobs[0]), ""))
    kinds = {*intent.needs, *intent.takes}
    if names.candidates or not kinds or (intent.takes and (filled.job or filled.incident is not None or filled.nodes)):
        return filled
    if request.intent in ("incidents", "node_history", "meaning") and not _points_back(request.question):
        return filled
    added = completed(filled, names, dialogue)
    if request.intent in ("plan", "seen_before") and not filled.job and dialogue.intent in ("explain_incident", "incidents"):
        return replace(filled, incident=added.incident)
    return replace(
        filled,
        job=added.job if "job" in kinds else filled.job,
        nodes=added.nodes if "node" in kinds else filled.nodes,
        incident=added.incident if "incident" in kinds and not ("job" in kinds and added.job) else filled.incident,
    )


def _points_back(question: str) -> bool:
    return bool(re.search(r"\b(?:it|its|that|this|there|them|those)\b", question.lower()))


def _missing(request: QuestionRequest, intent: QuestionIntent, inventory: NameInventory) -> Answer | None:
    """Return the question for a name that is missing, None when all is there."""
    if request.names.strangers:
        return None
    if request.intent in ("plan", "seen_before") and not request.job and request.incident is None:
        return _back(request, f"Which job or incident?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if "job" in intent.needs and not request.job:
        return _back(request, f"Which job?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if intent.needs.count("job") > 1 and not request.other_job:
        return _back(request, f"Job {request.job} and which other one?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if "node" in intent.needs and not request.nodes:
        hint = f" For instance {inventory.nodes[0]}." if inventory.nodes else " The scheduler names no nodes."
        return _back(request, f"Which node?{hint}", inventory.nodes[:3])
    if "incident" in intent.needs and request.incident is None:
        hint = f" The newest is {max(inventory.incidents)}." if inventory.incidents else " There are none yet."
        return _back(request, f"Which incident?{hint}", tuple(str(number) for number in sorted(inventory.incidents)[-3:]))
    return None


def _some_jobs(inventory: NameInventory) -> str:
    newest = list(inventory.jobs.items())[-3:]
    return (
        f" The newest: {', '.join(f'{job} ({one_line(name, 30)})' for job, name in newest)}."
        if newest
        else " The scheduler knows none."
    )


def _back(request: QuestionRequest, text: str, options: tuple[str, ...]) -> Answer:
    return Answer(text, AnswerKind.ASKS_BACK, MODE, request.intent, round(request.confidence, 3), options=options)


def _reading(intent: str, request: QuestionRequest) -> str:
    job = request.job or (request.names.numbers[0] if request.names.numbers else "JOB")
    node = request.nodes[0] if request.nodes else "NODE"
    incident = request.incident if request.incident is not None else "ID"
    return READINGS[intent].replace("{job}", job).replace("{node}", node).replace("{incident}", str(incident))


def _pretty(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)
