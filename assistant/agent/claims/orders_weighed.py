"""Orders and a yes on a condition about now, jobs that only incidents know, orders in everyday words for the jobs of an account."""

from __future__ import annotations

import re

from assistant.agent.answer import AnswerKind, Proposal, one_line
from assistant.agent.claims.checks import check_node, job_fact, node_fact
from assistant.agent.claims.lexicon import NODE_STATES, change_in, state_in
from assistant.agent.claims.mentions import KNOWN_ELSEWHERE, USER, mentioned
from assistant.agent.claims.question import RecordQuestion
from assistant.agent.words import NameInventory
from assistant.store.calls import SHORT_DIGEST

_YES_IF = re.compile(
    r"^\W*(?:(?:yes|yep|yeah|ok|okay|sure|fine|alright|go ahead|do it|agreed|approved|ja|jo|klar|gut|in ordnung|mach(?:'s"
    r"| es)?|einverstanden)(?![a-zäöüß])"
    r"|可以|好的?|行|同意|是的|批准)[\s,.;:!，。-]*(?:(?:but|and|then|aber|dann|it|that|es|das|only|just|nur)\s+|[但，,\s]|不过)*"
    r"(?:(?:if|in case|as long as|provided|unless|when|once|after|wenn|falls|sofern|solange|sobald)(?![a-zäöüß])|如果|要是|只要"
    r"|除非|等|前提)"
)
_IF = re.compile(r"(?:but |aber )?(?:only |nur )?\b(?:if|in case|provided|falls|wenn|sofern)\b|如果|要是|假如|只有|的话")
_LATER = re.compile(r"\b(?:again|later|tomorrow|next|ever|will|until|wieder|später|morgen|nochmal)\b|再|以后|明天|之后")
_QUESTION = re.compile(r"^\W*(?:what|how|who|why|would|which|was|wie|wer|warum|what if)\b|什么|怎么|会怎")
_EVERYDAY = re.compile(
    r"\b(?:clear(?: (?:out|away|up|off))?|get rid of|clean up|chuck (?:out)?|throw (?:out|away)|toss|bin|take down"
    r"|tear down|wipe|ditch|kick (?:\S+ ){0,3}out|shut down"
    r"|abräumen|wegräumen|räum\w* (?:\S+ ){0,4}(?:weg|ab)|aufräumen|wegmachen|mach\w* (?:\S+ ){0,4}weg|wegwerfen|schmei(?:ß"
    r"|ss)\w* (?:\S+ ){0,4}(?:raus|weg)|rauswerfen"
    r"|wegschmeißen|rauskicken|plattmachen|loswerden|wirf (?:\S+ ){0,4}raus)\b|清掉|清理|干掉|弄掉|删掉|踢掉|处理掉|撤掉"
)
_BESIDE_ORDER = re.compile(
    r"\{\w+\}|'s\b|\b(?:please|pls|plz|thanks?|thx|ok(?:ay)?|hey|hi|and|now|just|right|can|could|would|will|you|we|i|me|us|for|want|need|like"
    r"|to|let's|lets|go|ahead|the|a|this|that|his|her|their|my|of|again|one"
    r"|bitte|danke|kannst|könntest|würdest|du|wir|ich|mir|uns|mal|doch|jetzt|einfach|und|den|die|das|dem|der|des|von|vom)\b"
    r"|请|帮我|给我|把|的|一下|吧|现在|麻烦|可以|吗"
)
"""What an order in everyday words may say besides verb, job and owner; `clear the log of 4830` says more, and cancels nothing."""
_REASON = re.compile(
    r"[,;.!，。；]\s*(?:(?:it|he|she|they|that|this|thanks?|please|es|er|sie|das|bitte|danke)\b|它|他|她|谢)|\b(?:because|weil)\b|因为"
)
_VERB_OF_CANCEL = re.compile(r"\b(?:cancel|kill|nuke|stop|abort|axe|terminate|end|scrap|quit|beende|stoppe?)\b|取消|停掉|终止|杀掉")
_CANCELS = re.compile(
    r"^\W*(?:(?:please|pls|ok|and|now|just|can you|could you|bitte|kannst du|und)\s+)*(?:cancel|kill|nuke|stop|abort|axe"
    r"|terminate|end|scrap|quit|beende|stoppe?)"
    r"\s+\{u\d+\}|^\W*(?:请|帮我)?(?:取消|停掉|终止|杀掉)\s*\{u\d+\}|^\W*把\s*\{u\d+\}.*(?:取消|停掉|终止|杀掉)"
)
_JOB_WORD = re.compile(r"\b(?:jobs?|runs?|trainings?|läufe?|lauf)\b|作业|任务")
_TELLS = re.compile(
    r"^\W*(?:did|has|have|was|were|why|who|when|how|which|what|hat|wurde|warum|wer|wann|should|shall|soll\w*|if|wenn)\b|[了过]吗|为什么|谁|要不要"
)
_HOLD = re.compile(r"\b(?:not|never|don't|dont|nicht|kein\w*|nie)\b|别|不要|不")
ALIVE = ("running", "pending")
MOST_NAMED = 4


def conditional_yes(question: RecordQuestion) -> list[str]:
    """Answer `yes if it is safe`: no words allow anything, and the card of what was proposed is where it is answered."""
    turn, proposed = question.turn, question.dialogue.proposed
    if not proposed or not _YES_IF.match(question.text) or change_in(_YES_IF.sub(" ", question.text)):
        return []
    waiting = turn.look("list_approvals")
    row = next((row for row in reversed(waiting.value or ()) if row["approval"] in proposed), None)
    if row is None:
        return []
    turn.kind = AnswerKind.REFUSED
    turn.proposals.append(
        Proposal(row["tool"], row["arguments"], row["change"], row["approval"], digest=row["digest"][:SHORT_DIGEST], joined=True)
    )
    arguments = row["arguments"]
    fact = job_fact(turn, str(arguments["job"]))[1] if arguments.get("job") in turn.inventory.jobs else ""
    fact = fact or (node_fact(turn, str(arguments["node"]))[1] if arguments.get("node") in turn.inventory.nodes else "")
    return [
        f"A yes on a condition is none: approval {row['approval']} goes on waiting, and is answered on its own card: "
        f"{one_line(row['change'], 160)} [{waiting.number}].",
        *([f"For whether the condition holds: {fact}."] if fact else []),
        f"  nightshift approve {row['approval']}, or nightshift deny {row['approval']}",
    ]


def conditional_drain(question: RecordQuestion) -> list[str]:
    """Answer `drain node05 but only if it has errors`: the condition is about now, and is looked up."""
    text, node = question.text, question.node
    match = _IF.search(text)
    if match is None or not node or question.mention.jobs or _QUESTION.search(text) or _LATER.search(text) or text.endswith("?"):
        return []
    condition_text, before = text[match.end() :], text[: match.start()]
    order, condition = (
        (before, condition_text)
        if change_in(before)
        else (re.split(r"[,，]|就|\bthen\b|\bdann\b", condition_text)[-1], condition_text)
    )
    change = change_in(order)
    state, _ = state_in(condition if order == before else condition.replace(order, " "), NODE_STATES)
    if change not in ("cordon", "uncordon") or not state or state == "drained":
        return []
    turn = question.turn
    turn.kind = AnswerKind.REFUSED
    result = check_node(turn, node, state)
    if result.holds:
        return [
            f"Not proposed on a condition, which holds by the record: {result.fact}. To order it, say it without the condition."
        ]
    return [
        f"Not proposed: the condition does not hold by the record: {result.fact}.",
        f"To run the health probes on it: check {node}",
    ]


def known_from_incidents(question: RecordQuestion) -> list[str]:
    """Answer a question about a job that the scheduler has forgotten and a note of an incident names."""
    numbers = question.mention.of_kind(KNOWN_ELSEWHERE)
    if len(numbers) != 1 or question.mention.jobs or (change_in(question.text) and not question.asks):
        return []
    turn = question.turn
    listed = turn.look("list_incidents", limit=400)
    row = next((row for row in listed.value or () if re.search(rf"(?<!\d){re.escape(numbers[0])}(?!\d)", str(row["note"]))), None)
    if row is None:
        return []
    turn.incidents.append(row["incident"])
    of = f", the incident about job {row['job']}" if row["job"] else ""
    return [
        f"Known only from incident {row['incident']}{of}, which is {row['state']}: {one_line(row['note'], 200)} [{listed.number}].",
        f"The scheduler holds no record of job {numbers[0]}: its state, its nodes and whether it still runs are not known here.",
    ]


def everyday_order(sentence: str, inventory: NameInventory) -> tuple[str, str]:
    """Return `cancel 4831` for `get rid of dave's job`, or else what to answer; two empty texts for another sentence.

    Args:
        sentence: As it was typed.
        inventory: What exists.
    """
    mention = mentioned(sentence, inventory)
    if mention is None or not _orders_all_of(mention.text) or _TELLS.search(mention.text) or _HOLD.search(mention.text):
        return "", ""
    users, jobs = mention.of_kind(USER), mention.jobs
    if len(mention.names) != 1 or not (jobs or (len(users) == 1 and _JOB_WORD.search(mention.text))):
        return "", ""
    owner = users[0] if users else inventory.owners.get(jobs[0], "")
    theirs = list(jobs) or [job for job, user in reversed(list(inventory.owners.items())) if user == owner]
    alive = [job for job in theirs if inventory.states.get(job) in ALIVE]
    if len(alive) == 1:
        return f"cancel {alive[0]}", ""
    rows = ", ".join(
        f"{job} ({inventory.jobs[job]}, {inventory.states.get(job, 'unknown')})" for job in (alive or theirs)[:MOST_NAMED]
    )
    if alive:
        return "", f"Which job of {owner}'s? {rows}. Nothing is proposed; say for instance: cancel {alive[0]}"
    return "", f"Nothing to cancel: no job of {owner}'s runs or waits; {owner} has {rows or 'none on record'}. Nothing is proposed."


def _orders_all_of(text: str) -> bool:
    """Return whether a sentence is an everyday order about a job and about nothing of it, such as its log or its checkpoints."""
    order = _REASON.split(text, maxsplit=1)[0]
    if "{" not in order or text.startswith(">") or not (_EVERYDAY.search(order) or _CANCELS.match(order)):
        return False
    for part in (_VERB_OF_CANCEL, _EVERYDAY, _JOB_WORD, _BESIDE_ORDER):
        order = part.sub(" ", order)
    return not re.search(r"\w", order)
