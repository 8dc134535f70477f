"""Fill advice with the objects of the case: earlier warnings of the same, values of options, hosts; nothing of other runtimes.

Advice of a template names an option, a host or a file in general. Where the log shows which one it is, that is said; and what the
log shows no trace of, such as a runtime that the program does not use, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.diagnose.advice.blocks import (
    MessageBlock,
    MessageLine,
    block_of,
    command_in,
    file_about,
    files_in,
    line_quote,
    names_in,
    place_in,
    work_before,
)
from assistant.diagnose.advice.sentences import NO_REMEDY
from assistant.diagnose.answer import NO_HELP
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import last_save
from assistant.diagnose.readers.origin import origin_of, raised_at
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.records import Citation

MOST_OF_LINE, LINES_BEFORE, CLOSE_BEFORE = 400, 400, 6
SHARED_PARTS, LEAST_REPEATED = 3, 16
"""Parts of a path, the root among them, that two lines share which tell of the same place."""
_TROUBLE = re.compile(
    r"\b(?:refused|unreachable|timed out|[Ff]ailed|[Ff]ail(?:ure|s)?|not found|[Nn]o such|denied|full|[Qq]uota|cannot"
    r"|could not|unable to|missing"
    r"|empty|expired|expire|exceed(?:ed|s)|corrupt(?:ed)?|truncated|[Ii]nvalid|skipped|gave up|giving up"
    r"|(?<![\d.])0 [a-z]+s|(?:older|newer) than|differs?|mismatch)\b"
)
_WARNS = re.compile(r"^\[[WE]::\w+\]|\b(?:WARN(?:ING)?|[Ww]arning|CRITICAL|FATAL|fatal)\b|[Qq]uota")
_GONE_WITHOUT = re.compile(r"\b(?:refused|unreachable|timed out|not found|could not|cannot|unable to|missing|empty)\b")
_IS_PLACE = re.compile(r"^(?!.*\.\w{1,4}:\d+$)(?:.*/.|[\w.-]+:\d{2,5}$)")
"""A path, or a host with its port, and no place in a source."""
_STANDING = re.compile(
    r"\w+Warning\b|deprecat|FutureWarning|warnings\.warn|No module named|Unable to register|TF-TRT|Could not find (?:cuda|TensorRT)"
    r"|OMP_NUM_THREADS|found in sys\.modules|falling back|fall back|\bnot found, using\b|default|optional",
    re.IGNORECASE,
)
"""Warnings with which programs come that run well."""
_OPTION = re.compile(
    r"(?<![\w/-])(?P<option>--[a-z][a-z-]{2,40}|-Xmx|-Xms|[a-z]+(?:_[a-z]+){1,5}|[a-z]+(?:\.[a-z]+){1,4}(?=[ ,;)]))(?![\w-])"
)
_SIZE = r"(?P<value>\d[\w.]{0,12})"
_VALUE = r"[= ]['\"]?(?P<value>\d[\w.:]{0,20}|/[\w./-]{2,120})\b"
"""How the value of an option stands behind it: of a heap at once, of others behind a blank or an equals sign."""
_CODE = re.compile(r"`[^`]{1,300}`")
"""What is quoted as code, of which the options are not what advice says to change."""
_PYTHON = re.compile(
    r"ython|\.py\b|Traceback \(most|site-packages|\bpip3?\b|\bconda\b|\btorch|\bjax\b|tensorflow|\bnumpy\b|jupyter"
    r"|ipykernel|py[A-Z3]"
)
_OF_PYTHON = re.compile(
    r"\bPython\b|\bpython3?\b|\bpip3? |\btraceback\b|\bpy-spy\b|\bfaulthandler\b|\bREQUESTS_CA_BUNDLE\b"
    r"|\bPYTHON[A-Z]+\b|\bvirtualenv\b"
)
"""Words of advice that have a meaning for a program of Python alone."""
_ALTERNATIVE = re.compile(
    r"\b(?:with )?(?:PYTHON\w+(?:=\w+)?|py-spy|faulthandler) or (?=\w)|(?: or|,) (?:with )?(?:Python|PYTHON\w+(?:=\w+)?"
    r"|py-spy|faulthandler)(?=[ .,;])"
)
"""A means of Python beside another one."""
_SENTENCES = re.compile(r"(?<=[a-z0-9)`'\"%][.!?]) (?=[A-Z`/~.-])")
_BRACKETS = re.compile(r" \([^()]{1,400}\)")
_PORT_AT_HOST = re.compile(r"(?<![\w.])(\d{4,5})@([A-Za-z][\w.-]{2,80})")
_HOST = re.compile(
    r"(?:[Hh]ost key for|[Hh]ost|[Nn]ode|[Aa]gent|[Ww]orker|[Ss]erver) (?P<host>(?=[\w.-]*(?:\d"
    r"|\.))[A-Za-z][\w.-]{1,80}?)(?=[\s:,']|$)"
)


def warned_before(cited: Citation, advice: str, facts: Facts) -> str:
    """Return what a warning told before a failure of the same path or host, or of what was then gone without; or empty."""
    line = facts.line(cited.line) if cited.file == "job.log" else None
    if line is None:
        return ""
    block, place = block_of(line, facts), raised_at(cited, facts)
    objects = _objects(block)
    first = place[0].first if place is not None else block.first
    for earlier in reversed(facts.between(max(1, facts.progress.leg, first - LINES_BEFORE), first - 1)):
        text = earlier.text[:MOST_OF_LINE]
        if _STANDING.search(text) or not _TROUBLE.search(text) or not _WARNS.search(text) or f"job.log:{earlier.number}" in advice:
            continue
        if any(episode.first <= earlier.number <= episode.last for episode in facts.episodes):
            continue
        words = MessageLine(earlier.number, facts.streams.body(text).text.strip())
        core = _WARNS.sub("", words.text).strip(" :[]")
        if core in block.root.text or block.root.text in words.text:
            continue  # it says the same
        same = _of_same(words.text, objects)
        gone_without = first - earlier.number <= CLOSE_BEFORE and _GONE_WITHOUT.search(text) is not None
        if same or (gone_without and any(_IS_PLACE.search(name) for name in (*names_in(words.text), *files_in(words.text)))):
            of = f" of {same}" if same else ""
            return f"Before it the log warns{of} ({line_quote(words)}): see to that first, for it may be why."
    return ""


def _objects(block: MessageBlock) -> set[str]:
    work = work_before(block)
    texts = [words.text for words in block.lines] + ([work.text] if work is not None else [])
    objects = {name for text in texts for name in (*names_in(text), *files_in(text))}
    return {name for name in objects if not name.startswith("-")}


def _of_same(text: str, objects: set[str]) -> str:
    """Return the path, host or name of which both a line and a failure tell; empty without one."""
    for name in sorted(names_in(text) | set(files_in(text)), key=len, reverse=True):
        if not _IS_PLACE.search(name) and not _CONFIGURATION.search(name) and "." not in name:
            continue
        for object_name in objects:
            if name == object_name or name.startswith(f"{object_name}."):
                return name
            parts, object_parts = name.rstrip("/").split("/"), object_name.split("/")
            if name.startswith("/") and len(parts) >= SHARED_PARTS and object_parts[: len(parts)] == parts:
                return name
    return ""


def values_of_options(cited: Citation, advice: str, facts: Facts) -> str:
    """Return the values that the log shows for options which advice says to change; empty where it shows none."""
    shown_words: list[str] = []
    options = list(dict.fromkeys(match["option"] for match in _OPTION.finditer(_CODE.sub("", advice))))
    end = cited.line if cited.file == "job.log" else facts.lines_total
    for option in options:
        of_heap = re.compile(rf"(?<![\w-]){re.escape(option)}{_SIZE}")
        pattern = of_heap if option.startswith("-X") else re.compile(rf"(?<![\w-]){re.escape(option)}{_VALUE}")
        for line in facts.lines:
            if line.number > end:
                break
            text = line.text[: 4 * MOST_OF_LINE]
            match = pattern.search(text) if option in text else None
            if match is not None and f"job.log:{line.number}" not in advice and match[0] not in advice:
                shown_words.append(f"{match[0]} (job.log:{line.number})")
                break
    return f"The log shows {', '.join(shown_words)}." if shown_words else ""


def save_before_nan(cited: Citation, facts: Facts) -> str:
    """Return from where to go on and what to change where the numbers of a model became NaN in code that only noticed it."""
    save = last_save(facts, cited.line)
    whence = (
        f"Go on from the last save before it ({line_quote(MessageLine(save.number, save.text.strip()))}), and not from a later "
        "state; lower"
        if save is not None
        else "Lower"
    )
    return (
        f"{whence} the learning rate or clip the gradients (clip_grad_norm_), bound what is exponentiated or divided (log, std), "
        "and stop at the first loss that is no number (torch.isfinite) to see which input it came of."
    )


def with_hosts(advice: str, cited: Citation, facts: Facts) -> str:
    """Return advice with the host that the block of a failure names in place of `HOST`."""
    line = facts.line(cited.line) if cited.file == "job.log" and " HOST" in advice else None
    if line is None:
        return advice
    servers = {match.groups() for row in facts.lines for match in _PORT_AT_HOST.finditer(row.text[:MOST_OF_LINE])}
    if " HOST PORT" in advice and len(servers) == 1:
        port, server = servers.pop()
        return advice.replace(" HOST PORT", f" {server} {port}")
    block = block_of(line, facts)
    lines = (
        *block.lines,
        *block.before[:CLOSE_BEFORE],
        *(MessageLine(row.number, row.text) for row in facts.between(line.number + 1, line.number + 2)),
    )
    hosts = {match["host"] for words in lines if (match := _HOST.search(words.text)) is not None}
    return re.sub(r"(?<= )HOST\b", hosts.pop(), advice) if len(hosts) == 1 else advice


def without_other_runtimes(advice: str, facts: Facts) -> str:
    """Return advice without what only a program of Python has, where the log shows no sign of Python."""
    if not _OF_PYTHON.search(advice) or any(_PYTHON.search(line.text[: 4 * MOST_OF_LINE]) for line in facts.lines):
        return advice
    sentences = [_cleaned(sentence) for sentence in _SENTENCES.split(advice)]
    remaining = [sentence for sentence in sentences if sentence]
    return " ".join(remaining) if any(sentence != NO_HELP for sentence in remaining) else advice


def _cleaned(sentence: str) -> str:
    """Return a sentence without what is of Python alone; empty where that is what it is about."""
    if not _OF_PYTHON.search(sentence):
        return sentence
    sentence = _ALTERNATIVE.sub("", _BRACKETS.sub(lambda match: _listed(match[0]), sentence))
    return "" if _OF_PYTHON.search(sentence) else sentence


def _listed(brackets: str) -> str:
    """Return words in brackets without those elements of their list that are of Python."""
    elements = [element for element in brackets.strip(" ()").split(", ") if not _OF_PYTHON.search(element)]
    elements = elements or [part for part in re.split(r" (?:and|or) ", brackets.strip(" ()")) if not _OF_PYTHON.search(part)]
    return f" ({', '.join(elements)})" if elements else ""


def objects_unsaid(cited: Citation, advice: str, facts: Facts) -> str:
    """Return what the line of a failure names, where advice names nothing of it; and the host on which a remote path is."""
    line = facts.line(cited.line) if cited.file == "job.log" else None
    if line is None or raised_at(cited, facts) is not None:
        return ""
    root = block_of(line, facts).root
    for other_line in facts.lines:
        for match in _REMOTE.finditer(other_line.text[:MOST_OF_LINE]) if ":/" in other_line.text else ():
            if match["path"] in advice and match["host"] not in advice:
                return f"That path is on {match['host']}, and not on the node (job.log:{other_line.number})."
    names = [
        name for name in (*files_in(root.text), *sorted(names_in(root.text))) if _IS_PLACE.search(name) and _IS_WHOLE.search(name)
    ]
    if not names or any(name in advice for name in names_in(root.text) | set(files_in(root.text))) or "job.log:" in advice:
        return ""
    stream = facts.streams.body(line.text).stream
    return f"It tells of {names[0]} (job.log:{root.number}{f', {stream}' if stream else ''})."


_IS_WHOLE = re.compile(r"^[/~.]|:\d|\.\w{1,8}$")
"""A path from the root or from where it runs, a file with its ending, a host with its port; and no two words with a slash."""
_REMOTE = re.compile(r"(?<![\w./-])(?:[\w.-]{1,40}@)?(?P<host>[A-Za-z][\w.-]{2,80}):(?P<path>/[\w.-]{1,80}(?:/[\w.-]{1,80}){1,10})")


def further_block_lines(cited: Citation, advice: str, facts: Facts, *, is_known: bool, most: int = 2) -> str:
    """Return lines of the block of a failure that say more than advice, and what the program was doing before it; or empty.

    Args:
        cited: Where the failure is told.
        advice: What is advised so far.
        facts: Of the case.
        is_known: Whether a template knows the words of the failure, and has read what stands around it.
        most: Lines that are quoted.
    """
    line = facts.line(cited.line) if cited.file == "job.log" else None
    if line is None or is_known or origin_of(cited, facts) is not None:
        return ""
    block = block_of(line, facts)
    root_names = names_in(block.root.text) | set(files_in(block.root.text))
    specific = any(name in advice for name in root_names) or "job.log:" in advice
    lines = sorted(dict.fromkeys((*_unsaid(block, advice, specific=specific), *_summed_up(block, advice, facts))))
    return f"Beside it the log says: {'; '.join(line_quote(words) for words in lines[:most])}." if lines else ""


def _summed_up(block: MessageBlock, advice: str, facts: Facts) -> Iterator[MessageLine]:
    """Yield a later line that repeats the message of a failure behind a name, as summaries of tests do."""
    core = re.sub(r"^\W*E +", "", block.root.text)
    last = max(words.number for words in block.lines)
    for line in facts.between(last + 1, last + LINES_BEFORE) if len(core) >= LEAST_REPEATED else ():
        match = re.match(rf"\s*(?:FAILED|ERROR|FAIL|Failed) (?P<name>\S+).{{0,8}}{re.escape(core)}", line.text[:MOST_OF_LINE])
        if match is not None and match["name"] not in advice:
            yield MessageLine(line.number, line.text.strip())
            return


def _unsaid(block: MessageBlock, advice: str, *, specific: bool) -> Iterator[MessageLine]:
    """Yield lines of a block with names that advice does not have; where it is specific only those that tell of a failure."""
    for words in (*block.below, *block.above):
        mine = names_in(words.text) | set(files_in(words.text))
        if words.text in block.root.text or block.root.text in words.text:
            continue
        standing = _NO_MESSAGE.search(words.text) or NO_REMEDY.search(words.text) or f"job.log:{words.number}" in advice
        if not mine or standing or any(name in advice for name in mine) or words.text in advice:
            continue
        if not specific or (tells_failure(words.text) and words in block.below and not _alike(words.text, block.root.text)):
            yield words
    work = work_before(block)
    about, _ = file_about(block)
    if not specific and work is not None and not (about and about in advice):
        yield work


_NO_MESSAGE = re.compile(r'std::\w+$|^File "|^[~^\s]+$|^usage:|^\[-|\bINFO\b|BACKTRACE|^\s*at ', re.IGNORECASE)
"""What stands in a block and tells nothing of its failure: frames, usage, lines of other parts."""


def _alike(text: str, root_text: str) -> bool:
    """Tell whether two lines have most of their words in common."""
    first, second = (set(re.findall(r"[a-z]{3,}", sentence.lower())) for sentence in (text, root_text))
    return 2 * len(first & second) >= len(first)


def place_named(cited: Citation, facts: Facts) -> tuple[str, int]:
    """Return the place in a file that the block of a failure names beside it, and its line; an empty place where it names none."""
    line = facts.line(cited.line) if cited.file == "job.log" else None
    return place_in(block_of(line, facts)) if line is not None else ("", 0)


def configuration_named(cited: Citation, advice: str, facts: Facts) -> str:
    """Return which file of settings the log names, where a key is not there; empty where it names none, or several."""
    if "configuration" not in advice and not re.search(
        r"KeyError|\b[Kk]ey\b.{0,40}(?:not|missing)|[Mm]issing (?:key|option|setting|parameter)", cited.text[:MOST_OF_LINE]
    ):
        return ""
    files: dict[str, int] = {}
    for line in facts.lines:
        if line.number >= cited.line or len(files) > 1:
            break
        if not facts.before_leg(line.number) and "." in line.text:
            for file in files_in(facts.streams.body(line.text[:MOST_OF_LINE]).text):
                if _CONFIGURATION.search(file):
                    files.setdefault(file, line.number)
    if len(files) != 1 or any(file in advice for file in files):
        return ""
    return "".join(f"The log names the configuration {file} (job.log:{number})." for file, number in files.items())


_CONFIGURATION = re.compile(r"\.(?:ya?ml|toml|ini|cfg|conf|config|nml|jsonc?)$")


def folder_sought(cited: Citation, facts: Facts) -> str:
    """Return in which folder or container a file that is not there was looked for; empty where the log does not show it."""
    line = facts.line(cited.line) if cited.file == "job.log" else None
    if line is None or not re.search(
        r"[Nn]o such file|not found|cannot open|does not exist|could not open", line.text[:MOST_OF_LINE]
    ):
        return ""
    block = block_of(line, facts)
    files, work = files_in(block.root.text), work_before(block)
    if not files and work is not None and files_in(work.text):
        last = files_in(work.text)[-1]
        return f"The last file that the program names before is {last} (job.log:{work.number}): see whether that is there."
    if not files:
        return ""
    file = files[-1]
    for row in reversed(facts.between(max(1, facts.progress.leg), line.number)):
        text = facts.streams.body(row.text[:MOST_OF_LINE]).text
        command = command_in(text.strip())
        if file.startswith("/") and command and (match := _CONTAINER.search(command)):
            folder = file.rpartition("/")[0]
            bind = f"-v {folder}:{folder}" if match["tool"] in ("docker", "podman") else f"--bind {folder}"
            if re.search(rf"(?:-v|--volume|-B|--bind|--mount)[ =]\S{{0,200}}{re.escape(folder)}", command):
                continue
            return (
                f"The program ran inside a container (job.log:{row.number}), which sees only what is bound into it: start it with "
                f"{match['tool']} {bind}, and see by `ls {file}` on the node whether the file is there at all."
            )
        if not file.startswith("/") and (match := _FOLDER.search(text)):
            return (
                f"{file} has no folder of its own in front, so it was looked for below {match['folder']} "
                f"(job.log:{row.number}): start the "
                f"program in the folder that holds it (cd FOLDER before it), or give the whole path; `ls "
                f"{match['folder'].rstrip('/')}/{file}` shows it."
            )
    return ""


_CONTAINER = re.compile(
    r"\b(?P<tool>apptainer|singularity|docker|podman|charliecloud|shifter|enroot) (?:\S+ )*?(?:exec|run|start|shell)\b"
)
_FOLDER = re.compile(
    r"(?:[Ww]orking (?:dir(?:ectory)?|folder)|[Cc]urrent (?:dir(?:ectory)?|folder)|\b[Cc]wd|\bPWD|\bpwd|[Rr]unning in"
    r"|[Ss]tarted in|[Ww]orkdir|SLURM_SUBMIT_DIR"
    r"|PBS_O_WORKDIR)\b[^/\n]{0,12}(?P<folder>/[\w.@+=~/-]{2,200})"
)
