"""Say what a person does next about what a program was given: names, values, options, files and what it was to make of them.

One function a kind of failure (`families`): each gets the match of its words, the line that has them and the block of that line,
and returns an empty text where the block does not name what it needs.
"""

from __future__ import annotations

import re

from assistant.diagnose.advice.blocks import (
    FOLLOWS,
    MessageBlock,
    MessageLine,
    command_with,
    commands_before,
    file_about,
    files_in,
    line_quote,
    listed_in,
    nearest_of,
    place_in,
    start_words,
)
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts

MOST_NAMES, MOST_OF_NAME = 4, 120
_NAME = r"[\w.$:@/+*%-]{1,80}"
_QUOTE = r"['\"‘’`]"
_STEP = re.compile(
    r"(?:[Nn]ode|[Tt]ask|[Pp]rocess|[Ss]tep|[Jj]ob|[Rr]ule"
    r"|[Ss]tage):? ['\"`]?(?P<who>[A-Za-z][\w./-]{2,80})['\"`]? (?:failed|ended|exited|did not)"
    r"|^(?P<who2>[A-Za-z][\w.-]*[_\d][\w.-]*) (?:ended|exited|failed|returned)"
)
"""How a workflow names the part that failed."""
_FILES = frozenset({"file", "files", "directory", "folder", "path", "module", "package", "command", "host", "line", "user", "key"})
"""Kinds of things of which more is known where they are missing."""
_OF_INPUT = frozenset({"column", "field", "entry", "feature", "label", "target", "group", "species", "section"})
"""Kinds of names that are of what a program reads, and not of the program."""
_CHECKS = {
    "gz": "gzip -t {file}",
    "bz2": "bzip2 -t {file}",
    "xz": "xz -t {file}",
    "zst": "zstd -t {file}",
    "tar": "tar tf {file}",
    "zip": "unzip -t {file}",
    "bam": "samtools quickcheck {file}",
    "h5": "h5ls {file}",
    "nc": "ncdump -h {file}",
}
"""By the ending of a file: the command that shows whether it is whole."""


def _names_of(words: MessageLine, block: MessageBlock, family: re.Pattern[str]) -> list[str]:
    """Return the names that lines of one form refuse."""
    names = [match["name"] for line in sorted(block.lines) if (match := family.search(line.text)) is not None]
    return list(dict.fromkeys(name.strip("'\"‘’`.,:;") for name in names))[:MOST_NAMES]


def _place_words(block: MessageBlock, facts: Facts) -> str:
    """Return where a person finds what a block is about: a place, a file, or the command line, with a blank before it."""
    place, number = place_in(block)
    if place:
        return f" at {place} (job.log:{number})"
    file, number = file_about(block)
    if file:
        return f" in {file} (job.log:{number})"
    return ""


def _version(block: MessageBlock) -> str:
    """Return program and version as a block, or what stands before it, prints them; else `the program`."""
    for words in (*block.above, *block.before, *block.below):
        match = re.search(
            r"(?:Program: {1,8})?(?P<program>[A-Za-z][\w +-]{1,40}?),?(?: -)? (?:version:? ?|v\.? ?)(?P<version>\d[\w.-]{0,20})",
            words.text,
        )
        if match is not None:
            return f"{match['program'].strip(' :)-')} {match['version'].rstrip('.')}"
    return "the program"


def refused_name(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a name that the program does not know, with where it is given and what it may be meant as."""
    names = _names_of(words, block, match.re)
    kind = (match.groupdict().get("kind") or "name").lower()
    listed = listed_in(block)
    near = match.groupdict().get("meant") or nearest_of(names[0], listed) if names else ""
    if not names or (not near and not names[0].strip("-*.")):
        return ""
    hint = near or _hinted(block)
    command = next((row for row in commands_before(block, facts) if names[0] in row.text), None)
    place_words = f" in the command line (job.log:{command.number})" if command is not None else _place_words(block, facts)
    within = re.search(
        r"\bin (?:the )?(?P<kind>group|section|block|namelist|table|class) [&'\"]?(?P<name>[A-Za-z_][\w.-]{1,60})", words.text
    )
    place_words = (
        f" in {within['kind']} {within['name']}{place_words.replace(' in ', ' of ', 1)}" if within is not None else place_words
    )
    several = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    verb = "are no" if len(names) > 1 else "is no"
    kinds = f"{kind}s" if len(names) > 1 and not kind.endswith("s") else kind
    meant_words = f" It may be meant as {hint}." if hint else ""
    knows = f" It knows {', '.join(listed[:12])}." if listed and not near else ""
    pronoun = "them" if len(names) > 1 else "it"
    if kind in _OF_INPUT:
        return (
            f"There is no {kind} {several} (job.log:{words.number}): correct the name{place_words}, or add {pronoun} to what is "
            f"read there.{meant_words}{knows}"
        )
    return (
        f"{several} {verb} {kinds} that {_version(block)} knows (job.log:{words.number}): correct {pronoun}{place_words}, leave "
        f"{pronoun} out, or take "
        f"the version or build of the program that has {pronoun}.{meant_words}{knows}"
    )


def absent_thing(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a thing of any kind that is refused, or not there, by its name."""
    groups = match.groupdict()
    kind = (groups["kind"] or groups["kind_2"] or "name").lower()
    name = groups["name"] or groups["name_2"] or groups["name_3"]
    if kind in _FILES or "/" in name:
        return ""
    listed = listed_in(block)
    near = nearest_of(name, listed)
    files = [file for file in files_in(words.text) if file != name]
    place_words = f" (it is looked for in {files[-1]})" if files else ""
    settings = _place_words(block, facts) if not files else ""
    meant_words = f" It may be meant as {near}." if near else ""
    knows = f" There are {', '.join(listed[:12])}." if listed else ""
    return (
        f"There is no {kind} {name}{place_words} (job.log:{words.number}): correct the name{settings}, or provide it: make it "
        f"where it is looked for, or "
        f"take the version or build that has it.{meant_words}{knows}"
    )


def _hinted(block: MessageBlock) -> str:
    """Return the name that a block says was perhaps meant; empty without one."""
    for words in block.lines:
        match = re.search(
            rf"(?:[Dd]id you mean|[Pp]erhaps you meant|[Mm]aybe you meant"
            rf"|similar(?: names?)?)[^'\"‘`]{{0,40}}?:? ?{_QUOTE}?(?P<name>{_NAME})",
            words.text,
        )
        quoted_name = re.search(r"(?:[Dd]id you mean|meant)[^'\"‘`]{0,60}['\"‘`](?P<name>[^'\"’`]{2,80})['\"’`]", words.text)
        if quoted_name is not None:
            return quoted_name["name"]
        if match is not None:
            return match["name"].strip("?.")
    return ""


def lacking_name(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a name that is missing in what the program reads."""
    names = [name.strip("'\"‘’` .") for name in re.split(r",| and ", match["name"])]
    listed = listed_in(block)
    place_words = _place_words(block, facts)
    near = nearest_of(names[0], listed)
    has = f" It has {', '.join(listed[:12])}{f', of which {near} may be meant' if near else ''}." if listed else ""
    owner = match.groupdict().get("owner") or ""
    if not place_words and not has and not owner:
        return ""
    return (
        f"{', '.join(names)} is missing{place_words}: add it there{f', for {owner}' if owner else ''}, or correct "
        f"the name by which it is asked for.{has}"
    )


def damaged_file(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a file that is cut off or damaged; empty where the block names none."""
    file, number = file_about(block)
    if not file:
        return ""
    end = file.rpartition(".")[2].lower()
    check = _CHECKS.get(end, "ls -l {file}").format(file=file)
    at = "" if number == words.number else f" (named in job.log:{number})"
    size = re.search(r"size (\d{3,20}),? expected (\d{3,20})", words.text)
    sizes = f", it has {size[1]} of {size[2]} bytes" if size is not None else ""
    return (
        f"{file}{at} is cut off or damaged{sizes} ({line_quote(words)}): compare its size with that of its source, and "
        f"copy, fetch or make it "
        f"again; `{check}` on the node shows whether it is whole."
    )


def option_without_value(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about an option that was given without its value."""
    name = match["name"].strip("'\"`‘’")
    command = next((row for row in commands_before(block, facts) if name in row.text), None)
    shown_words = ""
    if command is not None:
        follows = re.search(rf"(?<![\w-]){re.escape(name)}(?:[ =]+(?P<next>\S{{1,80}}))?", command.text)
        next_word = follows["next"] if follows is not None and follows["next"] else "nothing"
        shown_words = f" In the command line (job.log:{command.number}) {next_word} stands right behind it."
    return (
        f"{name} has no value (job.log:{words.number}): what fills it in the script, mostly a variable, is empty or not "
        f"set there. Set it "
        f"before, or write the value ({name} VALUE); `set -u` in the script would have named the variable.{shown_words}"
    )


def value_of_wrong_kind(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a value that is no number, date or the like, or two words that were glued together."""
    value, kind = match["value"], match["kind"].lower()
    owner = (match.groupdict().get("name") or "").strip("'\"`‘’:,.")
    glued = re.search(r"\w(--?[A-Za-z][\w-]+)$|^(\S+?)(--[A-Za-z][\w-]+)", value)
    command = next((row for row in commands_before(block, facts) if value in row.text), None)
    place_words = f" (job.log:{command.number})" if command is not None else ""
    of_owner = f" of {owner}" if owner else ""
    if glued is not None:
        second = glued[1] or glued[3]
        return f"A blank is missing before {second} in '{value}', the value{of_owner} in the command line{place_words}."
    place = (place_words and " in the command line" + place_words) or _place_words(block, facts)
    return f"Correct the value{of_owner}{place}: '{value}' is no {kind} (job.log:{words.number})."


def other_format(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a file in a format that the reader does not know."""
    file, number = file_about(block)
    have, most = match["have"], match.groupdict().get("most") or ""
    program = _version(block)
    of_file = f"{file} (job.log:{number}) is" if file else "What it reads is"
    upto = f", and {program} reads up to {most}" if most else f", which {program} does not read"
    older = f" in format {most}" if most else " in an older format"
    return (
        f"{of_file} written in format {have}{upto} ({line_quote(words)}): take a newer version of the reader, or write the file "
        f"again{older}."
    )


def unmatched_pattern(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a pattern of names that matched no file and was taken for a name."""
    pattern = match["name"]
    folder = pattern.rpartition("/")[0] or "that folder"
    return (
        f"No file matched {pattern}, so that the pattern itself was taken for a name (job.log:{words.number}): `ls "
        f"{folder}` on the node shows "
        "what there is. Correct the folder or the ending, let the step run first that makes these files, or take the "
        "quotation marks off "
        "where the shell is to fill it in."
    )


def traced_exit(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return of a traced script which exit ended it, and what it had tested before."""
    place, code = f"{match['file']}:{match['line']}", match["code"]
    before = next((row for row in block.before if re.search(r"\[\[? |\btest |\(\( ", row.text)), None)
    last = block.before[0] if block.before else None
    tested = f" The last that it tested before: {line_quote(before)}." if before is not None else " No test stands before it."
    last_words = f" Right before it ran: {line_quote(last)}." if last is not None and last != before else ""
    return (
        f"The script ends itself by `exit {code}` at {place} (job.log:{words.number}), without a message: open that "
        f"line, see which "
        f"condition leads to it and mend that, or take the exit out where it has none; callers above only pass the "
        f"status on.{tested}{last_words}"
    )


def empty_input(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about an input that gave nothing; empty where the block names no file."""
    file, number = file_about(block)
    if not file:
        return ""
    return (
        f"{file} (job.log:{number}) gave nothing ({line_quote(words)}): it is empty, not there, or of another form than is "
        f"read. Fill it, or "
        f"correct its path; `wc -l {file}` on the node shows which."
    )


def own_exception(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what the text of a program's own exception wants corrected."""
    text = match["text"].strip()
    file, number = file_about(block)
    place_words = f" in {file} (job.log:{number})" if file else ""
    return f"Correct{place_words} what the program's own exception names: {cut(text, MOST_OF_NAME)} (job.log:{words.number})."


def output_not_made(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a step that ended without the file that it was to make."""
    quoted_name = re.search(r"output(?:s| files?)? ['\"`](?P<name>[^'\"`]{2,120})", words.text)
    name = (match.groupdict().get("name") or (quoted_name["name"] if quoted_name is not None else "")).strip("'\"`.,")
    part_name = next((hit["who"] or hit["who2"] for row in block.lines if (hit := _STEP.search(row.text))), "the step")
    code = re.search(r"(?:exit|return|status) ?(?:code|status)?[ <:=]{1,2}(\d{1,4})", words.text)
    ended = f" ended with exit code {code[1]} and" if code is not None else ""
    later = sum(FOLLOWS.search(line.text[:400]) is not None for line in facts.between(words.number + 1, words.number + 200))
    follows = f" The {later} that tell of it behind only did not run for want of it." if later > 1 else ""
    return (
        f"{part_name}{ended} did not make {name or 'its output'} (job.log:{words.number}): read its own output (stdout, "
        f"stderr, its work folder) for why; "
        f"either its program failed there, or it wrote another name or folder than is declared.{follows}"
    )


def other_count(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where one thing has another count or size than is expected of it."""
    groups = match.groupdict()
    required, have = (
        (groups.get(name) or groups.get(f"{name}_2") or groups.get(f"{name}_3") or "").strip() for name in ("wanted", "have")
    )
    if not required or not have or required == have:
        return ""
    place, _ = place_in(block)
    file, at = file_about(block)
    row = re.search(r"\b(?:line|row|record) (\d{1,9})\b", words.text)
    if place and row is not None:
        name, _, line = place.rpartition(":")
        return (
            f"Line {line} of {name} has {have} where {required} are expected (job.log:{words.number}): `sed -n '{line}p' "
            f"{name}` shows it. A "
            "separator or a quotation mark within a field, or a row of another kind, makes it so: repair that row, "
            "leave it out, or tell the "
            "reader the separator."
        )
    about = f"{file} (job.log:{at})" if file else place or "what it reads"
    start = start_words(command_with(required.split()[0], block, facts))
    return (
        f"{about} has {have}, and the program expects {required} ({line_quote(words)}): make both the same. Either change the "
        f"setting (a count on the "
        f"command line, a size in the parameters) to {have}, or make or choose a file with {required}.{start}"
    )


def absent_attribute(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return where a name is taken of an object that does not have it; empty where the block names no place."""
    place, number = place_in(block)
    if not place:
        return ""
    file = place.rpartition(":")[0]
    return (
        f"What stands at {place} (job.log:{number}), or is called from there, takes {match['name']} of a "
        f"{match['owner']}, which has nothing of "
        f"that name: `grep -n {match['name']} {file}` shows where. Correct the name there, or define it where that "
        f"{match['owner']} is filled."
    )


def operand_sizes(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return how to see which of the operands of an expression has another size."""
    hit = re.search(
        r"(?:Error in |in expression |Error using )(?P<left>[\w.$\[\]()]{1,60}) (?P<sign>%\*%|%o%|[-+*/]|\.\*"
        r"|<-) (?P<right>[\w.$\[\]()]{1,60})",
        words.text,
    )
    if hit is None:
        return ""
    left_side, right = hit["left"], hit["right"]
    subject = "as many columns as the other has rows" if "%*%" in hit["sign"] else "the same size"
    return (
        f"{left_side} and {right} have sizes that do not fit in `{left_side} {hit['sign']} {right}` (job.log:{words.number}): "
        f"print dim({left_side}) and "
        f"dim({right}) (length() where that is NULL) right before it. They need {subject}: transpose one of them (t()), "
        f"keep a column that was "
        "dropped (drop = FALSE), or take the same columns for fitting and for predicting."
    )


def unset_variable(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about an environment variable that a program wants and has not."""
    name = match["name"]
    return (
        f"Export {name} in the batch script before the program starts (job.log:{words.number}): most programs come with a script "
        f"that sets all that they need (source it, or load the module). `env | grep {name}` in the job shows whether it arrived; a "
        "login shell that has it does not hand it to every job."
    )
