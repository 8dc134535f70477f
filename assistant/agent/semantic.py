"""The agent without a language model: the sentence chooses what is asked, names that exist fill it in, templates answer.

Whether a sentence is an order or a question excludes what it cannot ask for, whatever its meaning seems to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from assistant.agent.answer import Answer, AnswerKind, Listener, one_line, question_of
from assistant.agent.aspects import AspectReading, read_aspect
from assistant.agent.chooser import IntentChoice, ToolChooser, WordChooser, intents, spelling
from assistant.agent.claims.answers import record_answer
from assistant.agent.claims.exceptions import left_out_names, plain_order
from assistant.agent.compose import composed_lines, of_two_jobs, query_lines, query_of, request_lines, source_shown
from assistant.agent.corrections import corrected, takes_back, undoes
from assistant.agent.coverage import has_figure, unknown_told
from assistant.agent.dialogue import (
    Dialogue,
    QuestionRequest,
    QuestionTurn,
    choose_option,
    completed,
    follow_up,
    keep,
    recall,
    shown_source,
)
from assistant.agent.elsewhere import elsewhere, elsewhere_told
from assistant.agent.forms import QuestionForm, form_of
from assistant.agent.languages.sentence import known_names, read_sentence
from assistant.agent.moods import CHANGING, agrees, lifts_rules
from assistant.agent.orders import HELD_OFF, OrderKind, OrderReading, read_order
from assistant.agent.outright.outage import outage_answer
from assistant.agent.outright.parts import answered_parts, plain_courtesy, question_parts
from assistant.agent.outright.phrases import outright_phrase
from assistant.agent.outright.rules import outright_answer, spoken_before
from assistant.agent.plain_english import plain_text, plain_words, renounced
from assistant.agent.pointers import resolve_pointers
from assistant.agent.proposals import BY
from assistant.agent.readings import asks_back, choices_of, unsure_of_change
from assistant.agent.request_names import (
    MODE,
    filled_request,
    is_unsure,
    left_out_of_order,
    likeliest_job,
    number_without_thing,
    other_reading,
    question_back,
)
from assistant.agent.scope import (
    ORDER_VERBS,
    Reader,
    about_spared,
    excepted_names,
    joined_plainly,
    only_thing_left,
    order_beside,
    order_scope,
    ordered_names,
    orders_besides,
    spared_with_users,
    without,
)
from assistant.agent.slips import UNCLEAR, Slip, SlipKind, bare_correction, read_repair
from assistant.agent.slurm_commands import slurm_request
from assistant.agent.small_talk import SmallTalk, small_talk, talk_told
from assistant.agent.speech import NOTHING_DONE, after_their_yes, answers_approval, conditional_order, held_question, reported_order
from assistant.agent.tell_approvals import (
    agreed_approvals,
    amended_order,
    approve,
    only_drain_told,
    own_waiting_told,
    undo_told,
    withdrawal_told,
)
from assistant.agent.tell_orders import (
    all_but_told,
    not_due_told,
    order_told,
    reported_told,
    spared_told,
    with_waiting_object,
)
from assistant.agent.tellers import RecoveringTurn, Recovery
from assistant.agent.words import NameInventory, Names, read_inventory, read_names
from assistant.gate import Gate
from assistant.ports import Clock

ORDERED = 0.15
"""Share of the readings that ask for a change, from which on a model may propose one."""
POINTERS = frozenset("it that this them they these those one him her there".split())
ELSEWHERE = "elsewhere"
"""Intent of a question about another place; how it was read says nothing more then."""
KNOWN_HERE = "What is known here: the jobs, nodes, logs, checkpoints and incidents of this cluster."
WHICH = "Which is meant: {}? Nothing is proposed; name what is meant alone, or with and."
REPORTED = "That is what somebody else says: nothing is proposed. To order it, say it as your own words."
NO_RULE_LIFTED = (
    "No words lift the rules: the policy is in mode {mode}, only the site's policy file changes that, and a person answers "
    "requests with nightshift approve or deny. Nothing was done. Ask for one thing by its name, or: which mode are you in"
)


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
        dialogue, sentence = self.state, question_of(question)
        if (talk := small_talk(sentence)) is not None:
            return self._talk(talk, sentence, listener)
        if (slip := read_repair(sentence, self._english, lambda text: self._read(text, read_inventory(self._gate)))) is not None:
            return self._repaired(slip, trusted=trusted, listener=listener)
        sentence = slurm_request(sentence) or plain_courtesy(sentence)
        if parts := question_parts(sentence):
            answer = answered_parts(parts, lambda part: self.ask(part, trusted=trusted, listener=listener))
            self.state = replace(self.state, sources=answer.sources)
            return answer
        inventory = read_inventory(self._gate)
        if (record := record_answer(sentence, dialogue, inventory, self._gate, self._clock.now(), listener=listener)) is not None:
            self.state = record[1]
            return self._after_keeping(record[0], dialogue)
        sentence = plain_order(sentence, inventory) or outright_phrase(sentence) or bare_correction(sentence) or sentence
        reading = read_sentence(sentence, lambda: known_names(read_inventory(self._gate)))
        words = choose_option(reading.english, dialogue)
        refusal = reading.refusal(MODE)
        if refusal is None and reading.is_reported and reading.orders_change:
            return reading.remarked(Answer(REPORTED, AnswerKind.REFUSED, MODE, "hold"))
        if refusal is not None:
            answer = self._of_elsewhere(sentence, words, read_inventory(self._gate), english=False) or refusal
        else:
            foreign = sentence if reading.english != sentence else ""
            # what a sentence in another language leaves out may be lost on its way into English
            spares = bool(foreign) and bool(left_out_names(sentence, inventory))
            answer = self._answer(words, foreign=foreign, trusted=trusted and reading.may_propose and not spares, listener=listener)
            answer = answer if answer.intent == ELSEWHERE else reading.remarked(answer)
            answer = outage_answer(answer, read_inventory(self._gate))
        return self._after_keeping(answer, dialogue)

    def _after_keeping(self, answer: Answer, dialogue: Dialogue) -> Answer:
        if self._talks is not None and self.state is not dialogue:
            keep(self._talks, self._thread, self.state)
        return answer

    def _english(self, sentence: str) -> str:
        return read_sentence(sentence, lambda: known_names(read_inventory(self._gate))).english

    def _read(self, text: str, inventory: NameInventory, original: str = "") -> tuple[Names, OrderReading]:
        names = replace(read_names(text, inventory), original=original)
        return names, self._order(names)

    def _repaired(self, slip: Slip, *, trusted: bool, listener: Listener | None) -> Answer:
        """Answer a sentence that corrected itself by what it means."""
        if slip.kind is SlipKind.MENDED:
            answer = self.ask(slip.text, trusted=trusted, listener=listener)
            return replace(answer, text=f'(Taken as: "{one_line(slip.text, 160)}".)\n{answer.text}')
        words, inventory = self._english(slip.text), read_inventory(self._gate)
        names, order = self._read(words, inventory)
        if slip.kind is SlipKind.UNCLEAR:
            return question_back(
                QuestionRequest(order.change or "help", words, names), UNCLEAR.format(one_line(slip.text, 160)), ()
            )
        hold = order._replace(kind=OrderKind.HOLD)
        return self._without_proposal(hold, words, names, inventory, trusted=trusted, listener=listener)

    def _talk(self, talk: SmallTalk, sentence: str, listener: Listener | None) -> Answer:
        """Answer small talk with a word and what is open; what was spoken of stays as it is."""
        turn = QuestionTurn(
            self._gate, NameInventory(), QuestionRequest("help", sentence, Names()), self._clock.now(), listener=listener
        )
        text = talk_told(turn, talk)
        if listener is not None:
            listener("")
        return Answer(text, AnswerKind.ANSWER, MODE, "small_talk", sources=tuple(turn.sources))

    def _of_elsewhere(self, sentence: str, words: str, inventory: NameInventory, *, english: bool) -> Answer | None:
        """Say that nothing is known of another place, cluster or system, where a question names one."""
        if not (inventory.nodes or inventory.jobs):
            return None
        name = elsewhere(sentence, read_names(words, inventory), inventory, english=english)
        return Answer(elsewhere_told(name, inventory), AnswerKind.UNKNOWN, MODE, ELSEWHERE) if name else None

    def _answer(self, words: str, *, foreign: str, trusted: bool, listener: Listener | None) -> Answer:
        number = shown_source(words)
        if number is not None and self.state.sources:
            return source_shown(self.state.sources, number)
        if lifts_rules(words):
            return Answer(NO_RULE_LIFTED.format(mode=self._gate.policy.mode), AnswerKind.REFUSED, MODE, "refused")
        inventory = read_inventory(self._gate)
        if (answer := self._of_elsewhere(foreign or words, words, inventory, english=not foreign)) is not None:
            return answer
        words, self.state = spoken_before(plain_words(words, inventory), self.state, inventory)
        if (outright := outright_answer(self._gate, words, inventory, self.state, self._clock.now(), listener)) is not None:
            self.state = outright.state
            return outright.answer
        if question_text := held_question(words):
            answer = self._answer(question_text, foreign=foreign, trusted=False, listener=listener)
            return replace(answer, text=f"{NOTHING_DONE}\n{answer.text}")
        words = after_their_yes(read_names(words, inventory).masked, words) or words
        own = [number for number in self.state.proposed if number in inventory.approvals]
        right = corrected(words, self.state, lambda text: read_names(text, inventory))
        right = right or amended_order(words, self.state, inventory, self._gate)
        if own and not right and takes_back(words):
            return self._answer_by(
                "hold", words, inventory, lambda turn: withdrawal_told(turn, own), trusted=trusted, listener=listener
            )
        if undoes(words) and (node := only_drain_told(self.state, self._gate)):
            words = f"undrain {node}"
        elif undoes(words):
            return self._answer_by("changes", words, inventory, undo_told, trusted=trusted, listener=listener)

        def read(text: str) -> tuple[Names, OrderReading]:
            return self._read(text, inventory, foreign)

        if right:
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
        proposals = tuple(turn.proposals)
        return Answer("\n".join(lines), turn.kind, MODE, intent, sources=tuple(turn.sources), proposals=proposals)

    def _answer_scoped(
        self, words: str, inventory: NameInventory, read: Reader, *, trusted: bool, listener: Listener | None
    ) -> Answer:
        """Answer what a sentence orders, and say what it leaves out."""
        scope = order_scope(words, read)
        if scope is None:
            return self._answer_whole(words, inventory, read, trusted=trusted, listener=listener)
        spared = spared_with_users(scope.spared, inventory)
        scope = scope._replace(spared=spared)
        if scope.many:
            names = read(scope.order)[0]
            if (single := only_thing_left(scope.many, names, spared, inventory, self._gate)) is not None:
                order = f"{ORDER_VERBS[scope.many]} {single}"
                answer = self._answer_whole(order, inventory, read, spared=spared, trusted=trusted, listener=listener)
                return self._with_spared(
                    answer, words, spared, inventory, head=f'(Left by "{one_line(words, 120)}": {single} alone.)'
                )
            return self._answer_by(
                scope.many if scope.many in CHANGING else "cancel",
                words,
                inventory,
                lambda turn: all_but_told(turn, scope.many, scope.spared),
                names=names,
                trusted=trusted,
                listener=listener,
            )
        if (same := about_spared(scope, read)) is not None:
            return self._answer_whole(same, inventory, read, trusted=trusted, listener=listener)
        answer = self._answer_whole(scope.order, inventory, read, spared=scope.spared, trusted=trusted, listener=listener)
        return self._with_spared(answer, words, scope.spared, inventory)

    def _with_spared(self, answer: Answer, words: str, spared: Names, inventory: NameInventory, head: str = "") -> Answer:
        """Return an answer with what its order left out."""
        request = QuestionRequest(answer.intent, words, spared)
        turn = QuestionTurn(self._gate, inventory, request, self._clock.now(), sources=list(answer.sources))
        lines = [*filter(None, [head]), answer.text, *spared_told(turn, spared)]
        return replace(answer, text="\n".join(lines), sources=tuple(turn.sources))

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
        names = resolve_pointers(read(words)[0], self.state, inventory)
        if agrees(words):
            names = replace(names, approvals=names.approvals or agreed_approvals(self.state, inventory, self._gate))
        subject = "job" if names.jobs else "node" if names.nodes else self.state.subject
        condition, later = conditional_order(names.masked, lambda text: read_order(text, subject).kind is OrderKind.SERVED)
        if later:
            return self._answer_by(
                "hold",
                words,
                inventory,
                lambda turn: not_due_told(turn, condition),
                names=names,
                trusted=trusted,
                listener=listener,
            )
        answered = answers_approval(words, names, self._gate.call("list_approvals", {}, why="what is answered", by=BY).value or ())
        if answered:
            names = replace(names, approvals=answered)
            return self._answer_by("approve", words, inventory, approve, names=names, trusted=trusted, listener=listener)
        if (reported := reported_order(names.masked)) and read_order(reported, subject).kind is OrderKind.SERVED:
            return self._answer_by(
                "hold",
                words,
                inventory,
                lambda turn: reported_told(turn, reported),
                names=names,
                trusted=trusted,
                listener=listener,
            )
        order = self._order(names)
        if order.kind in (OrderKind.HOLD, OrderKind.UNSERVED):
            other_order = order_beside(words, read) if order.kind is OrderKind.HOLD else ""
            return self._without_proposal(order, words, names, inventory, other_order, trusted=trusted, listener=listener)
        if order.kind is OrderKind.SERVED and (odd := number_without_thing(names)):
            return question_back(
                QuestionRequest(order.change, words, names),
                f"No job and no node here is {odd}: which is meant? Nothing is proposed.",
                (),
            )
        besides = orders_besides(words, order.change, read) if order.kind is OrderKind.SERVED else []
        if order.kind is OrderKind.SERVED:
            ordered = ordered_names(words, names, order.change, read)
            if ordered is None:
                objects = ", ".join(names.jobs if order.change in ("cancel", "recover") else names.nodes)
                which = question_back(QuestionRequest(order.change, words, names), WHICH.format(objects), ())
                self.state = replace(self.state, pending=order.change, options=())
                return which
            several = names.jobs if order.change in ("cancel", "recover") else names.nodes
            if len(several) > 1 and ordered == names and not joined_plainly(names, order.change):
                return question_back(QuestionRequest(order.change, words, names), WHICH.format(", ".join(several)), ())
            names = ordered
        names = without(names, spared) if spared is not None else names
        excepted = excepted_names(words, read) if spared is None else None
        aspect = read_aspect(names, self.state, inventory) if order.kind is not OrderKind.SERVED else None
        names = aspect.names if aspect is not None else names
        intent = self._outright(words, names, aspect)
        choices = [IntentChoice(intent, 1.0)] if intent else choices_of(names, order, self.state, self._chooser)
        if is_unsure(choices) and (absent := unknown_told(names)):
            if not (has_figure(names) and (names.jobs or self.state.jobs)):
                return Answer(f"{absent} {KNOWN_HERE}", AnswerKind.UNKNOWN, MODE, "out_of_scope", options=("help",))
            choices = [IntentChoice("progress", 1.0)]
        request = filled_request(
            self._request(choices[0], words, names, aspect, follows=intent is not None),
            self.state,
            self._intents,
        )
        turn = RecoveringTurn(
            self._gate, inventory, request, self._clock.now(), trusted, listener=listener, recovery=self._recovery
        )
        turn.spoken_job, turn.spoken_step, turn.listed = next(iter(self.state.jobs), ""), self.state.step, self.state.listed
        turn.proposed = self.state.proposed
        query, job_note = query_of(turn), ""
        if request.intent in CHANGING and excepted is not None:
            return question_back(request, "Which things are meant? Only what is left out has a name; nothing is proposed.", ())
        if query is None:
            request = with_waiting_object(of_two_jobs(request), self._gate)
            turn.request, job_note = likeliest_job(request, inventory, self._intents[request.intent].needs)
            back = unsure_of_change(turn.request, order, choices) or asks_back(
                turn.request, choices, inventory, self._intents[turn.request.intent]
            )
            if back is not None:
                pending = turn.request.intent if back.options[:1] != ("help",) else ""
                self.state = replace(self.state, pending=pending, options=back.options)
                return back
        if listener is not None:
            listener("")
        lines = query_lines(turn, query) if query is not None else composed_lines(turn, request_lines)
        lines[1:1] = [job_note] if job_note else []
        lines += other_reading(turn.request, choices) if turn.kind is AnswerKind.ANSWER and query is None else ()
        if turn.request.intent in CHANGING:
            own = [number for number in self.state.proposed if number in inventory.approvals]
            lines += [*left_out_of_order(turn.request, besides), *own_waiting_told(turn, own)]
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

    def _outright(self, words: str, names: Names, aspect: AspectReading | None) -> str | None:
        """Return the intent where it is not left to choice: of an aspect, a yes, a follow-up."""
        if aspect is not None:
            return aspect.intent
        return "approve" if agrees(words) and not self.state.pending else follow_up(words, names, self.state)

    def _request(
        self, choice: IntentChoice, words: str, names: Names, aspect: AspectReading | None, *, follows: bool
    ) -> QuestionRequest:
        """Return what is asked; `and 11?` asks the same as the question before it, in the same form."""
        has_names = names.jobs or names.nodes or names.incidents or names.numbers
        same = follows and bool(has_names) and aspect is None and choice.intent == self.state.intent
        same = same and form_of(names.sketch) is QuestionForm.FREE
        return QuestionRequest(
            choice.intent,
            words,
            names,
            confidence=choice.probability,
            aspect=aspect.aspect if aspect is not None else self.state.aspect if same else "",
            form_text=self.state.sentence if same else "",
        )

    def orders(self, names: Names) -> bool:
        """Tell whether a question may ask for a change, by its own words."""
        wishes, order = CHANGING | {"plan", "approve"}, self._order(names)
        if order.kind in (OrderKind.HOLD, OrderKind.UNSERVED):
            return False
        return (
            sum(choice.probability for choice in choices_of(names, order, self.state, self._chooser) if choice.intent in wishes)
            >= ORDERED
        )

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
        held_off = order.verb == HELD_OFF and not names.users and "approv" not in words
        if (order.object_word in POINTERS or held_off) and not (
            names.jobs or names.nodes or names.incidents or names.numbers or names.strangers
        ):
            request = completed(request, names, self.state.only_subject())
        turn = RecoveringTurn(self._gate, inventory, request, self._clock.now(), trusted, listener=listener)
        if listener is not None:
            listener("")
        lines = list(order_told(turn, order))
        lines += [f'Not taken as an order: "{one_line(other_order, 120)}". Say it by itself if it is meant.'] if other_order else []
        self.state = self.state.spoken(request)
        return Answer("\n".join(lines), turn.kind, MODE, intent, sources=tuple(turn.sources))


_by_words = cache(WordChooser.load)
