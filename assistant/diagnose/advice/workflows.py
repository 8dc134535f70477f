"""Say what a rule of a workflow failed at: Snakemake, Nextflow and cwltool print a block of fields below the rule that failed.

Such a block tells the command, its exit status, what it printed (or the file that holds it), and which files were declared and not
made, or wanted and made by nobody. The program's own error stands in that file, so a log without it names the file to be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.diagnose.advice.standing import EXIT_CODES
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.records import Citation

RULE, MISSING = "called_process_error.rule", "file_not_found_error.workflow"
SUBMISSION = "called_process_error.submission"
"""The signatures of a rule that failed, and of one whose files are missing."""
LINES_OF_BLOCK, LINES_ABOVE = 60, 16
MOST_OF_LINE, SHOWN_OF_COMMAND, SHOWN_OF_ERROR, MOST_FILES = 2000, 200, 240, 4
_NAME = re.compile(
    r"(?:rule|checkpoint|process(?: >)?|group job) [`']?(?P<name>[\w.:-]{1,120}(?: \([^()]{1,60}\))?)"
    r"|\[job (?P<job>[\w.-]{1,80})\] completed permanentFail"
)
_HEADS = re.compile(r"\bError executing process > |^\s*Error in (?:rule|checkpoint|group job) [\w.-]{1,120}:")
"""The first line of a block, by which another signature may have known it."""
_BLOCK_ENDS = re.compile(r"^(?:Work dir:|Tip: )")
MOST_OF_BLOCK = 600
"""Lines of a block that holds what a command printed, up to the line that names its folder."""
_AT = re.compile(r"in (?:file |line )\"?(?P<file>[^\s\",]{1,300})\"?, line (?P<line>\d{1,6})")
_FILES = re.compile(r"(?:^|\s)(?P<file>(?:[\w.@+*-]{0,120}/)*[\w.@+*{}-]{1,120}\.[A-Za-z][\w.]{0,20})(?=[\s,;()`']|$)")
_LOG = re.compile(r"^\s+log: (?P<file>[^\s,(]{1,300})")
_EXIT = re.compile(r"exit status \((?P<code>\d{1,3})\)|^\s*(?P<bare>\d{1,3})\s*$|non-zero exit status (?P<told>\d{1,3})")
_COMMAND = re.compile(r"^Command (?P<quote>[' \[].{3,2000})")
_RULE_LINE = re.compile(r"^\s*(?:\[|Tip: |-- Check|Shutting down|Exiting because|Removing output|Trying to restart)")
_TELLS = re.compile(
    r"rror\b|ERROR|[Ff]atal|FATAL|EXIT|[Cc]annot|[Cc]an't|[Nn]o such|not found|[Ff]ailed|denied|[Kk]illed|Exception|[Ii]nvalid"
)
_WROTE = re.compile(r"\b(?:wrote|written|writing|saved?|saving|created?|output)\b.{0,40}", re.IGNORECASE)
_RULE_BEGINS = re.compile(
    r"^(?:local)?(?:rule|checkpoint) [\w.-]{1,120}:$"
    r"|^\s{2,8}(?:input|output|jobid|wildcards|resources|reason|threads): |^Finished job"
)
_REMOVES = "Removing output files of failed"
_CONTAINER = re.compile(
    r"(?P<tool>singularity|apptainer|docker|podman) +(?:exec|run)\b.{0,4000}?(?P<image>\S{1,200}\.(?:sif|simg|img))"
)


_JOB = re.compile(
    r"(?:cluster_jobid|external(?: jobid)?|slurm_jobid|jobid on cluster):? '?(?:Submitted batch job )?(?P<job>\d{2,12})"
)
"""The number that the batch system gave to the job of a rule, as Snakemake prints it."""
MOST_JOBS = 6
_SUBMITS = "Error submitting jobscript"
_SUBMITTED = re.compile(r"\bYour job(?:-array)? (\d{1,12})[. ]|\bSubmitted batch job (\d{1,12})|\bJob <(\d{1,12})> is submitted")
_STARTS = re.compile(r"^\s*[^\s#]")
_PROCESSORS = (
    " Build its compiled packages anew on such a node, or for the common processor, or keep the process to nodes of the kind that "
    "they were built on (clusterOptions '--constraint=...')."
)
_NO_STATUS = "for an unknown reason"
"""What Nextflow says of a task that ended without leaving a status."""


class FailedRule(NamedTuple):
    """A rule of a workflow that failed, as its block tells."""

    name: str
    place: str
    """Where the rule is written; empty where the log does not tell."""
    sections: dict[str, list[str]]
    """What stands below each field, by the words before its colon in lower letters."""
    errors: list[tuple[int, str]]
    """Lines below `Command error` that tell of a failure, with their numbers."""


def workflow_account(cited: Citation, facts: Facts) -> str:
    """Return what to do about a rule of a workflow that failed, or whose files are missing; empty for other lines."""
    if cited.file != "job.log" or not (cited.rule in (RULE, MISSING, SUBMISSION) or _HEADS.search(cited.text[:MOST_OF_LINE])):
        return ""
    rule = failed_rule(cited, facts)
    of_rule = f"rule {rule.name}" if rule.name else "the rule"
    at = f" ({rule.place})" if rule.place else ""
    text = cited.text
    if "MissingOutput" in text or "expected by" in text or "some output files are missing" in text:
        return _not_made(of_rule, at, cited, rule, facts)
    if "MissingInput" in text or "Missing input" in text:
        return _not_there(of_rule, at, cited, rule, facts)
    return _failed(of_rule, cited, rule, facts)


def _not_made(of_rule: str, at: str, cited: Citation, rule: FailedRule, facts: Facts) -> str:
    files = _listed(_paths(re.findall(r"`([^`]{1,200})`", cited.text)[:1] or _below(cited, facts)))
    removed = _removed(cited, facts)
    output_line = next((line.strip() for line in rule.sections.get("command output", []) if _WROTE.search(line)), "")
    wrote = (
        f" It did make {_listed(removed)}."
        if removed
        else f" What it printed: {cut(output_line, SHOWN_OF_COMMAND)}."
        if output_line
        else ""
    )
    if "expected by process" in cited.text:
        process = of_rule.replace("rule ", "process ", 1)
        work = next((line.strip() for line in rule.sections.get("work dir", []) if line.strip()), "")
        return (
            f"The command of {process} ended well and did not make {files or 'what it declares'}, which the process declares as "
            f"its output: look in {work or 'its work folder'} for what it did make (ls, .command.log), and let the command "
            f"write that name, or correct the output: block (optional: true where there may be none).{wrote} -resume then keeps "
            "what is done."
        )
    return (
        f"The command of {of_rule}{at} ended well and did not make {files or 'what it declares'}, which the rule declares as its "
        f"output: let it write exactly that name in the folder that the rule expects, or correct the output there.{wrote} To wait "
        "longer (--latency-wait 60) helps only where the file comes late on a shared disk."
    )


def _not_there(of_rule: str, at: str, cited: Citation, rule: FailedRule, facts: Facts) -> str:
    lines = rule.sections.get("affected files") or [text for text in _below(cited, facts) if ":" not in text]
    files = _listed(_paths(lines))
    cards = ", ".join(line.strip() for line in rule.sections.get("wildcards", []) if line.strip())
    files_of_rule = f"{files}, which {of_rule}{at} takes as its input" if files else f"the input of {of_rule}{at}"
    wildcards = f" It is asked for with {cards}." if cards else ""
    return (
        f"There is no {files_of_rule}, and no rule makes it: put it there, or correct its path, its name or the "
        "list of samples that it is "
        f"made of.{wildcards}"
    )


def _failed(of_rule: str, cited: Citation, rule: FailedRule, facts: Facts) -> str:
    of_process = "Process `" in cited.text or "command executed" in rule.sections
    if of_process and "(137)" in cited.text + " ".join(rule.sections.get("caused by", [])):
        return _failed_process(of_rule, cited, rule, "137")
    if any(_SUBMITS in text for text in rule.sections.get("message", [])):
        return _not_submitted(rule, facts)
    if rule.errors:
        number, words = rule.errors[0]
        return f"The command of {of_rule} failed with: {cut(words, SHOWN_OF_ERROR).rstrip('.')} (job.log:{number}). Mend that."
    block = [cited.text, *(line.text for line in facts.between(cited.line + 1, cited.line + LINES_OF_BLOCK))]
    log = next((match["file"] for text in block if (match := _LOG.match(text)) is not None), "")
    code = next((match["code"] or match["told"] for text in block if (match := _EXIT.search(text)) and not match["bare"]), "")
    code = code or next((line.strip() for line in rule.sections.get("command exit status", []) if line.strip().isdigit()), "")
    if of_process:
        return _failed_process(of_rule, cited, rule, code)
    status = f" with exit status {code}" if code not in ("", "1") else ""
    means = f" {EXIT_CODES[code]}." if code in EXIT_CODES else ""
    image = next((match for text in block if (match := _CONTAINER.search(text[: 2 * MOST_OF_LINE])) is not None), None)
    inside = (
        f", inside its container ({image['tool']} exec {image['image']}), where its programs and packages have to be"
        if image
        else ""
    )
    folder = next((line.strip() for line in rule.sections.get("work dir", []) if line.strip()), "")
    if log:
        return f"The command of {of_rule} failed{status}, and what it printed is in {log}: read that file first.{means}"
    if folder:
        return f"The command of {of_rule} failed{status}: read .command.err in {folder}, and run .command.run there.{means}"
    if jobs := _jobs(cited, block, facts):
        return (
            f"The command of {of_rule} failed{status}, and what it printed is in the output of its own job in the batch system "
            f"({', '.join(jobs)}): slurm-{jobs[0]}.out in the folder from which it ran, or where the cluster command or "
            f"profile puts it (--output, -o). Read that first; sacct -j {jobs[0]} shows how it ended. Mend what it says, and run "
            f"it again with --rerun-incomplete.{means}"
        )
    if output_line := _printed_before(cited, facts):
        number, words = output_line
        return (
            f"The command of {of_rule} failed{status}, right behind what its tools printed: "
            f"{cut(words, SHOWN_OF_ERROR).rstrip('.')} (job.log:{number}). Mend that first; a `log:` of the rule keeps "
            f"the words of each rule apart.{means}"
        )
    command = next((cut(line.strip(), SHOWN_OF_COMMAND) for line in rule.sections.get("shell", []) if line.strip()), "")
    run = f" (`{command}`)" if command else ""
    return (
        f"The command of {of_rule} failed{status}, and what it printed is not in this log: run it by "
        f"hand{run}{inside}, or give the "
        f"rule a `log:` that takes its output, and read the message there.{means or ' Nothing can be mended before that is known.'}"
    )


def _not_submitted(rule: FailedRule, facts: Facts) -> str:
    """Return what to do where the command that submits a rule's job failed, and whether the scheduler took the job all the same."""
    message = rule.sections["message"]
    failed = [line for line in facts.lines if _SUBMITS in line.text and not facts.before_leg(line.number)]
    rules = f"the {len(failed)} rules that failed" if len(failed) > 1 else f"rule {rule.name}" if rule.name else "the rule"
    code = next((match[1] for text in message if (match := re.search(r"exit code (\d{1,3})", text)) is not None), "")
    status = f" returned {code}" if code else " failed"
    numbers = (
        match[match.lastindex or 0]
        for line in facts.lines
        if not facts.before_leg(line.number)
        for match in _SUBMITTED.finditer(line.text[:200])
    )
    jobs = list(dict.fromkeys(numbers))[:MOST_JOBS]
    log = next((text.strip().partition(" (")[0] for text in rule.sections.get("log", []) if text.strip()), "")
    cited_line = f" The submission is told of in job.log:{failed[0].number}." if failed else ""
    if not jobs:
        words = next((text.strip() for text in message[1:] if _TELLS.search(text)), "")
        complaint = f": {cut(words, SHOWN_OF_ERROR).rstrip('.')}" if words else ", and what stands below that message is all"
        return (
            f"The command that submits {rules}{status}{complaint}. Mend the submit command or the profile (queue, resources, "
            f"account): the program itself has not begun.{cited_line}"
        )
    record = f"qacct -j {jobs[0]}" if any("has been submitted" in text for text in message) else f"sacct -j {jobs[0]}"
    output = f", and what it printed in {log}" if log else ""
    numbered = f"{'jobs' if len(jobs) > 1 else 'job'} {', '.join(jobs)}"
    return (
        f"The command that submits {rules}{status} although the scheduler took {numbered}: with -sync y or --wait that is how "
        f"the job itself ended, within seconds. Look first at how it ended ({record}), its own output of the scheduler{output}; "
        f"where several failed alike, at what they share (submit command, environment of the rule).{cited_line}"
    )


def _printed_before(cited: Citation, facts: Facts) -> tuple[int, str] | None:
    """Return the first line that tells of a failure among those that tools printed right before a rule's end; None without one."""
    lines = facts.between(max(1, cited.line - LINES_ABOVE), cited.line - 1)
    start = max((at for at, line in enumerate(lines) if _RULE_BEGINS.match(line.text[:MOST_OF_LINE])), default=-1)
    error_lines = (line for line in lines[start + 1 :] if _TELLS.search(line.text[:MOST_OF_LINE]))
    return next(((line.number, line.text.strip()) for line in error_lines if "Error in rule" not in line.text), None)


def _failed_process(of_rule: str, cited: Citation, rule: FailedRule, code: str) -> str:
    """Return what to do about a process of Nextflow: its own words for memory and time, and the folder that holds its output."""
    name = rule.name.partition(" (")[0].rpartition(":")[2] or "NAME"
    process = of_rule.replace("rule ", "process ", 1)
    folder = next((line.strip() for line in rule.sections.get("work dir", []) if line.strip()), "")
    files = f" in {folder}" if folder else " in its work folder (work/ and what stands in brackets where it was submitted)"
    settings = f"process {{ withName: '{name}' {{ memory = '32 GB'; time = '24h' }} }}"
    if _NO_STATUS in cited.text:
        return (
            f"The {process} was ended from outside, and left no status: ask the batch system why (sacct or qacct of that task: its "
            f"state, MaxRSS and time) and read .command.log{files}. Then give it more memory or time in a file that is handed over "
            f"by -c ({settings}), and run it again with -resume. Its command told of no error, so it is not the first to be mended."
        )
    if code == "137":
        return (
            f"The {process} was killed (137 is SIGKILL, mostly for want of host memory): give it more in a file that is handed "
            f"over by -c ({settings}), or let fewer of them run at a time (maxForks, executor.memory), and run it again with "
            f"-resume, which keeps what is done. .command.log{files} holds what it printed."
        )
    status = f" with exit status {code}" if code not in ("", "1") else ""
    means = f" {EXIT_CODES[code]}." if code in EXIT_CODES else ""
    if output := next((line.strip() for line in reversed(rule.sections.get("command error", [])) if line.strip()), ""):
        command = next((line.strip() for line in rule.sections.get("command executed", []) if _STARTS.match(line)), "")
        ran = f" (`{cut(command, SHOWN_OF_COMMAND)}`)" if command else ""
        return (
            f"The command of {process}{ran} failed{status}, and told of no error: the last that it printed is "
            f"`{cut(output, SHOWN_OF_COMMAND)}`.{means}{_PROCESSORS if code == '132' else ''} Run .command.run{files} by hand on "
            "such a node, and go on with -resume when it is mended."
        )
    return f"The command of {process} failed{status}: read .command.err{files}, and run .command.run there.{means}"


def _jobs(cited: Citation, block: Sequence[str], facts: Facts) -> list[str]:
    """Return the numbers of the batch jobs of a failed rule, those of its own block first; empty where it ran on this host."""
    jobs = [match["job"] for text in block[:LINES_ABOVE] if (match := _JOB.search(text[:MOST_OF_LINE])) is not None]
    if not jobs:
        return []
    lines = facts.between(cited.line, facts.lines_total)
    texts = (line.text[:MOST_OF_LINE] for line in lines if "Error" in line.text or "cluster_jobid" in line.text)
    return list(dict.fromkeys([*jobs[:1], *(match["job"] for text in texts if (match := _JOB.search(text)) is not None)]))[
        :MOST_JOBS
    ]


def failed_rule(cited: Citation, facts: Facts) -> FailedRule:
    """Return what the block around a cited line of a workflow tells of its rule."""
    around = facts.between(max(1, cited.line - LINES_ABOVE), cited.line + MOST_OF_BLOCK)
    ends = (line.number for line in around if line.number > cited.line and _BLOCK_ENDS.match(line.text))
    last = next(ends, cited.line + LINES_OF_BLOCK - 1) + 1
    around = [line for line in around if line.number <= last]
    after = [line for line in around if line.number >= cited.line]
    texts = [cited.text, *(line.text for line in after[1:6]), *(line.text for line in reversed(around) if line.number < cited.line)]
    name_match = next((match for text in texts if (match := _NAME.search(text[:MOST_OF_LINE])) is not None), None)
    at = next((match for text in texts if (match := _AT.search(text[:MOST_OF_LINE])) is not None), None)
    sections: dict[str, list[str]] = {}
    errors: list[tuple[int, str]] = []
    field = ""
    for line in around:
        text = line.text[:MOST_OF_LINE]
        match = re.match(r"^\s{0,6}(?P<field>[A-Za-z][A-Za-z ]{2,22}):\s*(?P<value>.*)$", text)
        if (
            match is not None
            and (line.number >= cited.line or match["field"][:7] in ("Command", "Work di"))
            and field != "command error"
        ):
            field = match["field"].lower()
            sections.setdefault(field, []).extend([match["value"]] if match["value"] else [])
        elif text[:10] in ("Work dir:", "Tip: you c") or _RULE_LINE.match(text):
            field = match["field"].lower() if match is not None else ""
        elif field:
            sections.setdefault(field, []).append(text)
            if field == "command error" and errors and errors[-1][1].rstrip().endswith((":", ",")):
                errors[-1] = (errors[-1][0], f"{errors[-1][1]} {text.strip()}")
            elif field == "command error" and _TELLS.search(text):
                errors.append((line.number, text.strip()))
    name = (name_match["name"] or name_match["job"]).rstrip(":") if name_match is not None else ""
    return FailedRule(name, f"{at['file']}:{at['line']}" if at is not None else "", sections, errors)


def command_error(cited: Citation, facts: Facts) -> int:
    """Return the line in which the command of a failed rule tells why; 0 where the log does not hold it."""
    heads = cited.rule == RULE or _HEADS.search(cited.text[:MOST_OF_LINE]) is not None
    errors = failed_rule(cited, facts).errors if cited.file == "job.log" and heads else []
    return errors[0][0] if errors else 0


def _below(cited: Citation, facts: Facts) -> list[str]:
    """Return the lines of files below a cited line, up to the next message."""
    files: list[str] = []
    for line in facts.between(cited.line + 1, cited.line + LINES_OF_BLOCK):
        if _REMOVES in line.text or _RULE_LINE.match(line.text) or not line.text.strip():
            break
        files.append(line.text)
    return [text for text in files if " " not in text.strip() or "(missing" in text] or files


def _removed(cited: Citation, facts: Facts) -> list[str]:
    """Return the files that the failed rule had made, which the workflow takes away again."""
    lines = facts.between(cited.line, cited.line + LINES_OF_BLOCK)
    start = next((at for at, line in enumerate(lines) if _REMOVES in line.text), None)
    return _paths([lines[start + 1].text]) if start is not None and start + 1 < len(lines) else []


def _paths(texts: Sequence[str]) -> list[str]:
    return [match["file"] for text in texts for match in _FILES.finditer(text[:MOST_OF_LINE])]


def _listed(files: Sequence[str]) -> str:
    unique = list(dict.fromkeys(files))
    return f"{', '.join(unique[:MOST_FILES])}{f' and {len(unique) - MOST_FILES} more' if len(unique) > MOST_FILES else ''}"
