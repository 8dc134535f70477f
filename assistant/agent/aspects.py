"""What of a thing a question asks for, where its words say so outright: how sure, which line, whose fault, what then, what now.

The choice of an intent is learned from whole sentences and says what is looked up. An aspect is read from a few words and says
which sentence comes first: `tell_aspects` and `tell_counsel` make it from the records. A question with one has its intent by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from assistant.agent.change_aspects import change_aspect
from assistant.agent.chooser import spelling
from assistant.agent.dialogue import Dialogue
from assistant.agent.forms import QuestionForm, form_of
from assistant.agent.plain_english import plain_text
from assistant.agent.pointers import PRECEDING
from assistant.agent.words import NameInventory, Names


class AspectReading(NamedTuple):
    """What a question asks for outright."""

    aspect: str
    intent: str
    """What is looked up for it."""
    names: Names


OURS = (
    r"hardware|hw|gpus?|cards?|nodes?|\{nd\}|machines?|hosts?|infra(?:structure)?|cluster(?:'s)?|platform|system|ours?|us|we"
    r"|driver"
)
"""Words by which a failure is the cluster's."""
THEIRS = (
    r"(?:(?:user'?s?|her|his|their|its|my|the|own) (?:own )?)?(?:code|scripts?|programs?|bugs?|software|config\w*|user errors?)"
    r"|hers?|his|him|theirs|its|users?(?:'s)?|owners?(?:'s)?|developers?"
)
"""Words by which it is the fault of who wrote the job."""
FAMILIES: dict[str, tuple[str, frozenset[str]]] = {
    "out of memory": (
        r"oom(?:ed|s|ing)?|oom-killed|out of memory|ran out of (?:gpu |host )?memory|memory (?:errors?|problems?"
        r"|shortage)|too little memory",
        frozenset({"out_of_memory_error", "dataloader_killed"}),
    ),
    "network": (
        r"nccl|network|infiniband|ib|connection|connections|fabric|link|links|rdma",
        frozenset({"nccl_remote_error", "nccl_timeout_error", "network_error", "connection_error", "nvlink_error"}),
    ),
    "storage": (
        r"storage|disk|disks|filesystem|file system|lustre|nfs|s3|quota|no space",
        frozenset({"s3_storage_error", "os_error", "output_file_error", "file_not_found_error"}),
    ),
    "ECC": (r"ecc|double bit|memory errors? of gpus?", frozenset({"ecc_error"})),
    "time limit": (r"time ?limits?|timed out|wall ?time|timeouts?", frozenset({"time_limit"})),
    "hang": (r"hung|hang|hangs|hanging|stuck|deadlock(?:ed)?", frozenset({"hang"})),
    "loss spike": (r"loss spikes?|nan|nans|diverged?|spiked?|spikes?", frozenset({"loss_spike"})),
    "preemption": (r"preempt(?:ed|ion)?", frozenset({"preempted"})),
    "hardware": (
        r"hardware|hw|gpus? (?:errors?|faults?|failures?|died|broke)|infra(?:structure)?|cluster'?s fault|our fault",
        frozenset(),
    ),
    "code": (r"code|scripts?|bugs?|user errors?|programming|software|python|exceptions?|key ?errors?", frozenset()),
}
"""Words for a kind of failure, and its reasons; `hardware` and `code` are categories."""
_JOB_WORDS = r"\{jb\}|it|that|this|the (?:job|run|training)|that one|this one"
_ALL_WORDS = (
    r"anything|any|something|some(?:one|body)?|anyone|anybody|one of|jobs?|runs?|failures?|crash(?:es)?|all"
    r"|both|either|them|those|these|there|we"
)
_FAMILY = "|".join(pattern for pattern, _ in FAMILIES.values())
_LEAD = r"^\W*(?:(?:and|so|ok|okay|well|but|hm+|then|now|also|hey|right)\b[\s,]*)*"
VERBS: dict[str, str] = {
    "cordon": r"drain|cordon|isolate|take (?:\{nd\}|it|that) (?:out|down|offline|away)|take out|offline|quarantine"
    r"|set (?:\{nd\}|it) aside",
    "uncordon": r"undrain|uncordon|un-?cordon|resume (?=\{nd\}|the node)|put (?:\{nd\}|it|that)? ?(?:back|in)|return"
    r"|reinstate|release",
    "cancel": r"cancel|kill|stop|abort|scancel|terminate|end",
    "recover": r"restart|rerun|re-run|resubmit|requeue|relaunch|resume|start (?:\{jb\}|it|that)|bring (?:\{jb\}|it) back|recover",
    "deny": r"deny|reject|refuse|decline|say no",
    "approve": r"approve|allow|grant|confirm|say yes|accept",
}
_CHANGE = "|".join(VERBS.values())
_WAITS = re.compile(
    r"\b(?:what|why|who|whom|for what|on what)\b.*\b(?:wait|waits|waiting|blocked|blocking|blocks|holding|held|pending|queued)\b"
    r"|\b(?:wait|waits|waiting) (?:for|on) (?:what|whom|who)\b"
)
_SURE = re.compile(
    r"\bhow (?:sure|certain|confident|convinced|reliable is (?:that|this|the diagnosis)|safe is (?:that|this"
    r"|the diagnosis))\b|\b(?:are|r) (?:you"
    r"|u) (?:\w+ )?(?:sure|certain"
    r"|confident|positive|convinced)\b|^\W*(?:you |really )?sure\b.*\?|\bhow do (?:you|we) know\b"
    r"|\bwhat makes you (?:think|say|so)\b"
    r"|\bhow (?:high|big|large) is (?:the|your) confidence\b|\byour confidence\b|\bprove it\b|\bis (?:that|this"
    r"|it) (?:for )?(?:certain|sure)\b"
)
_LINE = re.compile(
    r"\b(?:which|what) (?:code )?line\b|\bline number\b|\b(?:which|what) (?:source )?file\b.*\b(?:line|fail|error|crash|bug|broke)"
    r"|\bwhere (?:exactly )?in (?:the|her|his|their|user'?s?) (?:code|script|file)\b|\b(?:what|which) (?:place"
    r"|spot) in (?:the|her|his)\b"
)
_NODE_NOUN = r"(?:node|machine|host|box|server)"
_CULPRIT = re.compile(
    rf"\b(?:which|what) {_NODE_NOUN}\b(?!s).*\b(?:blame|fault|faulty|guilty|culprit|caus\w+|brok\w+|bad|problem"
    rf"|responsible|failed|die[ds]?"
    rf"|killed|issue|wrong|it|that|was)\b|\bwhose {_NODE_NOUN}\b|\b(?:which|what) {_NODE_NOUN}\W*$"
)
_USUAL = re.compile(r"\b(?:most|often|worst|usually|ever|always|week|month|down|out|drained|free|idle|cordoned|running|runs?)\b")
_LOST = re.compile(
    r"\b(?:steps?|work|progress|training|iterations?|much|many)\b.*\b(?:lost|lose|loses|losing|redo|redone"
    r"|repeat(?:ed)?|wasted?|throw away|(?:do|does|make|makes|made|done|run) (?:\w+ )?again)\b"
    r"|\b(?:lost|lose)\b.*\b(?:steps?|work|progress|iterations?)\b"
)
_OUTCOME = re.compile(
    r"\b(?:(?:get|got|gotten|getting|going|run|running|start|started|pick(?:ed)? up|restarted|relaunched|resubmitted"
    r"|up) (?:going )?again|get going|got going"
    r"|recover(?:ed|s)?|(?:come|came|comes|got|get|gotten|brought|is|be) back(?! in(?:to)? service)|back (?:up"
    r"|again|on its feet|on track|now|yet|already|online)|back(?=\W*$)"
    r"|fixed|solved|resolved|sorted(?: out)?|healed|repaired|taken care of|up again|running again|dealt with"
    r"|work(?:ed)? out|in order again)\b"
)
_REPAIR = re.compile(r"\b(?:fix(?:ed)?|repair(?:ed|s)?|replaced|swapped|healed|serviced|rma'?d)\b")
_WHO_TOOK = re.compile(
    r"\bwho(?:ever)? (?:has |had )?(?:took|take|taken|drained?|put|pulled?|removed?|set|marked|cordoned|downed"
    r"|offlined|did|disabled|kicked)\b"
    r"|\bwhose (?:drain|doing|maintenance)\b"
)
_BY_HAND = re.compile(
    r"\b(?:by hand|manual(?:ly)?|by (?:a )?(?:person|human|someone|somebody|people|an? (?:admin|operator))"
    r"|which person|on purpose)\b"
)
_SHOULD = re.compile(
    rf"(?:\b(?:should|shall|ought|must|do)(?: not|n't|nt)? (?:i|we)(?: not| really| better| have to| need to| to| now| just)*"
    rf"|\b(?:do|would|do not|don't|dont|wouldn't)? ?(?:you )?(?:not )?(?:think|say|reckon|agree) (?:that )?(?:i"
    rf"|we) (?:should|ought to|better|had better|need to)"
    rf"(?: not| really| better| just)*|\b(?:can|may|could) (?:i|we)(?: now| already| safely| just| please)*"
    rf"|\b(?:is it|would it be) (?:\w+ )?(?:safe|ok|okay|wise|worth(?:while)?|smart|good|right|necessary|an idea|idea"
    rf"|sensible)(?: to| if (?:i|we))?"
    rf"|\bdoes it make sense to|\b(?:better|time) to|\bworth) (?:\w+ )?(?P<verb>{_CHANGE})(?:l?ing|ing)?\b"
)
_NO_COUNSEL = re.compile(r"^\W*(?:\w+ ){0,2}(?:how|what|where|when|which|why)\b|\b(?:something|anything)\b")
_WHAT_IF = re.compile(
    rf"\b(?:what(?:'s|s| is)? the worst (?:that )?(?:can |could )?(?:happens?)|what (?:would |will "
    rf"|is going to )?(?:happens?|change)|what if|what (?:do|would|will) (?:i|we) lose"
    rf"|what follows|consequences?"
    rf"|(?:the )?effect|what does it (?:mean|cost)|what becomes)\b.*?\b(?P<verb>{_CHANGE})(?:l?ing|ing|ed|s)?\b"
)
_TO_DO = re.compile(
    r"\bwhat (?:exactly )?(?:do|should|must|shall|would|is there for) (?:i|we|me|us)(?: need| have)?(?: still| now"
    r"| really)?(?: to)?(?: now| still)? do\b"
    r"|\bwhat(?: is|'s)? (?:there |left |next|remains? )+(?:to (?:be done|do)|for (?:me|us))\b|\bwhat(?: is"
    r"|'s)? (?:next|left|now|to do|to be done)\W*$"
    r"|\bwhat now\W*$|\bwhat can i do now\b|\bnext steps?\b|\b(?:to-?do|todo) ?(?:list)?\b|\baction items?\b"
    r"|\bwhat(?: still)? needs (?:doing"
    r"|to be done|to happen|me|action)\b"
    r"|\b(?:anything|something|what else) (?:left |else |more )*(?:for me to do|(?:i|we) (?:need|have|must|should"
    r"|can) (?:to )?do|to do|to take care of)\b"
    r"|\bdo i (?:need|have) to do (?:anything|something)\b|\b(?:with|about) the (?:rest|others|other ones)\b"
)
_REST_WORDS = re.compile(r"\b(?:rest|others|other ones|remaining)\b")
_SAME_CAUSE = re.compile(
    r"\bsame (?:root ?)?(?:cause|reason|problem|issue|thing|error|failure|fault|bug|culprit|story|root)\b|\brelated\b"
    r"|\bconnected\b"
    r"|\bcommon (?:cause|reason|root)\b|\b(?:one|a single) (?:root )?cause\b|\bhang together\b"
)
_BEFORE = re.compile(r"\b(?:before|earlier|already|previously|ever|again|last (?:week|month|time)|in the past)\b")
_SAME_DEVICE = re.compile(r"\bsame (?:gpu|card|device|slot|pci|dimm|node|machine|hardware|box|host|chip|one)\b")
_WHICH_OF = re.compile(
    r"\b(?:which|what|who)(?: one)?s?\b.*\b(?:was|were|is|are|had|has|failed|died|did|due|because|caused?|went|broke)\b"
    r"|^\W*which\b"
)
_TWO_SIDES = re.compile(rf"\b(?:{OURS})\b[^?]*\bor\b[^?]*\b(?:{THEIRS})\b|\b(?:{THEIRS})\b[^?]*\bor\b[^?]*\b(?:{OURS})\b")
_ONE_SIDE = re.compile(
    rf"\b(?:is|was|are|were|'s) (?:{_JOB_WORDS}|they|the (?:crash|failure|error))(?: (?:really|actually|just|only|a|an"
    rf"|the|due|to|because|of|caused|by|my"
    rf"|our|down))* (?:{OURS}|{THEIRS})(?:'s)?(?: (?:fault|problem|issue|failure|error|related|thing|bug))?\W*$"
    rf"|\bwhose (?:fault|problem|mistake)\b"
)
_STEP_ASKED = re.compile(
    r"\bwhy\b|\bwhat(?: is|'s)? (?:wrong|the matter|with)|\b(?:can|is|was|could|are)\b|\bnot\b|\bwhat about\b|\busable\b"
)
_OF_CHECKPOINT = re.compile(r"\b(?:checkpoint|save|snapshot|not|use|usable|wrong|healthy|load|good|take)\b")
_BEFORE_IT = re.compile(r"^\W*(?:\w+ ){0,3}before (?:that|it|this)(?: one)?\W*$")
_CHECKPOINTS = frozenset({"newest_checkpoint", "checkpoints"})
_OF_STEPS = _CHECKPOINTS | {"recover", "plan", "approvals"}
_NODES = frozenset({"node_state", "bad_nodes", "check_node", "node_history", "cordon", "uncordon"})
_UNKNOWN_JOB = re.compile(r"(?:whether there is a )?job (\d{1,7}) is unknown")
MOST_WORDS = 26


class _Question(NamedTuple):
    """A question while its aspect is read."""

    text: str
    form: QuestionForm
    names: Names
    dialogue: Dialogue
    inventory: NameInventory

    @property
    def of_job(self) -> bool:
        """Whether it is about a job: named, or spoken of last."""
        earlier_jobs = self.dialogue.jobs and self.dialogue.subject in ("job", "incident", "")
        return bool(self.names.jobs or self.names.candidates or (earlier_jobs and not self.nodes_named))

    @property
    def of_node(self) -> bool:
        """Whether it is about a node: named, or spoken of last."""
        return self.nodes_named or (self.dialogue.subject == "node" and not self.names.jobs and bool(self.dialogue.nodes))

    @property
    def nodes_named(self) -> bool:
        """Whether a node stands in it."""
        return bool(self.names.nodes)

    @property
    def names_nothing(self) -> bool:
        """Whether no job, node or incident stands in it."""
        names = self.names
        return not (names.jobs or names.nodes or names.incidents or names.numbers or names.candidates or names.strangers)

    def says(self, pattern: re.Pattern[str] | str) -> bool:
        """Tell whether its words match a pattern."""
        return re.search(pattern, self.text) is not None


def read_aspect(names: Names, dialogue: Dialogue, inventory: NameInventory) -> AspectReading | None:
    """Return what a question asks for outright; None where its words leave that to the choice of an intent."""
    text = spelling().mended(plain_text(names.sketch)).lower().replace("\u2019", "'")
    if len(names.terms) == 1:
        # `if I killed it` names no reason
        text = text.replace("{text}", names.terms[0].lower())
    # a slot is no word `job` or `node`
    text = text.replace("{job}", "{jb}").replace("{node}", "{nd}")
    if len(text.split()) > MOST_WORDS:
        return None
    if (change := change_aspect(text, names, dialogue, inventory)) is not None:
        return AspectReading(*change)
    question = _Question(text, form_of(text), names, dialogue, inventory)
    for rule in _RULES:
        if (reading := rule(question)) is not None:
            return reading
    return None


def _reading(question: _Question, aspect: str, intent: str) -> AspectReading:
    return AspectReading(aspect, intent, question.names)


def _step(question: _Question) -> AspectReading | None:
    """Read `why not 500` and `the one before` where checkpoints are spoken of."""
    names, dialogue = question.names, question.dialogue
    names_earlier_job = dialogue.intent in _CHECKPOINTS and bool(dialogue.jobs)
    if (
        names_earlier_job
        and question.names_nothing
        and (PRECEDING.search(question.text) or question.says(_BEFORE_IT))
        and not question.says(r"\b(?:job|run|incident|attempt)\b")
    ):
        return _reading(question, "step_before", "checkpoints")
    if not (question.says(_STEP_ASKED) and (names.jobs or dialogue.jobs)) or question.says(r"\b(?:job|reach|reached|passed?)\b"):
        return None
    unknown = [match[1] for text in names.strangers if (match := _UNKNOWN_JOB.match(text))]
    lengths = {len(job) for job in question.inventory.jobs}
    numbers = unknown if dialogue.intent in _OF_STEPS or not {len(number) for number in unknown} & lengths else []
    steps = (*names.quantities.steps, *names.bare_numbers, *map(int, numbers))
    if len(steps) != 1 or len(numbers) < len(names.strangers):
        return None
    if not (numbers or names.bare_numbers) and not question.says(_OF_CHECKPOINT):
        return None
    quantities = replace(names.quantities, steps=steps)
    masked = names.masked.replace("{job}", "50") if numbers and not names.jobs else names.masked
    names = replace(names, strangers=(), quantities=quantities, masked=masked)
    return AspectReading("step_of", "checkpoints", names)


def _hand(question: _Question) -> AspectReading | None:
    of_nodes = question.of_node or question.says(r"\bnodes?\b|\bmachines?\b") or question.dialogue.intent in _NODES
    if not of_nodes or question.names.jobs:
        return None
    if question.says(_BY_HAND) or (question.form is QuestionForm.PERSON and question.says(_WHO_TOOK)):
        return _reading(
            question,
            "taken_by",
            "node_state" if question.of_node and not question.says(r"\bof (?:them|those|these)\b") else "bad_nodes",
        )
    return None


def _line(question: _Question) -> AspectReading | None:
    if (
        not question.says(_LINE)
        or question.says(r"\blines\b|\blog\b|\bcontain|\bprov|\bshows?\b|\bevidence\b|\b(?:is|are) \{jb\}\W*$")
        or not question.of_job
    ):
        return None
    return _reading(question, "place_in_code", "explain_job")


def _certainty(question: _Question) -> AspectReading | None:
    if not question.says(_SURE):
        return None
    job = next(iter((*question.names.jobs, *question.dialogue.jobs)), "")
    has_incident = job in question.inventory.incidents.values() or not job
    if not has_incident:
        return None
    if question.names_nothing and not question.says(_POINTS_BACK) and question.says(_OF_HARDWARE):
        return _reading(question, "certainty_of_hardware", "incidents")
    return _reading(question, "certainty", "explain_job")


_OF_HARDWARE = re.compile(
    rf"\b(?:was|is|were|it|that|a|the) (?:really |actually |just |only |down to |due to )*(?:a |the |our )?(?:{OURS})\b"
)
_POINTS_BACK = re.compile(r"\b(?:this|that) (?:job|run|one)\b")


def _sides(question: _Question) -> AspectReading | None:
    text_names_family = question.says(rf"\b(?:{_ALL_WORDS})\b") and not question.says(rf"\b(?:{_JOB_WORDS})\b")
    if text_names_family or question.says(r"\bhow (?:is|are)\b"):
        return None
    if question.of_node and not question.says(r"\bcode|script|bug|fault\b"):
        return None
    if question.says(_TWO_SIDES) and (question.of_job or question.says(r"\bfault|fail|crash|problem|broke|cause")):
        return _reading(question, "side", "explain_job")
    if question.says(_ONE_SIDE) and question.of_job and not question.says(r"\bwhat\b|\bwhere\b|\bwhy\b"):
        return _reading(question, "side", "explain_job")
    return None


def _same(question: _Question) -> AspectReading | None:
    dialogue = question.dialogue
    if question.says(_SAME_DEVICE) and question.names_nothing and (dialogue.intent == "seen_before" or question.says(_BEFORE)):
        return _reading(question, "same_device", "seen_before") if dialogue.jobs or dialogue.incident is not None else None
    if not question.says(_SAME_CAUSE) or question.says(_BEFORE) or not question.names_nothing:
        return None
    several = question.says(r"\b(?:both|all|they|them|those|these|two|three|failures|jobs|crashes)\b") or len(dialogue.listed) > 1
    return _reading(question, "same_cause", "incidents") if several else None


def _family(question: _Question) -> AspectReading | None:
    if question.names.jobs or question.names.nodes or question.names.incidents or not question.says(rf"\b(?:{_FAMILY})\b"):
        return None
    if question.says(r"\b(?:me|my|decision|approval)\b"):
        return None
    if question.says(r"\b(?:test|tests|benchmark|log|logs|grep|mean|means|temperature|hot|fans?|use|usage|using|free|idle)\b"):
        return None
    points = question.says(r"\b(?:of|among|from) (?:those|them|these|the (?:two|three|failures?|incidents?|jobs?|crashes))\b")
    listed = len(question.dialogue.listed) > 1
    if question.says(_WHICH_OF) and question.says(r"\bwhich\b") and not question.says(r"\bnodes?\b") and (points or listed):
        return _reading(question, "which_of", "incidents")
    if (
        question.form is QuestionForm.YES_NO
        and question.says(rf"\b(?:{_ALL_WORDS})\b")
        and not question.says(r"\bnodes?\b|\bgpus\b")
    ):
        return _reading(question, "any_of", "failed_jobs")
    return None


def _culprit(question: _Question) -> AspectReading | None:
    if question.nodes_named or question.names.span or question.says(_USUAL) or not question.says(_CULPRIT):
        return None
    return _reading(question, "culprit", "explain_job") if question.of_job else None


def _lost(question: _Question) -> AspectReading | None:
    if not question.says(_LOST) or question.says(r"\bhours?\b|\bgpu\b|\btotal\b|\bloss\b|\bdollars?\b|\bmoney\b"):
        return None
    points = question.names.jobs or (question.of_job and question.says(rf"\b(?:{_JOB_WORDS})\b|^\W*how (?:many|much)"))
    plural = question.says(r"\bjobs\b|\bruns\b|\bfailures\b|\ball\b|\btonight\b|\bnight\b|\bweek\b")
    return _reading(question, "steps_lost", "newest_checkpoint") if points and not plural and len(question.names.jobs) < 2 else None


def _outcome(question: _Question) -> AspectReading | None:
    if question.form is not QuestionForm.YES_NO:
        return None
    if question.of_node and question.says(_REPAIR):
        return _reading(question, "repair", "node_state")
    if not question.says(_OUTCOME) or question.of_node or question.names.numbers or question.names.incidents:
        return None
    points = question.names.jobs or question.says(rf"\b(?:{_JOB_WORDS}|they)\b|\bbeen\b")
    if (
        points
        and question.of_job
        and len(question.names.jobs) < 2
        and not question.says(r"\b(?:everything|all|they|both|them|those|jobs)\b")
    ):
        return _reading(question, "outcome", "job_status")
    several = question.names_nothing and question.says(r"\b(?:everything|all|they|both|them|those|it)\b")
    return _reading(question, "outcomes", "incidents") if several and question.inventory.incidents else None


def _waits(question: _Question) -> AspectReading | None:
    points = question.names.jobs or (question.of_job and question.says(r"\b(?:it|that|this|for what|on what|what for)\b"))
    if not points or not question.says(_WAITS) or question.says(r"\b(?:ranks?|gpus?|stacks?|how long|for me)\b|\bme\W*$"):
        return None
    return _reading(question, "waits_for", "job_status")


def _weighed(question: _Question) -> AspectReading | None:
    for pattern, aspect in ((_WHAT_IF, "what_if"), (_SHOULD, "should")):
        match = pattern.search(question.text)
        if match is None:
            continue
        if aspect == "should" and question.says(_NO_COUNSEL):
            continue
        change = next(name for name, verb in VERBS.items() if re.match(rf"(?:{verb})(?!\w)", match["verb"]))
        if change in ("approve", "deny") and re.match(r"(?:can|may|could)\b", match.group()):
            continue
        if change in ("approve", "deny"):
            return _reading(question, f"{aspect}:{change}", "approvals")
        if change in ("cordon", "uncordon") and question.of_node:
            return _reading(question, f"{aspect}:{change}", "node_state")
        if change in ("cancel", "recover") and question.of_job:
            intent = "plan" if change == "recover" and aspect == "what_if" else "job_status"
            return _reading(question, f"{aspect}:{change}", intent)
    return None


def _to_do(question: _Question) -> AspectReading | None:
    if not question.names_nothing or not question.says(_TO_DO):
        return None
    about_it = question.says(r"\b(?:about|with|for) (?:it|that|this|him|her)\b") and not question.says(_REST_WORDS)
    return None if about_it else _reading(question, "rest" if question.says(_REST_WORDS) else "to_do", "overview")


_RULES: tuple[Callable[[_Question], AspectReading | None], ...] = (
    _step,
    _weighed,
    _hand,
    _line,
    _certainty,
    _lost,
    _waits,
    _culprit,
    _same,
    _family,
    _sides,
    _outcome,
    _to_do,
)
