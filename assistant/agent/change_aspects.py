"""What a question asks of a change: whether it was made, whether the speaker's own came through, what harm it would do.

`did you drain it` asks for a record and is no order; `I cancelled 4831, did that go through` claims one, which the state of
the job bears out or not; `would it hurt to drain node03` weighs one. Each has its first sentence in `tell_changes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from assistant.agent.dialogue import Dialogue
from assistant.agent.words import NameInventory, Names

_CHANGED: Mapping[str, str] = {
    "uncordon": r"un-?drain(?:ed)?|un-?cordon(?:ed)?|put (?:\S+ ){0,3}back|(?:brought|bring|taken?|took) (?:\S+ ){0,3}back"
    r"|return(?:ed)?|released?|resume[d]? (?=\{nd\}|the node|node)|reinstated?|put back",
    "cordon": r"drain(?:ed)?|cordon(?:ed)?|isolated?|quarantined?"
    r"|(?:taken?|took|pull(?:ed)?|kick(?:ed)?) (?:\S+ ){0,3}(?:out|down|offline|away)|set (?:\S+ ){0,2}aside|offlined?|disabled?",
    "cancel": r"cancel(?:l?ed)?|kill(?:ed)?|stop(?:ped)?|abort(?:ed)?|scancel(?:l?ed)?|terminated?|end(?:ed)?",
    "recover": r"re-?start(?:ed)?|re-?submit(?:ted)?|re-?r[ua]n|re-?launch(?:ed)?|re-?queued?|recover(?:ed)?"
    r"|bring (?:\S+ ){0,3}back up|started? (?:\S+ )?again",
    "touch": r"touch(?:ed)?|chang(?:ed?|ing)|mess(?:ed)? (?:around )?with|alter(?:ed)?|modif(?:y|ied)|fiddled? with"
    r"|(?:do|done) (?:anything|something|stuff) (?:to|with|on|about)",
}
"""Words by which a change is spoken of, its done forms too."""
_ANY = "|".join(_CHANGED.values())
_OF = {name: re.compile(rf"(?<![\w-])(?:{words})(?:l?ing|ing|s)?(?![\w-])") for name, words in _CHANGED.items()}
_ADVERBS = (
    r"(?:(?:just|already|really|actually|now|yet|ever|then|perhaps|maybe|by any chance|recently|not|even|also|by accident"
    r"|accidentally|in fact)\s+)*"
)
_YOU = r"(?:you|u|ya|nightshift|the (?:bot|system|playbook|agent|assistant))"
_YOU_DID = re.compile(
    rf"\b(?:did|have|has|had)(?: not|n'?t)?\s+{_YOU}\s+(?:not\s+)?{_ADVERBS}(?:go ahead and |get (?:around"
    rf"|round) to )?(?P<what>(?:{_ANY})\b.*)"
    rf"|\b(?:was|is|were)(?: (?:it|that|this))?(?: not|n'?t)?\s+{_YOU}\s+(?:who|that|which)\s+(?:has "
    rf"|have )?(?P<that>(?:{_ANY})\b.*)"
    rf"|^\W*{_YOU}\s+(?:did not|did|have not|have|did ?n'?t)\s+{_ADVERBS}(?P<told>(?:{_ANY})\b.*)\?"
)
_IS_DONE = re.compile(
    rf"^\W*(?:(?:and|so|but|ok|okay|then|now|well)\b\W*)*(?:has|have|had|is|was|did)(?: (?:it|that|this|that one|the job"
    rf"|\{{jb\}}))?(?: not|n'?t)?"
    rf"\s+{_ADVERBS}(?:(?:been|be|get|got)\s+)?{_ADVERBS}(?P<what>re-?start(?:ed)?|re-?submit(?:ted)?|re-?queued?"
    rf"|re-?launched?|re-?run)\b"
)
_CLAIMS = re.compile(
    r"\b(?:i|we|user|he|she|they)(?:'ve|ve| have| had| did)?\s+(?:\w+\s+){0,3}?(?P<what>cancel+ed|scancel+ed|killed|stopped"
    r"|aborted|drained|cordoned|undrained"
    r"|uncordoned|re-?started|re-?submitted|re-?queued|re-?launched|took|put)\b"
)
_CAME_THROUGH = re.compile(
    r"\b(?:did|has|have|is|was)\b(?: \w+){0,3} \b(?:go(?:ne)? through|work(?:ed)?|succeed(?:ed)?|take(?:n)? effect"
    r"|happen(?:ed)?|done|through|arrive[d]?|land(?:ed)?"
    r"|register(?:ed)?|count(?:ed)?|gone|cancel+ed|stick|stuck)\b|\bwhy (?:is|does|do|are|has)\b.*\b(?:still|there|running"
    r"|pending|listed|stand|here|alive)\b"
    r"|\b(?:still|yet)\b.*\?|\bwhat happened\b|\bdid it\b"
)
_HARM = re.compile(
    r"\b(?:would|will|does|could|can|might|is|was|is there|are there|would there be)\b(?: be)?(?: (?:it|that|this"
    r"|there))?(?: (?:be|do|have|really|actually|be any|be a))*"
    r"\s+(?:(?:really|very|too|so|that|a|any|much|anything|something)\s+)*"
    r"(?:hurt|harm(?:ful)?|bad|terrible|risky|risk|dangerous|danger|problem(?:atic)?|wrong|stupid|unwise|mistake|damage"
    r"|matter|break(?: (?:anything|something|things))?"
    r"|against|downsides?|awful|cost|trouble|disaster)\b|\bwhat(?:'s| is)? the (?:harm|risk|danger|downside)\b"
    r"|\bany(?:thing)? (?:harm|risk|danger|downside|against|wrong)\b"
    r"|\bany (?:harm|risk|danger|downside|problem|objections?)\b"
)
_IF_I = re.compile(
    r"\b(?:if|suppose|assuming|say)\s+(?:i|we|you|one|somebody|someone)\s+(?:(?:were to|was to|would|did|just|now|simply"
    r"|should)\s+)*(?P<verb>[a-z]+.*?)"
    r"\b(?:what|how|would|will|then|does|is there)\b.*"
)
_WAS_IT = re.compile(
    r"\b(?:was|is|were)(?: not|n'?t|nt)?(?: (?:it|that))?(?: not)?\s+(?:the |node |job )*\{(?P<kind>nd|jb)\}(?:,)?\s+(?:that"
    r"|which|who|what)\s+"
    r"(?:has |had |is |was )?(?P<what>died|failed|crashed|broke(?:n)?|dead|went down|had (?:the|an|a)|hung|burned|blew"
    r"|caused|to blame|bad|the problem|ended|oomed)\b"
)
_WORKED = re.compile(
    r"\b(?:did|has|have|is|was) (?:it|that|this|everything|the (?:drain|restart|cancel\w*|change|order))(?: (?:already|all"
    r"|now|yet|really))*\s+"
    r"(?:work(?:ed)?(?: out)?|go(?:ne)? through|succeed(?:ed)?|take(?:n)? effect|happen(?:ed)?|done|through|finished"
    r"|complete[d]?|applied|executed|carried out"
    r"|been done|gone through|in effect|successful)\b|^\W*(?:done|finished|and)\s*(?:yet|already|now)?\s*\?|^\W*(?:is"
    r"|are) (?:we|you) done\b"
)
_OWNERS = re.compile(
    r"\bwhose (?:are|were|jobs? (?:are|were)) (?:they|those|these|them|it)\b|\bwho (?:owns|own|submitted|started|runs?"
    r"|has) (?:them|those|these|they)\b"
    r"|\bwho do (?:they|those|these) belong to\b|\bwho (?:are|is) the owners?\b|\bwhose\W*$|\bof whom\b"
)
_PLACE = re.compile(
    r"^\W*(?:(?:and|so|but|ok|okay|then|now)\b\W*)*(?:(?:on|at|in) (?:which|what) (?:nodes?|machines?|hosts?|servers?|boxes"
    r"|box)(?: (?:is|does|did|was) (?:it|that|\{jb\})"
    r"(?: run(?:ning)?)?)?|where (?:is|does|did|was) (?:it|that|\{jb\})(?: run(?:ning)?)?)\W*$"
)
_DEVICE = re.compile(
    r"\b(?:which|what) (?:gpu|card|device|slot|accelerator|dimm|pci(?: address)?)\b(?=.*\b(?:was|is|died|failed|broke|bad"
    r"|faulty|it|had|caused|dead|on)\b)"
    r"|\bpci address\b"
)
_FIGURE = re.compile(r"\bhow (?:hot|warm|busy)\b|\btemperatures?\b|\butili[sz]ation\b|\bfan speed\b|\bclock (?:speed|rate)\b")
_BACK_THEN = re.compile(
    r"\b(?:was|were|had)\b.*\b(?:at|when|before|during|as|while|then|just)\b.*\b(?:fail\w*|crash\w*|di(?:ed|e)|death"
    r"|end(?:ed)?|error|broke|that|time|then|night)\b"
    r"|\bat (?:the (?:time|moment)|that time|failure|the (?:crash|failure|end))\b|\bback then\b|\bhow (?:hot|warm) (?:was|were)\b"
)
_LEFT_OUT = re.compile(
    r"\b(?:which|what) (?:nodes?|machines?|hosts?|one)\b(?: \w+){0,3}?\s+(?:stays?|remains?|is|are|be|gets?|left|kept|does"
    r"|will|would)?\s*(?:\w+ )?"
    r"(?:out(?:side)?|excluded|away|avoid(?:ed)?|left out|spared|leave out|skip(?:ped)?|exclude)\b"
)
_HOW_BACK = re.compile(
    r"\b(?:how (?:would|will|can|could|do|should|d)\b.*\b(?:bring|get|restart|rerun|resubmit|recover|revive|relaunch|put)\b)"
    r"|\bhow (?:would|does|will) (?:the|a|its) (?:restart|recovery)\b"
)
_OF_APPROVALS = frozenset({"approvals", "recover", "plan", "approve"})


def change_aspect(text: str, names: Names, dialogue: Dialogue, inventory: NameInventory) -> tuple[str, str, Names] | None:
    """Return the aspect, the intent and the names of a question about a change; None for another one.

    Args:
        text: Of the question, in small letters, with `{jb}` and `{nd}` for names.
        names: Of it.
        dialogue: What was said.
        inventory: What exists.
    """
    asks = (
        text.rstrip().endswith("?")
        or re.match(r"^\W*(?:any|anything|did|have|has|was|is|are|would|which|what|whose|who|how|where|on|at|were|if)\b", text)
        is not None
    )
    for rule in _RULES:
        if (reading := rule(text, _with_quoted(names, inventory), dialogue, asks)) is not None:
            return reading
    return None


Reading = tuple[str, str, Names]


def _with_quoted(names: Names, inventory: NameInventory) -> Names:
    """Return names with those of a quotation, where the rest names nothing."""
    if names.jobs or names.nodes or names.numbers:
        return names
    words = [word for text in names.texts for word in re.findall(r"[\w-]+", text)]
    return replace(
        names,
        jobs=tuple(word for word in words if word in inventory.jobs),
        nodes=tuple(word for word in words if word in inventory.nodes),
    )


def change_named(text: str) -> str:
    """Return the change that a text speaks of, the first in it; empty where it speaks of none."""
    hits = [(match.start(), name) for name, pattern in _OF.items() if (match := pattern.search(text))]
    return min(hits)[1] if hits else ""


def _subject(names: Names, dialogue: Dialogue, text: str) -> str:
    """Return whether a question is about a job or a node: named, else spoken of last."""
    if names.nodes and not names.jobs:
        return "node"
    if names.jobs or names.candidates:
        return "job"
    points = re.search(r"\b(?:it|that|this|them|there|they|yet|already|one)\b", text) or len(text.split()) <= 5
    return dialogue.subject if points and dialogue.subject in ("job", "node") else ""


def _change_made(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _YOU_DID.search(text)
    if match is not None and re.search(
        r"\b(?:anything|something|what|which|why|how|when|any)\b(?! to \{| with \{| to (?:it|that))", text
    ):
        match = None if not re.search(r"\b(?:to|with|on|about) (?:\{|it\b|that\b)", text) else match
    speech = next(filter(None, match.groups()), "") if match is not None else ""
    if (
        match is None
        and (passive := _IS_DONE.search(text)) is not None
        and not names.nodes
        and (names.jobs or dialogue.subject != "node")
    ):
        speech = passive["what"]
    change = change_named(speech)
    subject = _subject(names, dialogue, text) or ("job" if change == "recover" and dialogue.jobs else "")
    if not change or not subject or not asks or re.match(r"^\W*(?:why|what|how|when|who)\b", text):
        return None
    if (change in ("cordon", "uncordon") and subject != "node") or (change in ("cancel", "recover") and subject != "job"):
        return None
    return f"made:{change}", "node_state" if subject == "node" else "job_status", names


def _claimed(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _CLAIMS.search(text)
    if match is None or not _CAME_THROUGH.search(text[match.end() :]) or not (names.jobs or names.nodes):
        return None
    change = change_named(text[match.start("what") :]) or ("cordon" if match["what"] == "took" else "")
    subject = "node" if names.nodes and not names.jobs else "job"
    if not change or (change in ("cordon", "uncordon")) is not (subject == "node"):
        return None
    return f"claimed:{change}", "node_state" if subject == "node" else "job_status", names


def _harm(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _HARM.search(text)
    if match is None or not asks:
        return None
    return _weighed("harm", text[match.end() :], text, names, dialogue)


_SAFE = re.compile(
    r"\b(?:is|would|will) it (?:be )?(?:\w+ )?(?:ok|okay|safe|fine|alright|all right|harmless) (?:to|if (?:i|we|you))\b"
)


def _safe(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _SAFE.search(text)
    reading = _weighed("safe", text[match.end() :], text, names, dialogue) if match is not None else None
    return reading if reading is not None and reading[0] == "safe:cordon" else None


def _if_i(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _IF_I.search(text)
    if match is None or not re.search(r"\bwhat\b|\bhow (?:bad|much)\b|\bwould\b|\bwill\b", text[match.end("verb") :]):
        return None
    return _weighed("what_if", match["verb"], text, names, dialogue)


def _weighed(aspect: str, speech: str, text: str, names: Names, dialogue: Dialogue) -> Reading | None:
    change = change_named(speech)
    subject = _subject(names, dialogue, text)
    if change in ("cordon", "uncordon") and subject == "node":
        return f"{aspect}:{change}", "node_state", names
    if change in ("cancel", "recover") and subject == "job":
        return f"{aspect}:{change}", "job_status", names
    return None


_HELPS = re.compile(
    r"\b(?:does|would|will|did|is|can) (?:that|it|this)(?: even| really| actually)? (?:help|do any(?:thing| good)"
    r"|make (?:any )?sense|be? ?(?:of )?any (?:use|help|good)"
    r"|worth it|any (?:use|good)|pay off|bring (?:us )?(?:anything|something|much)|change anything"
    r"|(?:fix|solve) (?:it|that|anything))\b|\bany (?:point|use|sense) in\b"
)


def _helps(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _HELPS.search(text)
    if match is None or not asks:
        return None
    return _weighed("should", f"{text[: match.start()]} {text[match.end() :]}", text, names, dialogue)


def _was_it(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    match = _WAS_IT.search(text)
    if match is None or not asks:
        return None
    return ("was_it", "node_history", names) if match["kind"] == "nd" else ("was_it", "job_status", names)


def _worked(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    is_about_it = not (names.jobs or names.nodes or names.incidents or names.strangers)
    return ("worked", "changes", names) if _WORKED.search(text) and is_about_it and dialogue.proposed else None


def _owners(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    is_about_them = not (names.jobs or names.nodes or names.incidents or names.candidates)
    listed = len(dialogue.listed) > 1 and dialogue.listed_kind == "job"
    return ("owners", "failed_jobs", names) if is_about_them and listed and _OWNERS.search(text) else None


def _place(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    if not _PLACE.match(text) or not (names.jobs or (dialogue.subject == "job" and dialogue.jobs and not names.nodes)):
        return None
    return "where", "job_status", names


def _device(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    if not _DEVICE.search(text):
        return None
    subject = _subject(names, dialogue, text)
    return (
        ("device", "node_history", names) if subject == "node" else ("device", "explain_job", names) if subject == "job" else None
    )


def _figure(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    subject = _subject(names, dialogue, text)
    if not _FIGURE.search(text) or not _BACK_THEN.search(text) or not subject:
        return None
    return "unrecorded", "node_state" if subject == "node" else "job_status", names


def _left_out(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    if (
        names.jobs
        or names.nodes
        or names.strangers
        or not _LEFT_OUT.search(text)
        or re.search(r"\bof service\b|\bnow\b|\bnodes\b", text)
    ):
        return None
    of_restart = dialogue.subject == "job" and re.search(r"\b(?:stays?|remains?|left|excluded?|avoid\w*|leave|skip\w*)\b", text)
    return ("left_out", "approvals", names) if dialogue.intent in _OF_APPROVALS or of_restart else None


def _how_back(text: str, names: Names, dialogue: Dialogue, asks: bool) -> Reading | None:
    if not _HOW_BACK.search(text) or _subject(names, dialogue, text) != "job":
        return None
    return "how_back", "plan", names


_RULES = (
    _worked,
    _change_made,
    _claimed,
    _harm,
    _safe,
    _helps,
    _if_i,
    _was_it,
    _owners,
    _place,
    _device,
    _figure,
    _left_out,
    _how_back,
)
