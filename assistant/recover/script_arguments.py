"""By which arguments of its own a script goes on that hands them to its program: `sbatch run.sh resume_from_checkpoint=PATH`.

What its owner documents comes first. Else a key of the configuration that speaks of going on and names nothing now is tried as an
override, where the script, read once more with that argument, gives it to the program that trains. Nothing is proven by reading: a
trial start does that, with the arguments of the submission in front and exactly these behind them. Neither a log nor a checkpoint
suggests any.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.documented_arguments import ASSIGNED, documented_arguments
from assistant.recover.job_program import FileReader, JobProgram, configured_keys, programs_of
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume_argument import PROBE, PROBE_PLACES, is_named_so, override_forms, saves
from assistant.recover.resume_means import NO, SWITCH, ResumeMeans, ResumeWay, ScriptArguments
from assistant.recover.resume_variable import OPEN

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
    may_be_tried = is_open or (way.means is ResumeMeans.ARGUMENT and way.home_made)
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
