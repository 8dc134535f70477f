"""Orders for all but some, in any of the languages, as one plain sentence; and what such an order may never be about."""

from __future__ import annotations

import re

from assistant.agent.claims.lexicon import NEGATES, change_in
from assistant.agent.claims.mentions import MentionedNames, mentioned
from assistant.agent.claims.orders_weighed import everyday_order
from assistant.agent.words import NameInventory

_ALL = (
    r"(?:everything|everybody|all(?: of)?(?: the| my| our)?|every(?: single)?|any|anything|each|whatever|alle[srmn]?"
    r"|sämtliche\w*|jede[nrs]?)"
    r"(?: (?:other|else|(?:the )?failed|dead|crashed|(?:jobs?|runs?|nodes?|trainings?|ones|stuff|knoten|läufe)"
    r"|fehlgeschlagenen?|gescheiterten?))*"
)
_ALL_ZH = r"(?:其他|其余|别的|剩下|所有|全部|都|一切|全都|的失败)"
_LEFT_OUT = (
    r"(?:with the exception of|leaving out|sparing|except(?: for| that of| those of)?|excluding|excepting|apart from"
    r"|aside from|other than|save for|but(?: not)?|bar"
    r"|besides|without|not counting|minus"
    r"|that (?:is|are) not|which (?:is|are) not|not belonging to|außer|ausser|bis auf|ausgenommen|abgesehen von"
    r"|mit ausnahme von|ohne|nur nicht|aber nicht)"
)
_SPARED_NAMES = (
    r"(?:(?:the |what |whatever |belongs? to |belonging to |owned by |is |those |ones |that |of |from |by |den(?:en)? |die "
    r"|der |das |von |job |jobs |node |nodes |run |runs |und "
    r"|and |or |knoten |auf )*"
    r"\{[jnu]\d+\}(?:'s|s)?(?: (?:jobs?|runs?|nodes?|ones?|stuff|läufe|trainings?))?(?:\s*(?:,|and|und|or|&)?\s*))+"
)
_SPARED_NAMES_ZH = r"(?:\s*\{[jnu]\d+\}\s*(?:的)?(?:那个|那些)?(?:作业|任务|节点|机器|那几个)?(?:、|和|与|跟|,|，)?)+"
_EXCEPTED_LAST = re.compile(rf"(?<!\w){_ALL}(?:\s+\w+){{0,3}}?\s*,?\s*(?<!\w){_LEFT_OUT}\s+(?P<what>{_SPARED_NAMES})")
_EXCEPTED_BEHIND_ALL = re.compile(rf"{_ALL}\s*,?\s*(?P<what>{_SPARED_NAMES})\s*(?:excluded|excepted|not|nicht|ausgenommen|aside)")
_FRONT = re.compile(rf"^\W*(?:{_LEFT_OUT})\s+(?P<what>{_SPARED_NAMES})\s*,?\s*(?=.*{_ALL})")
_HAN = re.compile(rf"(?:除了?|除去|除开|不算|不包括|不含)(?P<what>{_SPARED_NAMES_ZH})\s*(?:以外|之外|外)?(?=.*{_ALL_ZH})")
_HAN_FRONT = re.compile(rf"(?:除了?|除去|除开|不算|不包括)(?P<what>{_SPARED_NAMES_ZH})\s*(?:以外|之外|外)")
_HAN_BEHIND = re.compile(rf"{_ALL_ZH}.*?[,，]?\s*(?P<what>{_SPARED_NAMES_ZH})\s*(?:除外|不算|例外|别动|不动|除去|留着|不要动)")
_HAN_KEEP = re.compile(rf"(?P<what>{_SPARED_NAMES_ZH})\s*(?:不动|别动|留着|保留|不要动|除外)\s*[,，、]?\s*(?=.*{_ALL_ZH})")
_HAN_SPARE = re.compile(
    rf"^\W*(?:请)?(?:不要动|不要碰|别动|别碰|不动|保留|留着|留下)(?P<what>{_SPARED_NAMES_ZH})\s*[,，、]?\s*(?=.*(?:其他|其余|别的|剩下))"
)
_PATTERNS = (_HAN_SPARE, _EXCEPTED_LAST, _EXCEPTED_BEHIND_ALL, _FRONT, _HAN, _HAN_FRONT, _HAN_BEHIND, _HAN_KEEP)
_NARROWS = re.compile(
    r"\b(?:\d+|from|step|steps|only|just|instead|running|pending|queued|today|yesterday|last|since|older|newer|longer|if"
    r"|when|until|tonight|tomorrow|then|after|before|laufenden?|wartenden?|heute|gestern|wenn|falls|nur wenn|oom\w*)\b"
    r"|正在|运行中|排队|今天|昨|如果|等到|之后|再"
)
_QUALIFIES = re.compile(
    r"\b(?:drained|cordoned|failed|cancelled|crashed|dead|stopped|gedrainten?|gescheiterten?)(?= (?:nodes?|jobs?|runs?|ones"
    r"|knoten|machines))"
    r"|被?(?:排空|下线|隔离|取消|失败|崩溃|挂掉|停掉)(?:了)?的"
)
_ASKS = re.compile(
    r"[?？]\s*$|^\W*(?:which|what|why|how|who|is|are|did|was|were|has|have|welche|warum|wer|wie|sind|hat)\b|哪|吗|什么|多少"
)
_HOLDS = re.compile(r"^\W*(?:(?:please|bitte|und|and)\s+)*(?:do not|don't|dont|never|nicht)\b|^\W*(?:不要|别)(?!动)")
VERBS = {
    "cancel": "cancel everything",
    "recover": "restart everything",
    "cordon": "drain all nodes",
    "uncordon": "undrain all nodes",
}


def _exception(mention: MentionedNames) -> re.Match[str] | None:
    return next((match for pattern in _PATTERNS if (match := pattern.search(mention.text)) is not None), None)


def all_but(sentence: str, inventory: NameInventory) -> str:
    """Return `restart everything except alice` for an order for all but some; empty for another sentence.

    Args:
        sentence: As it was typed.
        inventory: What exists.
    """
    mention = mentioned(sentence, inventory)
    if mention is None or mention.described or _ASKS.search(sentence.lower()):
        return ""
    match = _exception(mention)
    if match is None or _HOLDS.match(f"{mention.text[: match.start()]} {mention.text[match.end() :]}"):
        return ""
    remainder = f"{mention.text[: match.start()]} {mention.text[match.end() :]} {match.group().replace(match['what'], ' ')}"
    left_out = [name for kind in "jnu" for name in mention.of_kind(kind, match["what"])]
    outside = f"{mention.text[: match.start('what')]} {mention.text[match.end('what') :]}"
    if re.search(r"\{[a-z]\d+\}", outside) or _NARROWS.search(outside) or not left_out:
        return ""
    if NEGATES.search(f"{mention.text[: match.start()]} {mention.text[match.end() :]}"):
        return ""
    change = change_in(" ".join(_QUALIFIES.sub(" ", remainder).split()))
    of_nodes = (
        bool(mention.of_kind("n", match["what"]))
        or re.search(r"\bnodes?\b|\bknoten\b|\bmachines?\b|节点|机器", outside) is not None
    )
    if change in ("cancel", "recover") and of_nodes and mention.of_kind("n", match["what"]):
        return ""
    if (change == "recover" and of_nodes) or (change == "uncordon" and not of_nodes and "恢复" in remainder):
        change = "uncordon" if of_nodes else "recover"
    return f"{VERBS[change]} except {' and '.join(left_out)}" if change in VERBS else ""


def plain_order(sentence: str, inventory: NameInventory) -> str:
    """Return an order for all but some, or one in everyday words, as a plain one; empty for another sentence."""
    return all_but(sentence, inventory) or everyday_order(sentence, inventory)[0]


def left_out_names(sentence: str, inventory: NameInventory) -> frozenset[str]:
    """Return the jobs and nodes that a sentence leaves out, those of an account included; empty where it leaves none out."""
    mention = mentioned(sentence, inventory)
    match = _exception(mention) if mention is not None else None
    if mention is None or match is None:
        return frozenset()
    users = mention.of_kind("u", match["what"])
    theirs = [job for job, owner in inventory.owners.items() if owner in users]
    return frozenset([*theirs, *mention.of_kind("j", match["what"]), *mention.of_kind("n", match["what"])])
