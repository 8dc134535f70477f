"""Read what is wrong with a name, where the message itself shows it: a command without its beginning, a placeholder that stayed.

A template would say that what is not there has to be installed or fetched. A name of which a part was lost, two that were run
together, or a pattern that nobody replaced is nothing that could be fetched: it has to be written otherwise.
"""

from __future__ import annotations

import re

from assistant.diagnose.advice.near_names import on_other_host
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import option_with
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation

MOST_OF_MESSAGE, MESSAGE_LINES, SHOWN_OF_COMMAND = 2000, 4, 120
LEAST_LOST, MOST_LOST, LEAST_LEFT = 1, 2, 2
"""Characters that a command may have lost at its beginning, and those that have to be left of it."""
LEAST_GLUED, ADVISED_WITHIN = 3, 40
_COMMAND = re.compile(
    r"(?:(?P<script>[\w.~/-]{1,200}): )?(?:line (?P<line>\d{1,6}): )?(?<![\w./-])"
    r"(?P<command>[A-Za-z_][\w.+/-]{1,119}): (?:command )?not found\b"
)
_COMMON = frozenset(
    "echo python python3 module source export conda mamba srun sbatch mpirun mpiexec torchrun accelerate deepspeed bash cat "
    "cp mv rm "
    "mkdir cd ls sed awk grep head tail sleep date wget curl tar unzip gzip gunzip git pip make cmake gcc singularity "
    "apptainer docker "
    "nextflow snakemake samtools bedtools bcftools java perl ruby Rscript julia matlab node npm unset printf exit done else "
    "elif then "
    "while function return local declare eval exec trap ulimit chmod chown find sort uniq touch rsync ssh scp time nohup tee xargs "
    "sudo apt-get yum set true false test".split()
)
"""Commands and words of a shell that a script is full of."""
_GLUED = (
    "python3",
    "python",
    "module",
    "source",
    "export",
    "conda",
    "srun",
    "sbatch",
    "mpirun",
    "torchrun",
    "bash",
    "Rscript",
    "echo",
)
"""Commands behind which a blank is forgotten; none of them is the beginning of another program's usual name."""
_MISSING = re.compile(
    r"[Nn]o such (?:file|host|container)|[Nn]ot found|does not exist|doesn't exist|cannot (?:open|stat|access|find)"
    r"|can't open|[Ff]ail(?:ed)? to open"
    r"|[Cc]ould(?: not|n't) (?:open|find|resolve|read|connect)|not a local folder|valid model identifier"
    r"|[Nn]ame or service not known"
    r"|not a (?:valid )?(?:directory|file|path)|[Ii]nvalid|[Ii]ncorrect|[Uu]nauthorized|denied|[Uu]nable to (?:open|find|read"
    r"|locate)|Errno 2\b"
    r"|[Nn]ot a directory|[Mm]issing|[Uu]nknown"
)
_PLACEHOLDERS = (
    re.compile(
        r"<[A-Za-z][A-Za-z0-9]{0,30}(?:[_ -][A-Za-z0-9]{1,30}){1,5}>|(?<=/)<[A-Za-z][\w-]{0,40}>|<[A-Za-z][\w-]{0,40}>(?=/)"
    ),
    re.compile(r"\*{2,3}[A-Za-z][\w-]{1,40}\*{2,3}"),
    re.compile(r"\{\{ ?[A-Za-z_][\w.]{0,40} ?\}\}"),
    re.compile(r"(?<![A-Za-z])(?:[Yy]our|YOUR)[-_](?:[A-Za-z]+[-_]?){1,4}(?![A-Za-z])|(?<=/)your(?=/)"),
    re.compile(r"(?<![\w])/?path[/_-]to[/_-][\w./-]{0,80}", re.IGNORECASE),
    re.compile(
        r"(?<![A-Za-z])(?:CHANGE_?ME|REPLACE_?(?:ME|THIS|WITH_\w{1,30})|INSERT_\w{1,40}|FILL_?ME(?:_IN)?|PLACEHOLDER)(?![A-Za-z])"
    ),
)
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w{0,40}\}|\$[A-Z_][A-Z0-9_]{1,40}\b")
_BRACED = re.compile(r"(?<=[/'\"_.-])\{[A-Za-z_][\w.]{0,40}\}")
_HOME = re.compile(r"['\"](?P<path>~/[^'\"\s]{1,200})['\"]")
_GLUED_OUTPUT = re.compile(
    r"Cannot find primary config ['\"]?(?P<name>[\w./-]{1,80}?(?P<output>(?:>{1,2}[^'\"\s]{1,80})"
    r"|(?:[\d@][\w@.-]{0,80})?\.(?:out|log|err|txt)))['\"]?(?=[.,;'\"\s]|$)"
)
_SENTENCE = re.compile(r"(?<=[\w)\]'\"`])[.!?;](?: |$)|\n")
"""What a message says besides, such as how a command is to be written, holds placeholders that are meant."""
_ADVISED = re.compile(
    r"\b(?:e\.g|like|such as|for example|use|using|run|pass(?:ing)?|set|add|provide|call|try|by)\b", re.IGNORECASE
)
_STATUS = re.compile(
    r"Command ['\"]?(?P<command>.{1,2000}?)['\"]? (?:returned non-zero exit status (?P<code>\d{1,3})"
    r"|died with <Signals\.(?P<signal>SIG\w{2,8}))"
)
_SIGNALS = {"137": "SIGKILL", "139": "SIGSEGV", "134": "SIGABRT", "132": "SIGILL", "135": "SIGBUS", "143": "SIGTERM"}
_SHELL = re.compile(r"[|;&<>`$(]|\bset -")
_WORD = re.compile(r"[\w./+~-]{1,200}")
_ENDS = {
    "127": "{program} is not found: status 127 is what the shell gives for a program that is not on its PATH. Install it, "
    "load its module "
    "or activate its environment where `{command}` is started, or write its whole path there.",
    "126": "{program} is there and may not be run (status 126): make it executable (chmod +x), and see that its first line "
    "names a program "
    "that exists and that it was built for this kind of machine. It is started as `{command}`.",
    "124": "`timeout` ended `{command}` (status 124): allow it more time, or find out what it waits for.",
    "SIGSEGV": "`{command}` crashed by itself (a segmentation fault), and printed nothing of it here: run that command by "
    "hand on the same "
    "node, with a core file (ulimit -c unlimited) or under gdb.",
    "SIGILL": "`{command}` was built for another kind of processor than that of this node (SIGILL): build or install it on "
    "this kind of "
    "node, or ask for nodes of the kind that it was built for.",
}


def misnamed(cited: Citation, facts: Facts) -> str:
    """Return how a name that is not there has to be written, where the message shows what is wrong with it; else an empty text."""
    message = " ".join(message_of(cited, facts)[:MESSAGE_LINES])[:MOST_OF_MESSAGE]
    if command := _COMMAND.search(message):
        return _broken_command(command["command"], command["script"] or "", command["line"] or "")
    if status := _STATUS.search(message):
        return _by_status(status)
    if glued := _GLUED_OUTPUT.search(message):
        return (
            f"`{glued['name']}` is no name of a configuration: the end of it, `{glued['output']}`, is the file that the "
            f"output was to go "
            "to. A blank and the > are missing between the two in the command: write NAME > OUTPUT."
        )
    sentence = next((part for part in _SENTENCE.split(message) if _MISSING.search(part)), "")
    return (_unfilled(sentence, cited, facts) or on_other_host(cited, facts)) if sentence else ""


def _broken_command(command: str, script: str, line: str) -> str:
    """Return of which command one is the end, or which two words it is run together of; empty of any other name."""
    place = f"line {line} of {script or 'the script'}" if line else "the script"
    candidates = [name for name in _COMMON if LEAST_LOST <= len(name) - len(command) <= MOST_LOST and name.endswith(command)]
    if command not in _COMMON and len(command) >= LEAST_LEFT and candidates:
        names = " or ".join(f"`{name}`" for name in sorted(candidates, key=lambda name: (len(name), name))[:2])
        return (
            f"`{command}` is no program to be installed but what is left of {names}: correct {place}, where the beginning of "
            f"the word is "
            "missing. Where the file has the whole word, the script was changed while the shell was reading it: start it "
            "again, and "
            "change only a copy of a script that runs."
        )
    for name in _GLUED:
        remainder = command.removeprefix(name)
        if remainder != command and len(remainder) >= LEAST_GLUED and not remainder[0].isdigit() and remainder[0] not in "._-+":
            return f"A blank is missing in {place}: `{command}` is to be `{name} {remainder}`, and no program has that name."
    return ""


def _by_status(status: re.Match[str]) -> str:
    """Return what the status of a command that a program had started tells; empty of one that only says that it failed."""
    command = " ".join(_listed(status["command"]).split())
    words = [word for word in _WORD.findall(command) if "=" not in word]
    text = _ENDS.get(status["signal"] or _SIGNALS.get(status["code"] or "", status["code"] or ""))
    if text is None or not words:
        return ""
    program = "A program in it" if _SHELL.search(command) else words[0]
    return text.format(program=program, command=cut(command, SHOWN_OF_COMMAND))


def _listed(command: str) -> str:
    """Return a command as it is typed, where it is given as a list of Python."""
    return re.sub(r"['\"],? ?['\"]?", " ", command.strip("[]'\" ")) if command.startswith("[") else command


def _unfilled(message: str, cited: Citation, facts: Facts) -> str:
    """Return which placeholder or variable a missing name still holds; empty where it holds none."""
    for pattern in _PLACEHOLDERS:
        if (match := pattern.search(message)) is not None and not _ADVISED.search(message[: match.start()][-ADVISED_WITHIN:]):
            name = _around(message, match)
            option_given = option_with(facts, name, cited.line) if name else ""
            option_words = f" (it was given by {option_given})" if option_given else ""
            return (
                f"`{name}` still holds the placeholder `{match[0]}` of an example or a template{option_words}: write there what it "
                f"stands for, in "
                "the script or the configuration that names it. Nothing has to be made or fetched under that name."
            )
    if (match := _VARIABLE.search(message)) is not None:
        name = _around(message, match)
        return (
            f"`{name}` reached the program with `{match[0]}` as it is written: nothing replaced the variable. A shell does it "
            f"outside of "
            "single quotes only, and a configuration file or Python does not by itself (os.path.expandvars): write the value, "
            "or set the "
            "variable and have it expanded."
        )
    if (match := _BRACED.search(message)) is not None:
        name = _around(message, match)
        return (
            f"`{name}` still holds `{match[0]}`: nothing filled it in. In Python the f before the quote (or .format) is "
            f"missing; in a "
            "template or a configuration that name is not defined."
        )
    if (match := _HOME.search(message)) is not None:
        return (
            f"`{match['path']}` begins with ~, which only a shell replaces by the home folder: write the whole path, or take "
            "os.path.expanduser() where it is read."
        )
    return ""


def _around(message: str, match: re.Match[str]) -> str:
    """Return the whole name in which a placeholder stands: up to blanks and quotes on both sides."""
    first, last = match.span()
    while first > 0 and message[first - 1] not in " '\"`(=,;":
        first -= 1
    while last < len(message) and message[last] not in " '\"`),;":
        last += 1
    return message[first:last].rstrip(".:")
