"""By which arguments of its own a script goes on that hands them to its program: `sbatch run.sh resume=PATH`.

What its owner documents comes first: README, NOTES, Makefile and comments of scripts, where a line submits the very same script.
What stands for the checkpoint there, a placeholder or an example, becomes the chosen one; all else that the line gives stays as the
job was submitted. The file must be the owner's own, and nobody else may write it: what others wrote is quoted to people and never
tried.

Else a key of the configuration that speaks of going on and names nothing now is tried as an override, where the script, read once
more with that argument, gives it to the program that trains. Nothing is proven by reading: a trial start does that, with the
arguments of the submission in front and exactly these behind them. Neither a log nor a checkpoint suggests any.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.checkpoints.slots import OF_STATE
from assistant.recover.job_program import FileReader, JobProgram, configured_keys, programs_of
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.argument import PROBE, PROBE_PLACES, is_named_so, override_forms, saves
from assistant.recover.resume.documented import (
    BOOKS,
    MAKEFILES,
    SPEAKS_OF_IT,
    YES,
    folder_of_documents,
    is_owners_own,
    is_the_script,
    texts_of,
)
from assistant.recover.resume.means import NO, SWITCH, ResumeMeans, ResumeWay, ScriptArguments
from assistant.recover.resume.variable import OPEN

MOST_DOCUMENTED = 2
LONGEST_LINE = 1000
MOST_WORDS = 12
OPEN_PLACE = re.compile(
    r"<(?P<angle>[\w ./-]{1,60})>|\$\$?(?:\{(?P<brace>\w{1,40})\}|\((?P<make>\w{1,40})\)|(?P<plain>\w{1,40}))"
    r"|\{(?P<format>\w{1,40})\}"
)
"""What a reader fills in, as documentation and makefiles write it."""
PLACE, STEP_PLACE = "\ue000", "\ue001"
"""Characters that stand for such a place: of a path or a name, and of a number."""
NUMBER_NAME = re.compile(r"(?:global_?)?(?:step|iter|iteration|epoch|num|number|n)s?", re.IGNORECASE)
LETTERS = re.compile(r"(?<![A-Za-z])(?:X{2,}|N{1,8}|Y{2,}|#{2,}|\?{2,}|\*|x{3,})(?![A-Za-z])")
"""Letters that stand for a number: `checkpoint-XX`."""
CAPITALS = re.compile(r"[A-Z]*_?(?:PATH|CKPT|CHECKPOINT|FILE|DIR|FOLDER)(?:_[A-Z]+)?|path|ckpt|checkpoint", re.ASCII)
LOADED_NAME = re.compile(
    r"ckpt|chkpt|check_?point|snapshot|resum|restor|restart|contin|(?:^|[._-])(?:load|from)(?:$|[._-])|load_from", re.IGNORECASE
)
"""Names of arguments that choose what is loaded, where a line gives them a place to fill in."""
OTHER_NAME = re.compile(
    r"save|every|interval|freq|max|limit|total|out(?:put)?_|pretrain|teacher|optim|strict|format|wandb|run_id", re.IGNORECASE
)
"""Names of arguments that say something else of saving and loading."""
EXAMPLE = re.compile(
    r"(?!.*\.(?:py|sh|ya?ml|json|toml|cfg|ini|in|inp|txt|md|log)$)[\w-]{1,80}(?:[._-][\w-]{1,40}){1,4}", re.IGNORECASE
)
"""The name of a file as an example, `restart.A`: no program, settings or input."""
ASSIGNED = re.compile(r"(?P<key>-{0,2}[A-Za-z_+~][\w.@/-]{0,80})=(?P<value>.*)", re.DOTALL)
GOES_ON = frozenset("resume continue restart".split())
ENDS = re.compile(r"\s{2,}|\t|\s#|\s\(|\s[-\u2013\u2014]{1,2}\s")
"""What ends a command in a line of prose."""
CHANGED_BY_SHELL = re.compile(r"[|;&<>$`\\(){}!]")


def documented_arguments(job: Job, read: FileReader) -> tuple[ScriptArguments, ...]:
    """Return the arguments by which a job's owner documents that its script goes on, the likeliest first.

    Args:
        job: With its spec.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    folder = folder_of_documents(job)
    if job.spec is None or folder is None:
        return ()
    lines = [(f"line {number} of its script", before, line) for number, before, line in _comments(job.spec.script)]
    for name, text in texts_of(job, folder, read):
        if is_owners_own(job.account, folder, name):
            is_read_whole = BOOKS.fullmatch(name) is not None or name in MAKEFILES
            numbered = _lines(text) if is_read_whole else _comments(text)
            lines += [(f"{name}:{number}", before, line) for number, before, line in numbered]
    choices: list[list[ScriptArguments]] = [_of_line(job, folder, read, *line) for line in lines if "sbatch" in line[2]]
    first = [templates[0] for templates in choices if templates]
    alternatives = [template for templates in choices for template in templates[1:]]
    by_words = {template.words: template for template in reversed((*first, *alternatives))}
    return tuple(reversed(by_words.values()))[:MOST_DOCUMENTED]


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, the line before, and text of each line; one that ends with a backslash goes on in the next."""
    before, joined, begin = "", "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()[:LONGEST_LINE]
        begin = begin if joined else number
        if line.endswith("\\") and len(joined) < LONGEST_LINE:
            joined += f"{line[:-1].rstrip()} "
            continue
        yield begin, before, f"{joined}{line}"
        before, joined = f"{joined}{line}", ""


def _comments(script: str) -> Iterator[tuple[int, str, str]]:
    """Yield the same of the comments of a script."""
    for number, before, line in _lines(script):
        if line.startswith("#") and not line.startswith(("#!", "#SBATCH")):
            yield number, before if before.startswith("#") else "", line


def _of_line(job: Job, folder: Path, read: FileReader, place: str, before: str, line: str) -> list[ScriptArguments]:
    """Return the arguments that a line documents, what stands for the checkpoint read in up to two ways; none where it does not."""
    begins = (match.start() for match in re.finditer(r"\bsbatch\b", line))  # `first: sbatch run.sh   restart: sbatch run.sh FILE`
    ways = (_of_submission(job, folder, read, place, before, line, begin) for begin in begins)
    return next((templates for templates in ways if templates), [])


def _of_submission(
    job: Job, folder: Path, read: FileReader, place: str, before: str, line: str, begin: int
) -> list[ScriptArguments]:
    """Return the same of the submission that begins at a place of a line."""
    words = _words(line[begin:])
    leading = line[:begin].split()[-1:]
    if not words or words[0] != "sbatch" or (leading and ASSIGNED.fullmatch(leading[0].lstrip("`"))):
        return []
    at = next((at for at, word in enumerate(words) if at and is_the_script(job, _text_of(read, folder, word))), 0)
    if not at or job.spec is None:
        return []
    speaks = SPEAKS_OF_IT.search(f"{before} {line}") is not None
    choices = _choices(words[at + 1 :], job.spec.arguments, speaks=speaks)
    if not choices or any(NOT_SAFE.search(re.sub(r"\{\w+\}", "", text)) for choice in choices for text in choice):
        return []
    command = f"sbatch {words[at]}"
    ways = (tuple(choice[min(way, len(choice) - 1)] for choice in choices) for way in range(2))
    return [ScriptArguments(texts, place, command) for texts in dict.fromkeys(ways)]


def _text_of(read: FileReader, folder: Path, word: str) -> str:
    is_name = not word.startswith("-") and PLACE not in word and STEP_PLACE not in word
    return (read(str(folder / word)) or "") if is_name else ""


def _words(text: str) -> list[str]:
    """Return the words of a command in a line, each place to fill in as one character; nothing of what a shell would change."""
    marked = OPEN_PLACE.sub(lambda match: STEP_PLACE if NUMBER_NAME.fullmatch(match[match.lastgroup or 0]) else PLACE, text)
    code = ENDS.split(marked.partition("`")[0].strip())[0]
    if CHANGED_BY_SHELL.search(code):
        return []
    try:
        words = shlex.split(code.replace("[", " ").replace("]", " "))
    except ValueError:
        return []
    return [word if word.endswith("...") else word.rstrip(".,;:") for word in words[:MOST_WORDS]]


def _choices(words: Sequence[str], own: Sequence[str], *, speaks: bool) -> list[tuple[str, ...]]:
    """Return what each argument of a documented command that makes a run go on may be, in its order.

    Args:
        words: Behind the script.
        own: The arguments of the job: they stay, whatever the line shows for them.
        speaks: Whether the line says that it is about going on, so that a place without a name counts.
    """
    choices: list[tuple[str, ...]] = []
    pending = list(words)
    while pending:
        word = pending.pop(0)
        match = ASSIGNED.fullmatch(word)
        if match is not None and _chooses(match["key"], match["value"]):
            choices.append(tuple(f"{match['key']}={text}" for text in _templates(match["value"])))
        elif match is not None or word in own or word == "...":
            continue
        elif word.startswith("-"):
            value = pending[0] if pending and not pending[0].startswith("-") and ASSIGNED.fullmatch(pending[0]) is None else ""
            if value and _chooses(word, value) and (_is_place(value) or "/" in value or value.isdecimal()):
                choices += [(word,), _templates(pending.pop(0))]
            elif SWITCH.search(word) and not OTHER_NAME.search(word):
                choices.append((word,))
        elif speaks and (_is_place(word) or (_is_of_save(word) and ("/" in word or EXAMPLE.fullmatch(word)))):
            choices.append(_templates(word))
        elif word in GOES_ON and not choices:
            choices.append((word,))
        elif not re.search(r"[\d/.]", word):
            break  # prose
    return choices


def _chooses(key: str, value: str) -> bool:
    """Tell whether an argument chooses what is loaded."""
    if OTHER_NAME.search(key):
        return False
    return bool(
        SWITCH.search(key) or ((LOADED_NAME.search(key) or LOADED_NAME.search(value)) and (_is_place(value) or "/" in value))
    )


def _is_of_save(word: str) -> bool:
    """Tell whether a word of a line that speaks of going on names a save: `restart.A`, `save.odd`."""
    return bool(LOADED_NAME.search(word)) or any(OF_STATE.fullmatch(part) for part in re.split(r"[._/-]", word))


def _is_place(value: str) -> bool:
    """Tell whether a text stands for something that a reader fills in."""
    return bool(
        PLACE in value
        or STEP_PLACE in value
        or LETTERS.search(value)
        or "..." in value
        or "path/to" in value
        or CAPITALS.fullmatch(value)
        or (value.isupper() and NUMBER_NAME.fullmatch(value))
    )


def _templates(value: str) -> tuple[str, ...]:
    """Return what stands for the value that a line shows, the likelier first."""
    if value.lower() in YES:
        return (value,)
    if value.isdecimal() or value == STEP_PLACE or LETTERS.fullmatch(value) or NUMBER_NAME.fullmatch(value):
        return ("{step}",)
    if value == PLACE or CAPITALS.fullmatch(value):
        return ("{checkpoint}", "{name}")
    if "/" not in value:
        return ("{name}", "{checkpoint}")
    path = PurePosixPath(value)
    numbered = re.search(rf"\d|{STEP_PLACE}|{PLACE}", path.parent.name) or LETTERS.search(path.parent.name)
    is_inside = numbered and not _is_place(path.name) and not re.search(r"\d", path.stem)
    return (f"{{checkpoint}}/{path.name}", "{checkpoint}") if is_inside else ("{checkpoint}",)


MOST_LIKELY = 2
MOST_KEYS = 2
TAKES_WORDS = re.compile(
    r"\bargv\b|OmegaConf|\bfire\.Fire|\btyro\b|parse_known_args|from_(?:dotlist|cli)|cfg_options|draccus|jsonargparse"
)
"""Words of a program that takes settings from its command line."""
CONVENTIONS = {
    "axolotl": ("--resume-from-checkpoint={checkpoint}",),
    "llamafactory-cli": ("resume_from_checkpoint={checkpoint}",),
}
"""Programs that are installed and not read, with the argument by which they go on, by their documentation."""
OPTION_STYLE, PLAIN_STYLE = re.compile(r"--[\w.-]+(?:=\S*)?"), re.compile(r"[A-Za-z_][\w.]*=\S*")
CONFIG_OPTIONS = "--cfg-options"
"""The option behind which programs of mmengine take settings."""


def with_script_arguments(job: Job, way: ResumeWay, programs: Sequence[JobProgram]) -> ResumeWay:
    """Return how a script goes on, with the arguments of its own by which a trial start may prove that it does.

    Args:
        job: With its spec.
        way: How it resumes by reading; one that a known convention proves is returned as it is.
        programs: What its script starts, from `programs_of`.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    is_open = way.means in OPEN
    by_itself = way.means is ResumeMeans.NEWEST and (way.home_made or bool(way.listed))
    may_be_tried = is_open or by_itself or (way.means is ResumeMeans.ARGUMENT and way.home_made)
    if spec is None or spec.doubt or spec.environment_lost or way.repeats or not may_be_tried:
        return way
    read = FileReader(job.account)
    templates = list(documented_arguments(job, read))
    trainer = _trainer(programs)
    if is_open and trainer is not None and len(templates) < MOST_LIKELY:
        passing = _Passing(job, trainer, programs, read)
        documented = {item.words for item in templates}
        likely = (item for item in _likely(spec, way, trainer, read) if item.words not in documented and passing.takes(item.words))
        templates += islice(likely, MOST_LIKELY - len(templates))
    return replace(way, script_arguments=tuple(templates)) if templates else way


def submission_arguments(template: ScriptArguments, spec: JobSpec, work_dir: Path, checkpoint: Checkpoint) -> tuple[str, ...] | str:
    """Return the arguments of a script that go on from a checkpoint; else why they cannot be given, for people.

    Args:
        template: Of what is added.
        spec: The submission whose arguments stay, but for those that say the same of an earlier checkpoint.
        work_dir: Of the job: its relative paths begin there.
        checkpoint: The chosen one.
    """
    path = checkpoint.path
    places = {"checkpoint": str(path), "name": path.name, "step": str(checkpoint.step)}
    words = tuple(_filled(word, places) for word in template.words)
    bad = next((word for word in words if NOT_SAFE.search(word)), "")
    if bad:
        command = template_text(template, checkpoint)
        return f"{command} ({template.place}) is not tried: {bad!r} has characters that a shell may change"
    keys = {_key(word) for word in template.words} - {""}
    own: list[str] = []
    skips_value = False
    for place, word in enumerate(spec.arguments):
        following = spec.arguments[place + 1] if place + 1 < len(spec.arguments) else ""
        earlier = "/" in word and (work_dir / word).parent == path.parent and not word.startswith("-")
        if skips_value or _key(word) in keys or word in words or (earlier and ASSIGNED.fullmatch(word) is None):
            skips_value = not skips_value and word.startswith("-") and "=" not in word and bool(following) and _key(following) == ""
            continue
        own.append(word)
    return (*own, *words)


def template_text(template: ScriptArguments, checkpoint: Checkpoint) -> str:
    """Return a submission with these arguments for a checkpoint, as a person types it; no command where it is not known."""
    path = checkpoint.path
    places = {"checkpoint": str(path), "name": path.name, "step": str(checkpoint.step)}
    words = (shlex.quote(_filled(word, places)) for word in template.words)
    return " ".join(filter(None, (template.command, *words)))


def _filled(word: str, places: dict[str, str]) -> str:
    """Return a word with its places filled in one pass, so that a value is never read as a template again."""
    return re.sub(r"\{(\w+)\}", lambda match: places.get(match[1], match[0]), word)


def _key(word: str) -> str:
    """Return what an argument sets, as it is compared; empty for one that sets nothing by a name."""
    match = ASSIGNED.fullmatch(word)
    name = match["key"] if match is not None else word if word.startswith("--") else ""
    return name.lstrip("-+").replace("-", "_").lower()


def _trainer(programs: Sequence[JobProgram]) -> JobProgram | None:
    """Return the program of a script that trains; None where several may, or where the script is not read to its end."""
    savers = [program for program in programs if saves(program)] or list(programs)
    return savers[0] if len(savers) == 1 and not savers[0].unread_behind else None


class _Passing:
    """Whether a script hands arguments of its own to the program that trains, by reading it once more with them."""

    def __init__(self, job: Job, trainer: JobProgram, programs: Sequence[JobProgram], read: FileReader) -> None:
        self.job, self.trainer, self.read = job, trainer, read
        self.removed = {path for program in programs for path in program.removed}
        self.is_harmful = self._started((PROBE,)) is None
        """Whether it removes what it is given."""

    def takes(self, words: Sequence[str]) -> bool:
        """Tell whether that program is started with the words."""
        filled = tuple(_filled(word, PROBE_PLACES) for word in words)
        started = self._started(filled) if not self.is_harmful else None
        return any(_holds(program.launch.words, filled) for program in started or ())

    def _started(self, words: Sequence[str]) -> list[JobProgram] | None:
        """Return how that program is started where the script is given more words; None where more is removed before it then."""
        spec = self.job.spec
        if spec is None:
            return None
        programs = programs_of(replace(self.job, spec=replace(spec, arguments=(*spec.arguments, *words))), self.read)
        if {path for program in programs for path in program.removed} - self.removed:
            return None
        return [program for program in programs if program.name == self.trainer.name]


def _holds(words: Sequence[str], inner: Sequence[str]) -> bool:
    return any(tuple(words[place : place + len(inner)]) == tuple(inner) for place in range(len(words)))


def _likely(spec: JobSpec, way: ResumeWay, program: JobProgram, read: FileReader) -> Iterator[ScriptArguments]:
    """Yield arguments by which a script may go on, the likeliest first, each once."""
    by_words: dict[tuple[str, ...], ScriptArguments] = {}
    for item in chain(_replaced(spec), _of_options(way, program), _by_convention(program), _of_keys(spec, program, read)):
        by_words.setdefault(item.words, item)
    yield from by_words.values()


def _replaced(spec: JobSpec) -> Iterator[ScriptArguments]:
    """Yield what the submission itself gave for an earlier checkpoint."""
    for place, word in enumerate(spec.arguments):
        match = ASSIGNED.fullmatch(word)
        following = spec.arguments[place + 1] if place + 1 < len(spec.arguments) else ""
        key = _key(word).rpartition(".")[2]
        if not is_named_so(key):
            continue
        if match is not None and "/" in match["value"]:
            yield ScriptArguments((f"{match['key']}={{checkpoint}}",), "the arguments of its submission")
        elif match is None and "/" in following:
            yield ScriptArguments((word, "{checkpoint}"), "the arguments of its submission")


def _of_options(way: ResumeWay, program: JobProgram) -> Iterator[ScriptArguments]:
    """Yield what reading its program proposes to put behind the command line, handed through the script.

    Several together stay behind the command line. So does what needs quotes: Slurm keeps none of those of a submission.
    """
    for text in way.trial_arguments:
        if " " not in text and (plain := _without_quotes(text, program)):
            yield ScriptArguments((plain,), "the source of its program")


def _without_quotes(text: str, program: JobProgram) -> str:
    """Return an argument without quotes around its value; empty where its program evaluates it as a literal."""
    evaluates = any("literal_eval" in source.text for source in program.sources)
    return "" if evaluates and "'" in text else text.replace("'", "")


def _by_convention(program: JobProgram) -> Iterator[ScriptArguments]:
    names = {PurePosixPath(word).name for word in program.launch.words}
    for name, words in CONVENTIONS.items():
        if name in names:
            yield ScriptArguments(words, name)


def _of_keys(spec: JobSpec, program: JobProgram, read: FileReader) -> Iterator[ScriptArguments]:
    """Yield overrides of the keys of its configurations that speak of going on and name nothing."""
    values = dict(reversed(configured_keys(program, read)))
    keys = [key for key, value in values.items() if value.lower() in NO and re.fullmatch(r"[\w.]{1,100}", key)]
    texts = "\n".join(source.text for source in program.sources)
    if CONFIG_OPTIONS in (*program.launch.words, *spec.arguments) or CONFIG_OPTIONS in texts:
        names = {key.rpartition(".")[2]: key for key in keys}
        if "load_from" in names and "resume" in names:
            form = (CONFIG_OPTIONS, f"{names['resume']}=True", f"{names['load_from']}={{checkpoint}}")
            yield ScriptArguments(form, f"{names['load_from']} in its configuration")
    is_read = program.source is not None and program.source.parsed
    if is_read and not TAKES_WORDS.search(texts):
        return
    for key in [key for key in keys if is_named_so(key.rpartition(".")[2])][:MOST_KEYS]:
        forms = override_forms(program, key) or tuple((form.format(key),) for form in _styles(spec, program))
        for words in forms:
            plain = tuple(_without_quotes(word, program) for word in words)
            if all(plain):
                yield ScriptArguments(plain, f"{key} in its configuration")


def _styles(spec: JobSpec, program: JobProgram) -> Sequence[str]:
    """Return how overrides are written, the likelier first: as its usage, its submission or its script writes others."""
    plain, option = "{}={{checkpoint}}", "--{}={{checkpoint}}"
    comments = [line for line in spec.script.splitlines() if line.startswith("#") and not line.startswith(("#!", "#SBATCH"))]
    usage = (word for line in comments if "sbatch" in line for word in line.partition("sbatch")[2].replace("[", " ").split()[1:])
    words: Iterable[str] = (*spec.arguments, *usage, *program.launch.arguments)
    for word in words:
        if PLAIN_STYLE.fullmatch(word):
            return (plain, option)
        if OPTION_STYLE.fullmatch(word) and SWITCH.search(word) is None:
            return (option, plain)
    return (plain, option)
