"""What a sentence orders: the verb that governs a thing, whether it is forbidden, and whether Nightshift has such a change.

A sentence is read clause by clause. The verb of a clause is its first word behind greetings and polite forms, or the one behind
`must`, `should` and the like. A negation holds for the verb behind it, and to forbid the normal work of a node is to order that it
is taken out of scheduling. knowledge/verbs.toml says which verb with which kind of thing is a change that can be proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from assistant.agent.holds import holds_off
from assistant.agent.plain_english import plain_text, renounced, without_interjections
from assistant.agent.verbs import base_of, change_of_move, is_verb, verbs
from assistant.agent.words import stem


class OrderKind(StrEnum):
    """What the words of a sentence allow to be done for it, the weightiest first."""

    HOLD = "hold"
    """It forbids a change: nothing is proposed."""
    UNSERVED = "unserved"
    """Its verb is a change that Nightshift does not have, or not for this kind of thing."""
    SERVED = "served"
    """Its verb is a change that can be proposed."""
    STATEMENT = "statement"
    """It says that something is not so: no change may be read out of it."""
    OPEN = "open"
    """No order, or one whose verb says too little."""


class OrderReading(NamedTuple):
    """What a sentence orders, as far as its words tell."""

    kind: OrderKind
    verb: str = ""
    """As it stands in the sentence."""
    change: str = ""
    """Intent of the change; empty where there is none."""
    object_kind: str = ""
    """`job`, `node`, `gpu`, `incident`, `checkpoint`, `log`, `program`, `other`; empty where no thing is named."""
    object_word: str = ""
    does: str = ""
    """What Nightshift does, or does not, in that respect: a predicate."""


_EXCEPTED = re.compile(
    r"\b(?:except|excluding|other than|apart from|save|(?:all|everything|anything|any|every\w*) but|besides)"
    r"(?: for)? (?:the |job |node )*\{(job|node|incident)\}"
)
_CONSTRAINT = re.compile(r"(?:,|\bbut)? ?(?:but |and )?not (?=(?:on|with|using) )|, ?(?=without )")
_BREAK = re.compile(r"[,;.!?]+|\s[-:]+\s|\b(?:but|then|because|as long as|so that|until|unless|while|yet)\b")
_JOIN = re.compile(r"\b(?:and|or|so|also)\b")
_SUBORDINATE = re.compile(r"^(?:because|since|as|if|when|once|after|while|until|unless|although|though)\b")
_ASKS = re.compile(
    r"^(?:what|which|who|whose|whom|where|when|why|how|whats|is|are|was|were|am|did|does|has|have|had|any|"
    r"do (?:not )?(?:i|we|you|they|the|our|my)|"
    r"(?:can|may|must|should|shall|could) (?:i|we|the|it|they|{)|would (?!you\b))(?:\b|(?<={))"
)
_LEADER = re.compile(
    r"^(?:please|pls|kindly|hey|hi|hello|ok|okay|so|now|just|well|also|and|or|um|alright|right|yes|sure|nightshift|tonight|today"
    r"|for (?:now|the moment|today|tonight)|better|rather|would you mind"
    r"|(?:can|could|would|will) (?:you|we|somebody|someone|anybody)"
    r"|how about|what about|let us|go ahead(?: and)?|try to|be sure to|remember to|feel free to|i would like"
    r"|(?:i|we) (?:want|need|would like|wish|order|beg|ask|told)(?: (?:you|nightshift|somebody|someone))?(?: to)?|want you to"
    r"|make (?:sure|certain)(?: that)?|ensure(?: that)?|see to it(?: that)?|i said|(?:you|we|somebody|someone) (?:can|could|may|"
    r"should|must|need to|have to|shall)|time to|it is time to|the best is to)\b\s*"
)
_NEGATED = re.compile(
    r"^(?:(?:you |we |somebody |let us )(?:can|could|would|will|need|might) not"
    r"|(?:you |we |somebody |let us )?(?:do|must|should|shall|may|(?:had )?better) not"
    r"|not|never|nobody|nothing|none|neither|nor|(?:i|we) do not (?:want|wish|like)(?: (?:you|anybody|anyone|nightshift))?(?: to)?"
    r"|in no case|under no circumstances|by no means)\b\s*(?:(?:please|ever|just|yet|now|even|to|be|get|is|gets|may|must|"
    r"should|shall|can|will|you|anybody|anyone)\b\s*)*"
)
_AFFIRMED = re.compile(r"^(?:forget|hesitate|fail|omit|neglect)\s+to\s+")
_MODAL = re.compile(
    r"^(?P<subject>(?:(?!\b(?:that|which|who)\b).){1,80}?)\s(?P<aux>must|should|shall|may|can|could|needs?|ha(?:s|ve) to"
    r"|(?:is|are) (?:not )?to be|is|are|was|were|did|does|do|will|would|has|have|had|stays?|remains?|keeps?)\b\s*(?P<rest>.*)$"
)
_DENIED_STATE = re.compile(
    r"^(?:nobody|nothing|none(?: of \w+)?|neither)\s+(?:is|are|was|were|did|does|do|has|have|had|happened"
    r"|will|would|else)\b(?! to\b)"
)
_ENSURED = re.compile(r"\b(?:make (?:sure|certain)|ensure|see to it)\b")
_NOT_THAT_ONE = re.compile(r"\bnot (?:that|this) one\b")
_NOT_NOW = re.compile(r"(?<!why )(?<!if )(?<!or ),? ?(?:but |just )?\bnot (?:right |just )?(?:now|yet|so soon|today|this minute)\b")
_DOUBTED = re.compile(
    r"\b(?:not (?:so |really |quite |too |at all )?(?:sure|certain)|unsure|uncertain|undecided|no idea|don'?t know|do not know)\b"
    r"(?! (?:why|what|how|who|where|when|which)\b)|\bmaybe (?:not|better not|later)\b|\bi doubt\b|\bor maybe not\b"
)
"""Whoever says so orders nothing yet: `cancel it? not sure`."""
_MANY = frozenset({"everything", "all", "anything", "both"})
NOT_THIS = "not"
"""In place of the verb of a clause that only excepts a thing: `not {node}`."""
HELD_OFF = "hold off"
"""In place of the verb of a sentence that holds a change off by an idiom."""
ONE_AT_A_TIME = "Nightshift proposes a change for one named thing at a time"
_ORDERING_AUX = ("must", "should", "shall", "may", "can", "could", "need", "needs", "has to", "have to", "stay", "stays")
_TELLS = re.compile(
    r"(?:i|we|they|he|she|user|somebody|someone)\s+(?:(?:already|just|only|also|once|all)\s+)?"
    r"(?!need\b|heed\b|feed\b|speed\b|shed\b)(?:\w+ed|put|took|set|kept|made|held|began|chose|thought|said|did|had|got|went)\b"
)
"""`we drained it`: that was done, and is no order."""
_NOT = re.compile(r"\b(?:not|never|no longer|nobody|nothing|none|neither|nor|without)\b")
_WORD = re.compile(r"\{\w+\}|[a-z][a-z'_-]*[a-z]|[a-z]")
_PREPOSITIONS = frozenset(
    "on of in for from to with by at under into onto over without after before until across between among against "
    "if when once unless while whenever because via within through as than since during about".split()
)
_TOWARDS = frozenset({"to", "into", "onto", "on", "in", "with", "at", "about"})
_SKIPPED = frozenset(
    "the a an my our your his their its this that these those up down out back again off away now please all".split()
)
_DETERMINERS = frozenset("the a an my our your his her their its this that these those all both every each any some no".split())
_PRONOUNS = frozenset("i you we they he she it this that there".split())
_AWAY = re.compile(
    r"\b(?:hands|fingers|paws|eyes) (?:off|away)\b|\b(?:stay|stays|steer|keep|keeps|remain) (?:well )?(?:away|off|clear|out)\b"
    r"|\bhold (?:off|on|back|your)\b"
)


def read_order(sentence: str, referent: str = "") -> OrderReading:
    """Return what a sentence orders; an interjection before it, `nah`, `wait,`, is no part of it where the rest says something.

    Args:
        sentence: With `{job}`, `{node}`, `{incident}` in place of names.
        referent: The kind of thing that was spoken of last, for `it` and `that`.
    """
    text = renounced(plain_text(sentence))
    if holds_off(text):
        reading = _read(without_interjections(text), referent)
        if reading.kind is OrderKind.HOLD and reading.change:
            return reading
        kind, word = _named_object(text, referent)
        return OrderReading(OrderKind.HOLD, HELD_OFF, "", kind, word)
    order_text, full_reading = without_interjections(text), _read(text, referent)
    if order_text == text:
        return full_reading
    reading = _read(order_text, referent)
    says_little = reading.kind in (OrderKind.OPEN, OrderKind.STATEMENT)
    return full_reading if says_little and full_reading.kind is OrderKind.HOLD else reading


def _named_object(text: str, referent: str) -> tuple[str, str]:
    """Return the kind of what a sentence names, or of what it points back to."""
    slot = re.search(r"\{(job|node|incident)\}", text)
    pointer = re.search(r"\b(?:it|that|this|them|those)\b", text)
    return (slot[1], slot.group()) if slot else (referent, pointer.group()) if pointer else ("", "")


def _read(text: str, referent: str) -> OrderReading:
    if "{" not in text and _NOT_THAT_ONE.search(text) and not text.rstrip().endswith("?"):
        return OrderReading(OrderKind.HOLD, NOT_THIS, "", referent, "that")
    text = re.sub(r",? or not\b", "", text)
    asks = text.rstrip().endswith("?")
    if not asks and (later := _NOT_NOW.sub(" ", text)) != text and (reading := _read(later, referent)).kind is OrderKind.SERVED:
        return reading._replace(kind=OrderKind.HOLD)
    if (doubted := _DOUBTED.search(text)) is not None:
        certain = f"{text[: doubted.start()]} {text[doubted.end() :]}".strip(" ?,.")
        reading = _read(certain, referent) if re.search(r"\w", certain) else OrderReading(OrderKind.OPEN)
        return reading._replace(kind=OrderKind.HOLD) if reading.kind is OrderKind.SERVED else reading
    if asks and (
        re.search(r"\b(?:how|what|which|why|when|where|who)\b", text) or not re.search(r"\{|\b(?:it|that|this|them)\b", text)
    ):
        return OrderReading(OrderKind.OPEN)
    if _ASKS.match(_without_leaders(text)) or (asks and re.match(r"\W*(?:no|not|nothing|nobody|none)\b", text)):
        return OrderReading(OrderKind.OPEN)
    excepted = _EXCEPTED.search(text)
    if excepted and (excepted[1] != "node" or not _restarts(text)):
        return OrderReading(OrderKind.HOLD, "except", "", excepted[1], f"{{{excepted[1]}}}")
    text = _CONSTRAINT.sub(lambda match: " without " if "not" in match.group() else " ", text)
    referent = _spoken_before(text) or referent
    clauses = list(_clauses(text))
    readings = [_clause(clause, referent) for clause in clauses]
    if not any(reading.kind in (OrderKind.SERVED, OrderKind.UNSERVED) for reading in readings):
        # `the messages of the scheduler, not the log` forbids nothing
        readings = [reading._replace(kind=OrderKind.STATEMENT) if reading.verb == NOT_THIS else reading for reading in readings]
    order = list(OrderKind)
    weighed = [(order.index(reading.kind), "{" not in clause) for reading, clause in zip(readings, clauses, strict=True)]
    return readings[weighed.index(min(weighed))] if readings else OrderReading(OrderKind.OPEN)


def _spoken_before(text: str) -> str:
    """Return the kind of the name that stands before the first pronoun of a sentence."""
    slot, pronoun = re.search(r"\{(job|node|incident)\}", text), re.search(r"\b(?:it|that|this|them|they)\b", text)
    return slot[1] if slot and (pronoun is None or slot.start() < pronoun.start()) else ""


def _restarts(text: str) -> bool:
    return any(word in verbs().change["recover"][0] for word in _WORD.findall(text))


def fits_change(reading: OrderReading, intent: str, learned: frozenset[str]) -> bool:
    """Tell whether the words of an order may mean a change.

    Args:
        reading: Of the order.
        intent: Of the change.
        learned: Stems of the words of known sentences that ask for it.
    """
    if reading.kind is OrderKind.SERVED:
        return reading.change == intent or (not reading.object_kind and reading.verb in verbs().change[intent][0])
    if reading.kind is not OrderKind.OPEN:
        return False
    inventory = verbs()
    is_verb = not reading.verb or reading.verb in inventory.kinds["light"] or stem(reading.verb) in learned
    is_thing = reading.object_kind != "other" or stem(reading.object_word) in learned
    return is_verb and is_thing


def _without_leaders(text: str) -> str:
    text = text.strip(" ,:;-")
    while (match := _LEADER.match(text)) and match.end() and not _NEGATED.match(text):
        text = text[match.end() :].strip(" ,:;-")
    return text


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a sentence; `and` parts two of them where a verb or a negation follows."""
    for part in _BREAK.split(text):
        start = 0
        for match in _JOIN.finditer(part):
            following = _without_leaders(part[match.end() :])
            first = _WORD.match(following)
            if first and (_NEGATED.match(following) or is_verb(first.group())):
                yield part[start : match.start()]
                start = match.end()
        yield part[start:]


def _clause(clause: str, referent: str) -> OrderReading:
    text = _without_leaders(clause)
    if not text or _SUBORDINATE.match(text) or _DENIED_STATE.match(text):
        return OrderReading(OrderKind.STATEMENT if _NOT.search(text) else OrderKind.OPEN)
    if re.fullmatch(r"(?:nope|nah|never ?mind|forget (?:it|that|about it))(?: please)?", text):
        return OrderReading(OrderKind.HOLD, "no")
    negated, weak, subject = False, False, ""
    while match := _NEGATED.match(text):
        # `not sure`, `nobody knows` say something; `do not VERB` orders
        weak = weak or not re.search(r"\b(?:do|must|shall|should|may|can|could|better|case|circumstances|means)\b", match.group())
        subject = match.group().split()[0]
        negated, text = True, _without_leaders(text[match.end() :])
    if affirmed := _AFFIRMED.match(text):
        negated, text = not negated, text[affirmed.end() :]
    words = _words(text)
    if not words:
        return OrderReading(OrderKind.HOLD, "no") if negated else OrderReading(OrderKind.OPEN)
    if words[0] == "no":
        return _denied_noun(words, referent)
    is_named = words[0] in _DETERMINERS | _PRONOUNS or words[0].startswith("{") or _is_noun(words)
    if not negated and is_named:
        return _declared(text, referent, ensured=bool(_ENSURED.search(clause)))
    if negated and is_named and (match := _MODAL.match(text)):
        text = f"{match['rest']} {match['subject']}"
        words = _words(text)
    if negated and is_named and words[0] not in _PRONOUNS:
        return OrderReading(OrderKind.HOLD, NOT_THIS, "", *_object_of(["", *words], referent))
    verb = words[0]
    if not negated and verb != (_WORD.findall(text) or [""])[0] and text.split()[0].endswith("ed"):
        return OrderReading(OrderKind.OPEN)  # `drained nodes` orders nothing
    if negated and verb in verbs().kinds["read"]:
        return OrderReading(OrderKind.STATEMENT)
    plain = (_WORD.findall(text) or [""])[0] == verb
    is_order = is_verb(verb) and (plain if subject != "nobody" else verb not in verbs().kinds["work"])
    if negated and weak and not ((is_order and subject != "nothing") or is_named or verb in ("yet", "now", "on", "so")):
        return OrderReading(OrderKind.STATEMENT)
    return _governed(words, text, referent, negated=negated)


def _words(text: str) -> list[str]:
    """Return the words of a clause, its first one as a verb of the inventory where it is a form of one."""
    words = _WORD.findall(text)
    return [base_of(words[0]), *words[1:]] if words else []


def _is_noun(words: Sequence[str]) -> bool:
    """Tell whether a clause begins with a thing: a word that is a verb as well is one only beside what it names."""
    if words[:1] == ["log"] and words[1:2] and words[1] in ("in", "into", "on", "onto"):
        return False
    if words[0] not in verbs().nouns:
        return False
    return not is_verb(words[0]) or (len(words) > 2 and words[1].startswith("{") and bool(_MODAL.match(" ".join(words))))


def _denied_noun(words: Sequence[str], referent: str) -> OrderReading:
    """Return what `no restart of {job}`, `no more jobs on {node}` orders; a lonely `no` is an answer."""
    tail = [word for word in words[1:] if word not in ("more", "longer", "new", "further", "other")]
    if _forbids_work(tail, referent):
        return OrderReading(OrderKind.SERVED, "no", "cordon", "node")
    kind, word = _object_of(["", *tail], referent)
    inventory = verbs()
    head = base_of(tail[0]) if tail else ""
    changes = {stem(verb) for family_verbs, _, _ in inventory.change.values() for verb in family_verbs} | {
        stem(verb) for verb in inventory.kinds["touch"]
    }
    is_bare = len(tail) < 2 or tail[1] in _PREPOSITIONS or tail[1] in _SKIPPED or tail[1].startswith("{") or tail[0].endswith("ing")
    if not tail or (stem(head) in changes and head not in inventory.kinds["adjective"] and is_bare):
        return OrderReading(OrderKind.HOLD, "no", "", kind, word)
    return OrderReading(OrderKind.STATEMENT)


def _declared(text: str, referent: str, *, ensured: bool) -> OrderReading:
    """Return what a sentence with a subject orders: `{job} must not be restarted`, `{node} stays in`."""
    match = _MODAL.match(text)
    if match is None:
        is_told = _NOT.search(text) or _TELLS.match(text)
        return OrderReading(OrderKind.HOLD if _AWAY.search(text) else OrderKind.STATEMENT if is_told else OrderKind.OPEN)
    aux, tail, subject = match["aux"], match["rest"], match["subject"]
    kind, word = _object_of(["", *_WORD.findall(subject)], referent)
    negated = bool(re.match(r"(?:not|never|no longer)\b", tail)) or " not " in f" {aux} "
    if negated and aux in ("can", "could"):
        return OrderReading(OrderKind.STATEMENT)
    if aux.startswith(("stay", "remain", "keep")):
        is_in = not set(_WORD.findall(tail)) & {"out", "drained", "cordoned", "aside", "offline", "away"}
        return OrderReading(OrderKind.HOLD, aux, "", kind, word) if is_in else OrderReading(OrderKind.OPEN)
    if aux not in _ORDERING_AUX and not aux.endswith("to be") and not (ensured and negated):
        return OrderReading(OrderKind.STATEMENT if negated or _NOT.search(tail) else OrderKind.OPEN)
    tail = re.sub(r"^(?:(?:not|never|no longer|to|be|get|being|now|please|ever)\b\s*)+", "", tail)
    words = _words(tail)
    if not words:
        return OrderReading(OrderKind.HOLD if negated else OrderKind.OPEN, "", "", kind, word)
    if _forbids_work([*words, *_WORD.findall(subject)], referent) and negated and kind in ("node", ""):
        return OrderReading(OrderKind.SERVED, words[0], "cordon", "node")
    if negated and kind == "job" and set(words) & {"run", "running", "continue", "needed"}:
        # it may ask for the end of the job or for no restart
        return OrderReading(OrderKind.STATEMENT)
    return _governed([*words, *_WORD.findall(subject)], tail, referent, negated=negated)


_RUNNING = frozenset("run running start continue go on finish".split())


def _governed(words: Sequence[str], text: str, referent: str, *, negated: bool) -> OrderReading:
    """Return what the first word orders of the thing behind it."""
    inventory, verb = verbs(), words[0]
    kind, word = _object_of(words, referent)
    if negated:
        if verb == "let" and kind == "job" and set(words) & _RUNNING:
            return OrderReading(OrderKind.STATEMENT)  # it may ask for its end, or for no restart
        if _forbids_work(words, referent):
            return OrderReading(OrderKind.SERVED, verb, "cordon", "node")
        return OrderReading(OrderKind.HOLD, verb, _change_of(verb), kind, word)
    if (verb in inventory.kinds["spare"] or verb == "stop") and (gerund := _gerund(words)):
        # `stop restarting it`, `refrain from touching it` forbid; `stop placing jobs on it` orders a cordon
        following = words[gerund:]
        work = _forbids_work([stem(following[0]), *following[1:]], referent)
        return (
            OrderReading(OrderKind.SERVED, following[0], "cordon", "node")
            if work
            else OrderReading(OrderKind.HOLD, following[0], _change_of(base_of(following[0])), *_object_of(following, referent))
        )
    if len(words) > 1 and words[1] in ("nothing", "not") and (verb in inventory.kinds["light"] or verb in inventory.kinds["touch"]):
        return OrderReading(OrderKind.HOLD, verb, "", kind, word)
    if len(words) > 1 and words[1] in ("of", "in", "for") and verb not in ("get", "log"):
        return OrderReading(OrderKind.OPEN)  # a noun, as in `backup of {job}`
    if (_leaves(words) and kind not in ("other", "program", "check")) or (
        _AWAY.search(text) and not set(words) & inventory.kinds["work_objects"]
    ):
        return OrderReading(OrderKind.HOLD, verb, "", kind, word)
    if verb in inventory.kinds["spare"] and verb not in ("stop", "hold", "skip", "wait", "cease", "quit") and _is_named(words):
        return OrderReading(OrderKind.HOLD, verb, "", kind, word)
    if verb in ("wait", "hold") and (not kind or "with" in words):
        return OrderReading(OrderKind.HOLD, verb, "", kind, word)
    if verb == "log" and len(words) > 1 and words[1] in ("in", "into", "on", "onto"):
        return OrderReading(OrderKind.UNSERVED, "log in", "", kind, word, inventory.shell)
    reading = _served(verb, kind, word, words)
    denies = reading.kind is OrderKind.OPEN and _NOT.search(re.sub(r"\bwithout\b", "", text)) and not _forbids_work(words, referent)
    return reading._replace(kind=OrderKind.STATEMENT) if denies else reading


def _served(verb: str, kind: str, word: str, words: Sequence[str]) -> OrderReading:
    inventory, light = verbs(), verb in verbs().kinds["light"]
    is_named, has_slot = _is_named(words), any(part.startswith("{") for part in words)
    is_compound = len(words) > 2 and words[1] not in _DETERMINERS | _MANY and (words[2] in ("of", "for", "in") or not is_named)
    if is_compound and verb in inventory.kinds["noun"] and kind not in ("job", "node"):
        return OrderReading(OrderKind.OPEN)
    if verb in ("turn", "switch", "power") and kind in ("node", "gpu") and set(words) & {"off", "on", "down", "up", "cycle"}:
        return OrderReading(OrderKind.UNSERVED, verb, "", kind, word, inventory.power)
    if change := change_of_move(verb, kind, words):
        return OrderReading(OrderKind.SERVED, verb, change, "node", word)
    if kind == "cordon" and verb in inventory.change["cancel"][0] | inventory.change["uncordon"][0]:
        return OrderReading(OrderKind.SERVED, verb, "uncordon", "node", word)
    families = {name: (objects, does) for name, (names, objects, does) in inventory.change.items() if verb in names}
    for name, (objects, does) in families.items():
        if kind in ("", *objects) or (kind == "incident" and word in ("it", "that", "this")):
            is_plural = word in _MANY or (word.endswith("s") and word in inventory.nouns)
            alone = not any(part.startswith("{") for part in words)
            if is_plural and alone and not is_named and verb in inventory.kinds["adjective"]:
                return OrderReading(OrderKind.OPEN, verb, "", kind, word)
            if is_plural and alone and not light:
                return OrderReading(OrderKind.UNSERVED, verb, "", kind, word, ONE_AT_A_TIME)
            return OrderReading(OrderKind.SERVED, verb, name, kind, word, does)
    if not kind and (not word or light):
        return OrderReading(OrderKind.OPEN, verb)
    for names, objects, does in inventory.unserved:
        if (
            verb in names
            and (not objects or kind in objects or not kind)
            and (is_named or verb not in inventory.kinds["adjective"])
        ):
            return OrderReading(OrderKind.UNSERVED, verb, "", kind, word, does)
    if (
        not families
        and not light
        and verb not in inventory.kinds["work"]
        and is_named
        and kind in ("job", "node", "gpu", "incident")
    ):
        for names, _, does in inventory.unserved:
            if verb in names:
                return OrderReading(OrderKind.UNSERVED, verb, "", kind, word, does)
    if families and has_slot and kind not in ("", "check") and not light and verb not in inventory.kinds["read"]:
        does = " and ".join(does for _, does in families.values())
        return OrderReading(OrderKind.UNSERVED, verb, "", kind, word, f"For Nightshift to {verb} is what {does}, nothing else")
    return OrderReading(OrderKind.OPEN, verb, "", kind, word)


def _is_named(words: Sequence[str]) -> bool:
    """Tell whether what a verb governs is a certain thing: a name, a pronoun, a noun with an article."""
    nouns = verbs().nouns
    return any(part.startswith("{") or part in _DETERMINERS or nouns.get(part) == "pointer" for part in words[1:])


def _change_of(verb: str) -> str:
    return next((name for name, (names, _, _) in verbs().change.items() if verb in names or stem(verb) in map(stem, names)), "")


def _gerund(words: Sequence[str]) -> int:
    """Return the place of a verbal noun right behind a verb, 0 where there is none."""
    place = 2 if len(words) > 2 and words[1] in ("from", "with") else 1
    is_there = len(words) > place and words[place].endswith("ing") and words[place] not in verbs().nouns
    return place if is_there else 0


def _leaves(words: Sequence[str]) -> bool:
    """Tell whether a thing is to be left as it is: `leave it alone`, `let it run`, `keep it running`."""
    kinds, tail = verbs().kinds, set(words[1:])
    if words[0] not in kinds["leave"] or tail & kinds["leave_not"] or words[1:2] in (["me"], ["us"]):
        return False
    return bool(tail & kinds["leave_as"]) or (words[0] == "leave" and len(words) > 1)


def _forbids_work(words: Sequence[str], referent: str) -> bool:
    """Tell whether what is forbidden is that jobs come to a node."""
    kinds = verbs().kinds
    if "{job}" in words or not ("{node}" in words or (referent == "node" and set(words) & {"it", "there", "that", "this", "them"})):
        return False
    works = {stem(word) for word in words} & {stem(verb) for verb in kinds["work"]}
    work_nouns = set(words) & kinds["work_objects"]
    direct = bool(works & {stem(word) for word in ("schedule", "allocate", "use")})
    back = set(words) & {"back", "again", "in", "into", "service", "pool"}
    return (bool(work_nouns) and not back) or (direct and not back)


def _object_of(words: Sequence[str], referent: str) -> tuple[str, str]:
    """Return the kind of the thing that the first word governs, and its word: the last known noun before a preposition."""
    nouns, kind, name = verbs().nouns, "", ""
    for place, word in enumerate(words[1:], 1):
        if word in _PREPOSITIONS:
            if place == 1 and word in _TOWARDS:
                continue
            if not kind and place > 1 and name == "" and word in _TOWARDS:
                continue
            break
        if word in ("{span}", "{n}", "{text}"):
            continue
        word_kind = word.strip("{}") if word.startswith("{") else nouns.get(word.removesuffix("'s"), "")
        if word_kind == "pointer":
            if not kind:
                kind, name = referent or "pointer", word
        elif word_kind:
            kind, name = word_kind, word
        elif not kind and word not in _SKIPPED and word != "user":
            name = name or word
    if not kind and name:
        kind = "other"
    return ("" if kind == "pointer" else kind), name


def stems_of(sentences: Sequence[str]) -> frozenset[str]:
    """Return the stems of the words of sentences."""
    return frozenset(stem(word) for text in sentences for word in _WORD.findall(text.lower()))
