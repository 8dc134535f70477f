"""Know the kinds of failures that programs of every field have, by their words, and what a person does next about each.

A refused name, a damaged file, an iteration that does not converge, a count of processes that does not fit: what follows is the
same whatever program says it. The words come from a line of the block (`blocks`), the objects from the lines beside it
(`input_steps`, `machine_steps`). What is of no kind is told as its block says it, with what the program was doing; of a service or
a tool where no template fits: whom to ask from the node, who refused, what it printed (`general_account`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from assistant.content.reasons import gives_orders
from assistant.diagnose.advice import input_steps, machine_steps
from assistant.diagnose.advice.blocks import (
    FOLLOWS,
    MessageBlock,
    MessageLine,
    block_of,
    block_text,
    file_about,
    line_quote,
    names_in,
    place_in,
    work_before,
)
from assistant.diagnose.advice.decisive import error_before
from assistant.diagnose.advice.sentences import instruction_in
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis

BEFORE_END, MOST_QUOTED = 8, 400
_SCHEME = re.compile(r"\bhttps?://")
_TRACED = re.compile(r"^\++ ?exit [1-9]")


class Family(NamedTuple):
    """A kind of failure by its words, and what is done about it."""

    words: re.Pattern[str]
    next_step: Callable[[re.Match[str], MessageLine, MessageBlock, Facts], str]


def next_step(line: Line, facts: Facts) -> str:
    """Return what to do about the failure that a line tells of, by its kind; empty where it is of no kind."""
    block = block_of(line, facts)
    lines = (*block.lines, *block.before) if _TRACED.match(block.root.text) else block.lines
    for words in lines:
        if step := _of_words(words, block, facts):
            return step
    return ""


def last_step(line: Line | None, facts: Facts) -> str:
    """Return what to do about the last failure of a log by its kind, told by its line or by one shortly before; or empty."""
    end = line if line is not None else next((row for row in reversed(facts.lines) if row.text.strip()), None)
    if end is None:
        return ""
    if step := next_step(end, facts):
        return step
    for row in reversed(facts.between(max(1, facts.progress.leg, end.number - BEFORE_END), end.number)):
        block = block_of(row, facts)
        if not FOLLOWS.search(block.root.text) and (step := _of_words(block.root, block, facts)):
            return step
    return ""


def _of_words(words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    for family in FAMILIES:
        match = family.words.search(words.text)
        if match is not None and (step := family.next_step(match, words, block, facts)) and not gives_orders(step):
            return step
    return ""


def account_of(line: Line, facts: Facts) -> str:
    """Return what to do about the failure that a line tells of; of one of no kind what its block says and what it worked on."""
    block = block_of(line, facts)
    if step := next_step(line, facts):
        return step
    text = block_text(block)
    if gives_orders(_SCHEME.sub("", text)):
        return ""
    work_line = work_before(block)
    names = {name for words in block.lines for name in names_in(words.text)}
    if work_line is not None and (gives_orders(work_line.text) or not names.isdisjoint(names_in(work_line.text))):
        work_line = None
    work = f" Before it the program says what it worked on: {line_quote(work_line)}." if work_line is not None else ""
    if instruction := instruction_in(" ".join(words.text for words in block.lines)):
        return f"{instruction}. The program asks for that itself: {text}.{work}"
    place, number = place_in(block)
    if place:
        at = "" if f"job.log:{number}" in text else f" (job.log:{number})"
        return f"Look at {place}{at} first, for that is what the program names: {text}.{work}"
    file, number = file_about(block)
    if file and any(number == words.number for words in block.lines):
        return f"Look at {file} first, for that is what the program names: {text}.{work}"
    if len(block.lines) == 1 and not work:
        return f"All that the log says is {line_quote(block.root, MOST_QUOTED)}.{work}"
    return f"What it says is {text}: mend what that names.{work}"


def names_of(line: Line, facts: Facts) -> set[str]:
    """Return what a line calls by name."""
    text = block_of(line, facts).root.text
    return names_in(text) | set(re.findall(r"(?<=:)\d{2,5}\b", text))


_NAME = r"[\w.$:@/+*%-]{1,80}"
_QUOTE = r"['\"‘’`]"
_QUOTED = r"['\"‘`](?P<{name}>[^'\"’`\s]{{2,80}})['\"’`]"
_COUNT = r"\d[\d.,]{0,14}(?: ?[x×] ?\d{1,9}){0,3}(?: (?!and\b|but\b|or\b|expected\b|were\b|run\b)[A-Za-z]{2,16})?"
"""A count or a size, with what is counted."""
_KIND = (
    r"(?:option|argument|flag|key(?:word)?|parameter|setting|variable|field|entry|column|attribute|command|function|style|directive"
    r"|property|section|group|tag|name|method|solver|model|species|module|label|feature|target)"
)
_NO_NAME = r"(?!(?:in|for|of|is|or|and|name|options|the|to|was|at|on|from|specified|given|found|line)\b)"
_BEHIND_NAME = r"(?=$|[\s,.;:)]*(?:$|[,.;(]|in\b|for\b|of\b|at\b|on\b|was\b|is\b|given\b|specified\b|did\b|perhaps\b))"


def _kind(next_step: Callable[[re.Match[str], MessageLine, MessageBlock, Facts], str], *words: str) -> Family:
    return Family(re.compile("|".join(words), re.IGNORECASE), next_step)


FAMILIES: tuple[Family, ...] = (
    _kind(input_steps.traced_exit, r"(?P<file>[\w./+~-]{1,200})\[(?P<line>\d{1,6})\]:? ?exit (?P<code>[1-9]\d{0,2})$"),
    _kind(
        machine_steps.licences_in_use,
        r"users? already reached",
        r"all (?:licen[cs]es|tokens) (?:are )?in use",
        r"no licen[cs]es? (?:is |are )?(?:available|free)",
    ),
    _kind(
        machine_steps.expired,
        r"(?:certificate|licen[cs]e|feature|token|password|credential)\b.{0,80}\b(?:ha(?:s|ve) expired|expired|ran out"
        r"|is out of date)",
    ),
    _kind(
        input_steps.output_not_made,
        r"output(?:s| files?)?\b.{0,120}?(?:were|was|is|are|did|has been)? ?(?:not|never) (?:be )?"
        r"(?:retrieved|produced|created|written|found|made|exist)(?:: ?(?P<name>[\w./*-]{2,120}))?",
    ),
    _kind(
        machine_steps.not_executable,
        r"line \d{1,6}: (?P<name>(?:[\w.@+~-]{0,80}/)*[\w.@+~-]{1,80}"
        r"(?:\.(?:sh|py|pl|R|csh|ksh|bash|exe|x|run|jl|rb)|(?<=/)[\w-]{1,60})): Permission denied",
    ),
    _kind(
        input_steps.operand_sizes,
        r"non-conformable|nonconformant|dimensions? (?:must|do not|does not|mismatch)|incompatible (?:dimensions|sizes)"
        r"|DimensionMismatch",
    ),
    _kind(
        machine_steps.low_port,
        r"bind\S{0,3}.{0,30}?:(?P<port>\d{1,5})\b.{0,40}permission denied",
        r"permission denied.{0,40}(?:bind|port).{0,20}?\b(?P<port_2>\d{1,5})\b",
    ),
    _kind(
        machine_steps.unresolved_host,
        rf"lookup (?P<a>{_NAME}):? .{{0,40}}no such host",
        rf"(?:could not|cannot|unable to|failed to) resolve(?: host(?:name)?| name| address)?:? ['\"]?(?P<b>{_NAME})",
        rf"unknown host:? ['\"]?(?P<c>{_NAME})",
        rf"(?P<d>{_NAME}): (?:Name or service not known|nodename nor servname|Temporary failure in name resolution)",
    ),
    _kind(
        machine_steps.login_wanted,
        r"could not read (?:Username|Password) for|terminal prompts disabled|authentication (?:is )?required for",
    ),
    _kind(machine_steps.port_taken, r":(?P<port>\d{2,5})\b.{0,40}(?:address already in use|port is (?:already )?(?:in use|taken))"),
    _kind(
        input_steps.unmatched_pattern,
        r"(?:(?:fail(?:ed)? to|cannot|could not) open|no such file|cannot (?:stat|access)).{0,80}?['\"‘]?"
        r"(?P<name>[\w./~-]{0,200}\*[\w./*-]{0,80})",
    ),
    _kind(
        input_steps.option_without_value,
        r"(?P<name>--?[A-Za-z][\w-]{1,60}):? (?:needs|requires|expects|wants|is missing) (?:a |an |one |its )?(?:value"
        r"|argument|parameter)",
    ),
    _kind(
        input_steps.value_of_wrong_kind,
        rf"invalid (?P<kind>number|integer|int|float|value|date|boolean|size) {_QUOTE}(?P<value>[^'\"’`]{{1,80}}){_QUOTE}"
        r"(?: for (?:option |argument )?(?P<name>[\w-]{2,60}))?",
    ),
    _kind(
        input_steps.value_of_wrong_kind,
        rf"(?P<name>{_NAME}) is (?:not|no) (?:a |an )?(?:valid )?(?P<kind>number|integer|float|date|boolean|real)\b:? "
        rf"{_QUOTE}(?P<value>[^'\"’`]{{1,80}}){_QUOTE}",
    ),
    _kind(
        input_steps.unset_variable,
        r"environment variable ['\"`]?(?P<name>[A-Z][A-Z0-9_]{2,60})['\"`]? (?:is |was |has )?"
        r"(?:not (?:been )?(?:set|defined)|unset|undefined|missing)",
    ),
    _kind(
        input_steps.value_of_wrong_kind,
        rf"(?:cannot|could not|unable to|failed to) parse (?P<kind>number|integer|float|date|time|boolean) {_QUOTE}"
        rf"(?P<value>[^'\"’`]{{1,80}}){_QUOTE}",
    ),
    _kind(
        input_steps.refused_name,
        r"(?:unknown|unrecogni[sz]ed|unsupported|undefined|illegal|unexpected|invalid|no such) "
        rf"(?:command[- ]?line |input |configuration |config |namelist )?(?P<kind>{_KIND})s?(?![\w-])(?: or \w{{2,20}})?"
        rf"(?: named| called)?:? {{0,3}}{_QUOTE}?(?P<name>{_NO_NAME}-{{0,2}}[A-Za-z_]{_NAME})(?![\w$@/+*%-])"
        rf"{_QUOTE}?{_BEHIND_NAME}",
    ),
    _kind(
        input_steps.refused_name,
        rf"(?P<kind>{_KIND}) (?:named |called )?{_QUOTE}?(?P<name>-{{0,2}}[A-Za-z_]{_NAME}){_QUOTE}? "
        r"(?:is not (?:expected|known|recogni[sz]ed|supported|allowed|defined|valid)|does not exist|is unknown"
        r"|not (?:found|recogni[sz]ed) in)",
    ),
    _kind(
        input_steps.absent_thing,
        rf"(?:unknown|unrecogni[sz]ed|unsupported|undefined) (?P<kind>[a-z][a-z -]{{2,24}}?):? {_QUOTED.format(name='name')}",
        rf"\b(?P<kind_2>[a-z]{{3,16}}) (?:{_QUOTED.format(name='name_2')}|(?P<name_3>[A-Za-z]\w*[_\d]\w*))(?: of [\w./-]{{2,80}})? "
        r"(?:was |is |were )?not (?:reported|found in|known|available|logged|present|defined|in|listed|registered)\b",
    ),
    _kind(input_steps.absent_attribute, r"['\"](?P<owner>\w{2,60})['\"] object has no attribute ['\"](?P<name>\w{1,60})"),
    _kind(
        input_steps.lacking_name,
        rf"^missing:? (?:(?:required )?{_KIND}s? )?"
        rf"(?P<name>{_QUOTE}?[A-Za-z_][\w.-]{{1,60}}{_QUOTE}?(?:, ?[A-Za-z_][\w.-]{{1,60}}){{0,8}})$",
    ),
    _kind(
        input_steps.lacking_name,
        rf"(?:cannot|could not|can't|unable to) find (?:an? |the )?(?:[\w-]{{2,30}} )?{_KIND} (?:for |named )?{_QUOTE}?"
        rf"(?P<name>[A-Za-z_][\w.-]{{1,60}}){_QUOTE}?$",
    ),
    _kind(
        input_steps.damaged_file,
        r"(?:unexpected|premature) end (?:of|in)|truncated|\bcorrupt(?:ed)?\b|(?:bad|wrong) magic|checksum (?:mismatch"
        r"|failed|error)",
        r"size \d{3,20},? expected \d|CRC (?:error|mismatch)|incomplete file|not a valid \w{2,12} file",
    ),
    _kind(
        machine_steps.not_converged,
        r"(?:did|does|do|has|could) ?n[o']t (?:converge|reach(?:ed)? convergence)|\bnot converged\b|failed to converge"
        r"|no convergence",
        r"convergence (?:was )?(?:not|never) (?:reached|achieved)|maximum (?:number of )?iterations (?:reached|exceeded)",
    ),
    _kind(
        input_steps.other_format,
        r"(?:format|version|schema) (?P<have>v?\d[\w.]{0,12}) (?:is )?(?:not supported|unsupported|too new|newer than)"
        r"(?:.{0,60}?(?:up to|at most|supports?|reads?|only) (?P<most>v?\d[\w.]{0,12}))?",
    ),
    _kind(
        input_steps.other_count,
        rf"expected (?P<wanted>{_COUNT}),? (?:but )?(?:saw|got|found|has|was|is|read|have) (?P<have>{_COUNT})",
        rf"(?P<have_2>{_COUNT}),? (?:but )?(?:expected|wanted|asked for) (?P<wanted_2>{_COUNT})",
        rf"(?:written|made|built|saved|created|trained|after) (?:(?:by|with|for|on) )?(?P<have_3>{_COUNT}),? .{{0,20}}?"
        r"(?P<wanted_3>\d{1,12})(?: (?:were|are|was)| *$)",
    ),
    _kind(
        machine_steps.other_process_count,
        r"(?:needs|requires|wants|expects|expected) (?:exactly )?(?P<wanted>\d{1,7}) "
        r"(?P<thing>process(?:es|ors)?|ranks|tasks|threads|cores|PEs|workers|nodes).{0,30}?\b(?P<started>\d{1,7})\b",
    ),
    _kind(
        machine_steps.absent_device,
        r"(?:device|gpu)(?: index| id| ordinal)? (?P<index>\d{1,3}) (?:does not exist|is not there|not found|is invalid"
        r"|unavailable)"
        r"\D{0,20}(?P<seen>\d{1,3}) (?:devices?|GPUs?)",
    ),
    _kind(
        machine_steps.failed_allocation,
        r"(?:cannot|could not|can't|unable to|failed to) allocate (?:memory )?(?:of |for )?"
        r"(?P<wanted>\d[\d.]{0,12} ?(?:[KMGT]i?B|bytes))",
    ),
    _kind(
        input_steps.empty_input,
        r"(?<![\w.,/:-])0 (?:documents|entries|images|samples|records|rows|files|reads|sequences|examples|items|particles|atoms"
        r"|events|lines|models|workers)\b",
    ),
    _kind(input_steps.own_exception, r"^what\(\): {1,4}(?P<text>(?!std::\S+$)\S.{3,120} .{2,300})$"),
)
"""Kinds of failures in the order in which a line is asked for them."""


AROUND, MOST_SHOWN = 6, 200
_URL = re.compile(r"\bhttps?://[\w.-]{2,120}(?::\d{2,5})?")
_HOST_PORT = (
    re.compile(r"host=['\"](?P<host>[\w.-]{2,120})['\"], port=(?P<port>\d{2,5})"),
    re.compile(r"(?:[Cc]onnect(?:ing|ion)?|dial tcp|server) (?:to |at |from )?['\"\[(]{0,2}(?P<host>[\w.-]{2,120}?)['\"\])]{0,2}"
               r"(?: \([\d.:]{3,40}\))?(?::|,? port )(?P<port>\d{2,5})\b"),
    re.compile(r"(?<![\w./])(?P<host>[A-Za-z][\w-]{0,60}(?:\.[\w-]{1,60}){0,6}|\d{1,3}(?:\.\d{1,3}){3}):(?P<port>\d{2,5})\b(?!:)"),
)  # fmt: skip
"""Where a message names a host and a port, the plainest form last."""
_SOURCE = re.compile(r"\.(?:py|cc|cpp|c|h|rs|go|js|java|scala|log|f90)$|^(?:line|step|epoch|iter|at|in)$", re.IGNORECASE)
_OF_FILES = re.compile(
    r"Errno 13\b|Errno 30\b|(?<![\w:/])/[\w.-]+/|\bfolder\b|\bdirector(?:y|ies)\b|\bfiles?\b|['\"][\w./-]+/[\w.-]+['\"]"
)
_OF_ACCOUNTS = re.compile(
    r"https?://|\b(?:user|account|role|token|password|login|server|service|database|cluster|index|bucket|repository|host|Error"
    r"|Exception)\b|\b40[13]\b"
)
_SPACE = re.compile(
    r"(?:maybe|perhaps|possibly|probably|might|may)\b.{0,40}\b(?:disk|space|quota)|(?:disk|space|quota)\b.{0,30}\?", re.IGNORECASE
)
_NUMBERED = re.compile(r"[Ee]rrno|\bE[A-Z]{4,8}\b|No space left on device|quota exceeded")
"""How a message guesses at a full disk, and how one says it."""
_WRAPPER = re.compile(
    r"^make(?:\[\d+\])?: \*\*\*|\b(?:non-zero exit (?:status|code)|exit(?:ed with)? (?:status|code)|returned (?:exit code )?\d)"
)


def general_account(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return what is to be done in place of the general remedy of a reason; empty where that says as much."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log":
        return ""
    text = " ".join(message_of(cited, facts)[:3])
    if diagnosis.reason == "permission_error" and _OF_ACCOUNTS.search(text) and not _OF_FILES.search(text):
        refusal = cut(text, MOST_SHOWN).rstrip(".")
        return (
            f"A service refuses the account of the job, and the modes of files have no part in it: {refusal} "
            f"(job.log:{cited.line}). Give the job the login or key that has the right, or have the right given to it there."
        )
    if diagnosis.reason in ("os_error", "output_file_error") and _SPACE.search(text) and not _NUMBERED.search(text):
        return (
            f"The message guesses and gives no number of an error (job.log:{cited.line}: {cut(text, MOST_SHOWN).rstrip('.')}): "
            "df -h and df -i of the folder that it runs in, and the quota, show whether there is room. Where there is, see whether "
            "several processes of the job write the same file, and give each a name or a folder of its own."
        )
    if diagnosis.reason in ("connection_error", "network_error", "s3_storage_error"):
        line = facts.line(cited.line)
        if line is not None and (step := next_step(line, facts)):
            return step
        return _reached(cited, text, facts)
    if diagnosis.reason == "called_process_error" and _WRAPPER.search(text) and (sentence := _told_before(cited, facts)):
        return f"The line only says that a command failed; what that printed tells why: {sentence.rstrip('.')}."
    return ""


def _reached(cited: Citation, text: str, facts: Facts) -> str:
    lines = [text, *(line.text[:600] for line in facts.between(max(1, cited.line - AROUND), cited.line + AROUND))]
    for line in lines:
        if url := _URL.search(line):
            return _probe_sentence(f"curl -sv {url[0]}")
        for pattern in _HOST_PORT:
            for match in pattern.finditer(line):
                if not _SOURCE.search(match["host"]):
                    return _probe_sentence(f"nc -zv {match['host']} {match['port']}")
    return ""


def _probe_sentence(command: str) -> str:
    return (
        f"{command} on that node shows how it stands: where it is refused, nothing listens there (start it, or correct the "
        "address); where it times out, a firewall, a wrong network or a node without a way out is between; where it answers, the "
        "moment has passed."
    )


def _told_before(cited: Citation, facts: Facts) -> str:
    """Return what the last line before that of a wrapper tells of a failure; empty where it tells of none."""
    line = error_before(cited, facts)
    near = [row for row in facts.between(max(1, cited.line - 2), cited.line - 1) if row.text.strip()]
    line = line or (near[-1] if near and not _WRAPPER.search(near[-1].text) else None)
    if line is None:
        return ""
    block, step = block_of(line, facts), next_step(line, facts)
    sentence = (
        block_text(block) if len(block.lines) > 1 else f"job.log:{line.number}: {cut(line.text.strip(), MOST_SHOWN).rstrip('.')}"
    )
    return f"{sentence}. {step}".removesuffix(". ") if step else sentence
