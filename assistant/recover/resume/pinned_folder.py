"""By which variable or argument of its own a script stays in the folder of its run, where each start names that anew.

`run_name=llama-$(date +%s)` names another run whenever the script is started. The script is read once more as another job would
read it, with a mark in the place of each text that a start makes anew: by the time, by chance, by the process, the host or the
job's id. A mark that reaches a command shows what differs, and with the folder where the checkpoints lie it shows what the text
was.

`RUN=${RUN:-run_$SLURM_JOB_ID}` goes on with the same run where RUN is set. The script is read as another start would read it, with
the variable set: it counts where every command that names the folder is then the one of the attempt. What a program makes of its
environment itself is proven by a trial start alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise, product
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.processes import LOADS_CODE, NAME, OPTIONS_IN_DISGUISE
from assistant.records import Job
from assistant.recover.directives import read_directives
from assistant.recover.job_program import FileReader, JobProgram, programs_of
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.script_variable import NEVER_SET, usage_line
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.shell.words import matching_bracket
from assistant.recover.source.settings import OF_LAUNCHERS, variables_in_source
from assistant.redact import head_of
from assistant.schedulers.slurm_spec import OF_SYSTEM, exports_plainly

JOB_ID = re.compile(r"SLURM_(?:ARRAY_)?JOB_?ID")
OTHER_ID = "999999999"
"""Of a job that does not exist."""
MARK = "nightshift0start{}z"
MARKED = re.compile(r"nightshift0start(\d{1,4})z")
CHANGING_COMMAND = re.compile(
    r"(?<![\w./-])(?:\S*/)?(?:g?date|uuidgen|mktemp|tempfile|hostname|shuf|openssl\s+rand|pwgen)(?![\w./-])"
    r"|/proc/sys/kernel/random/|/dev/u?random|\$\{?(?:S?RANDOM|EPOCHSECONDS|EPOCHREALTIME|BASHPID)\b"
    r"|python[\d.]*\s.*\b(?:time|datetime|random|uuid|secrets)\b",
    re.DOTALL,
)
"""Commands of which each call prints something else, or each host."""
CHANGING_VARIABLE = re.compile(
    r"S?RANDOM|SECONDS|EPOCHSECONDS|EPOCHREALTIME|BASHPID|PPID|HOSTNAME|HOST|SLURMD_NODENAME|SLURM_JOB_START_TIME"
    r"|SLURM_(?:JOB_)?NODELIST"
)
DATE_FORMAT = re.compile(r"(?<![\w./-])g?date\s[^|;]*?\+(?:'([^']*)'|\"([^\"]*)\"|([^\s|;)'\"]*))\s*[^|;]*$")
DATE_FIELDS = {
    "Y": r"\d{4}", "F": r"\d{4}-\d\d-\d\d", "T": r"\d\d:\d\d:\d\d", "R": r"\d\d:\d\d", "j": r"\d{3}", "s": r"\d{9,11}",
    "N": r"\d{1,9}", "D": r"\d\d/\d\d/\d\d", "%": "%", **dict.fromkeys("ymdHMSIVUWCg", r"\d\d"),
    **dict.fromkeys("ekluw", r"[ \d]?\d"),
}  # fmt: skip
ANY_TEXT = r"[\w.:+-]{3,}"
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{32}(?![0-9a-z])")
TIME_IN_NAME = re.compile(r"(20\d\d)[-_.]?(\d\d)[-_.]?(\d\d)[-_.T@ /]{0,2}(\d\d)[-_.:hH]?(\d\d)(?:[-_.:mM]?(\d\d))?(?!\d)")
EPOCH_IN_NAME = re.compile(r"(?<!\d)(\d{10})(?!\d)")
LATEST_NAMING_S = 900
"""How long after a job began its program may take to name its run: imports and the set-up of a large job come first."""
OTHER_MEANING = re.compile(r"rdzv|rendezvous|master|port$|seed|addr|host|rank", re.IGNORECASE)
"""Options that name peers or chance, never a folder."""
TESTED = re.compile(r"-[zn]\s+[\"']?\$\{?([A-Za-z_]\w{0,80})")
SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".env", "")
MAKES_UUID = re.compile(r"\buuid[14]?\b")


class ChangingText(NamedTuple):
    """A text of a script that each start makes anew."""

    pattern: str
    """What it may be, as a regular expression."""
    line: str
    """That it stands in, for people."""
    number: int
    """Of that line, 1-based."""


@dataclass
class MarkedReader:
    """Reads scripts with a mark in the place of each text that a start makes anew."""

    read: Callable[[str], str | None]
    nodes: Sequence[str] = ()
    texts: list[ChangingText] = field(default_factory=list)

    def __call__(self, path: str) -> str | None:
        """Return a file's text, that of a script with its marks."""
        text = self.read(path)
        is_script = text is not None and PurePosixPath(path).suffix in SHELL_SUFFIXES
        return self.marked(text) if is_script and text is not None else text

    def marked(self, text: str) -> str:
        """Return the text of a script with its marks."""
        parts, at = [], 0
        while at < len(text):
            end, pattern = self._changing(text, at)
            if pattern and len(self.texts) < 1000:
                number = text.count("\n", 0, at) + 1
                parts.append(MARK.format(len(self.texts)))
                self.texts.append(ChangingText(pattern, text.splitlines()[number - 1].strip(), number))
                at = end
            else:
                parts.append(text[at])
                at += 1
        return "".join(parts)

    def _changing(self, text: str, at: int) -> tuple[int, str]:
        """Return where a text that begins here and that each start makes anew ends, and its pattern; an empty one for none."""
        if text.startswith("%(", at) and (stamp := re.compile(r"%\(([^()\n]*)\)T").match(text, at)):
            return stamp.end(), date_pattern(stamp[1])
        if text[at] == "`" and (end := text.find("`", at + 1)) > 0:
            inner = text[at + 1 : end]
            return end + 1, self._pattern(inner) if CHANGING_COMMAND.search(inner) else ""
        if text[at] != "$" or at + 1 >= len(text):
            return at, ""
        if text.startswith("$(", at) and not text.startswith("$((", at):
            end = matching_bracket(text, at + 1)
            inner = text[at + 2 : end]
            return end + 1, self._pattern(inner) if CHANGING_COMMAND.search(inner) else ""
        if text.startswith("$$", at):
            return at + 2, r"\d{1,7}"
        name = re.compile(r"\$(\{?)(\w+)").match(text, at)
        if name is None or CHANGING_VARIABLE.fullmatch(name[2]) is None:
            return at, ""
        end = matching_bracket(text, at + 1) + 1 if name[1] else name.end()
        return end, self._of_host() if "HOST" in name[2] or "NODE" in name[2] else r"\d{1,11}"

    def _pattern(self, command: str) -> str:
        if re.search(r"\bhostname\b", command):
            return self._of_host()
        if "|" not in command and (stamp := DATE_FORMAT.search(command)):
            return date_pattern(stamp[1] or stamp[2] or stamp[3] or "")
        return ANY_TEXT

    def _of_host(self) -> str:
        return "|".join(rf"{re.escape(node)}[\w.-]*" for node in self.nodes[:64]) or ANY_TEXT


def date_pattern(form: str) -> str:
    """Return what a time in a format of `date` looks like, as a regular expression."""
    words = re.split(r"%[-_0^#]?([a-zA-Z%])", form)
    return "".join(DATE_FIELDS.get(word, r"[\w:]+") if place % 2 else re.escape(word) for place, word in enumerate(words))


def as_another_job(job: Job) -> Job:
    """Return a job as it would be read under another id."""
    return replace(job, id=re.sub(r"^\d+", OTHER_ID, job.id), raw_id=OTHER_ID if job.raw_id else "")


class OldText(NamedTuple):
    """A word of a command that differs at each start, and what it was when the checkpoints were saved."""

    word: str
    """With marks."""
    old_word: str
    """As it was."""
    parts: tuple[str, ...]
    """Of it, that each start makes anew."""

    @property
    def name(self) -> str:
        """The part of the path that it names."""
        new, old = (text.rpartition("=")[2].split("/") for text in (self.word, self.old_word))
        differing = [text for before, text in zip(new, old, strict=False) if before != text]
        return differing[-1] if differing and len(new) == len(old) else "/".join(old)


class AnotherStart:
    """A job's script as another start would read it."""

    def __init__(self, job: Job, *, same_id: bool = False) -> None:
        """Read the script once.

        Args:
            job: With its spec.
            same_id: Whether it is queued again under its own id.

        Raises:
            Unavailable: The storage did not answer.
        """
        self.job = job
        self._same_id = same_id
        self._reader = MarkedReader(FileReader(job.account), job.nodes)
        script = job.spec.script if job.spec is not None else ""
        self._script = self._reader.marked(script)
        # a test of a variable that is not set counts both ways, unless it is known to be empty
        self._unset = {name: "" for name in TESTED.findall(script) if job.spec is not None and name not in job.spec.environment}
        self.words = self.words_with({})

    def words_with(self, environment: Mapping[str, str], arguments: Sequence[str] | None = None) -> list[tuple[str, ...]]:
        """Return the words of its commands, with some variables set or with other arguments of the script."""
        job = self.job if self._same_id else as_another_job(self.job)
        if job.spec is None:
            return []
        spec = replace(job.spec, script=self._script, environment={**self._unset, **job.spec.environment, **environment})
        spec = replace(spec, arguments=tuple(arguments)) if arguments is not None else spec
        programs = programs_of(replace(job, spec=spec), self._reader, exists=_unanswered)
        return [program.launch.words for program in programs]

    def old_texts(self, folder: Path) -> Iterator[OldText]:
        """Yield the words that name a folder, or one above it, and differ at each start."""
        for word in (word for words in self.words for word in words):
            if self.differs(word) and (old_text := self._in_path(word, folder)) is not None:
                yield old_text

    def differs(self, word: str) -> bool:
        """Tell whether a word differs at each start."""
        return MARKED.search(word) is not None or self.is_by_id(word)

    def is_by_id(self, word: str) -> bool:
        """Tell whether a word holds the id of another job."""
        return not self._same_id and OTHER_ID in word

    def line_of(self, word: str) -> str:
        """Return the line of the script that makes a word anew, for people; empty where it is the job's id alone."""
        mark = MARKED.search(word)
        text = self._reader.texts[int(mark[1])] if mark else None
        return f"line {text.number} of its script: {head_of(text.line, 160)}" if text is not None else ""

    def _in_path(self, word: str, folder: Path) -> OldText | None:
        option, equals, value = word.rpartition("=")
        if OTHER_MEANING.search(option) or not value:
            return None
        pattern = self._pattern_of(value)
        if "/" in value:
            spec = self.job.spec
            work_dir = self.job.work_dir or (spec.work_dir if spec is not None else Path("/"))
            base = "" if value.startswith("/") else f"(?:{re.escape(normal(str(work_dir)))}/)?(?:.*/)?"
            plain = pattern.removeprefix(r"\./").rstrip("/")
            whole = re.compile(f"{base}(?P<old>{plain})")
            match = next(filter(None, (whole.fullmatch(str(path)) for path in (folder, *folder.parents))), None)
        else:
            inside = re.compile(rf"(?<![A-Za-z0-9])(?P<old>{pattern})(?![A-Za-z0-9])")
            match = next(filter(None, (inside.search(part) for part in reversed(folder.parts))), None)
        if match is None:
            return None
        parts = tuple(text for name, text in match.groupdict().items() if name != "old" and text)
        return OldText(word, f"{option}{equals}{match['old']}", parts)

    def _pattern_of(self, text: str) -> str:
        own_id = self.job.id.partition("_")[0]
        pieces, at = [], 0
        for number, mark in enumerate(re.finditer(rf"{MARKED.pattern}|{OTHER_ID}", text)):
            pieces.append(re.escape(text[at : mark.start()]))
            inner = self._reader.texts[int(mark[1])].pattern if mark[1] else re.escape(own_id)
            pieces.append(f"(?P<part{number}>{inner})")
            at = mark.end()
        return "".join([*pieces, re.escape(text[at:])])


def _unanswered(letter: str, path: str) -> bool | None:
    """Answer no test of a file."""
    return None


def named_at_start(job: Job, programs: Sequence[JobProgram], folder: Path) -> str:
    """Return the part of a path that a program made at the start of a job: the time of that start, or a UUID; empty for none.

    A part that the submission, the script or a command holds was not made by the program.
    """
    spec = job.spec
    stated = [*spec.environment.values(), *spec.arguments, spec.script] if spec is not None else []
    stated += [word for program in programs for word in program.launch.words]
    stated += [option.value for program in programs for option in program.options]
    makes_uuid = any(MAKES_UUID.search(source.text) for program in programs for source in program.sources)
    path = str(folder)
    stamps = [*TIME_IN_NAME.finditer(path), *EPOCH_IN_NAME.finditer(path)] if job.started is not None else []
    new_parts = [stamp for stamp in stamps if job.started is not None and _is_of_start(stamp, job.started)]
    new_parts += UUID.finditer(path) if makes_uuid else ()
    own = next((match for match in new_parts if not any(match[0] in text for text in stated)), None)
    if own is None or any(_may_hold(before, word, own[0]) for before, word in _unresolved_words(programs)):
        return ""
    end = path.find("/", own.end())
    return path[path.rfind("/", 0, own.start()) + 1 : end if end > 0 else len(path)]


def _unresolved_words(programs: Sequence[JobProgram]) -> Iterator[tuple[str, str]]:
    """Yield the words of which only a run can tell a part, each with the one before."""
    for program in programs:
        words = program.launch.words
        yield from ((before, word) for before, word in pairwise(("", *words)) if UNRESOLVED in word)


def _may_hold(before: str, word: str, text: str) -> bool:
    """Tell whether a word may hold a text, so that the script has given it to the program."""
    option, _, value = word.rpartition("=")
    if OTHER_MEANING.search(option or (before if before.startswith("-") else "")):
        return False
    frame = [re.escape(piece) for piece in value.rpartition("/")[2].split(UNRESOLVED)]
    return re.search(".*".join(frame), text) is not None or UNRESOLVED in value.rpartition("/")[0]


def _is_of_start(stamp: re.Match[str], started: datetime) -> bool:
    """Tell whether a time in a name is right behind the start of a job, as UTC or in this machine's zone."""
    if stamp.re is EPOCH_IN_NAME:
        return -2 <= int(stamp[1]) - started.timestamp() <= LATEST_NAMING_S
    try:
        name_time = datetime(*(int(text or 0) for text in stamp.groups()))  # type: ignore[arg-type]
        times = (name_time.replace(tzinfo=UTC), name_time.astimezone())
    except (ValueError, OverflowError):
        return False
    earliest_s = -60 if stamp[6] is None else -2  # without seconds it is the minute
    return any(earliest_s <= (time - started).total_seconds() <= LATEST_NAMING_S for time in times)


DEFAULT = re.compile(r"\$\{([A-Za-z_]\w{0,80}):?[-=]")
"""A variable with what counts where it is not set."""
TESTED_VARIABLE = re.compile(r"(?:-[znv]\s+|==?\s+)[\"']?(?:\$\{?)?([A-Za-z_]\w{0,80})")
DEFAULT_ARGUMENT = re.compile(r"\$\{([1-9]):?[-=]")
NAMES_A_RUN = re.compile(r"run|name|exp|out|dir|folder|path|tag|id|version|log|save|ckpt|checkpoint", re.IGNORECASE)
PLACEHOLDER = re.compile(r"<[^<>\n]{1,60}>|\b(?:OLD_RUN|OLDRUN|OLD|NAME|RUN|RUN_ID|RUNID)\b(?![=\w])")
MOST_NAMES = 6
MOST_VALUES = 6


@dataclass(frozen=True)
class FolderPin:
    """What keeps another start in the folder of a run."""

    variable: str = ""
    """An assignment, as `RUN=run_1`; empty for none."""
    arguments: tuple[str, ...] | None = None
    """Those of the script; None where they stay as they were."""
    proven: bool = True
    """Whether reading proves it; else a trial start has to."""
    unsafe: tuple[str, ...] = field(default=())
    """Assignments that would do it and hold characters which a shell would change."""
    made_name: str = ""
    """The part of the path that its program made when it started; empty where the script did, or nothing."""

    @property
    def label(self) -> str:
        """For people."""
        return self.variable or (f"{' '.join(self.arguments)!r} as arguments of its script" if self.arguments is not None else "")


def folder_pin(job: Job, programs: Sequence[JobProgram], folder: Path | None) -> FolderPin:
    """Return what keeps another start in the folder where the checkpoints lie.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.
        folder: That of its checkpoints; None where it is not known.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    if spec is None or spec.doubt or spec.environment_lost or folder is None:
        return FolderPin()
    start = AnotherStart(job)
    old_texts = list(start.old_texts(folder))
    if not old_texts:
        part = named_at_start(job, programs, folder)
        return _pin_by_program(job, programs, part) if part and not _is_stated(job) else FolderPin()
    values = dict.fromkeys(
        text for item in old_texts for text in (item.old_word.rpartition("=")[2], item.old_word.rpartition("/")[2], *item.parts)
    )
    code = _code(spec.script)
    unsafe: list[str] = []
    for name, value in product(_settable(job, [*DEFAULT.findall(code), *TESTED_VARIABLE.findall(code)]), [*values][:MOST_VALUES]):
        if _stays(start, start.words_with({name: value}), old_texts):
            if not NOT_SAFE.search(value):
                return FolderPin(f"{name}={value}")
            unsafe.append(f"{name}={value}")
    for number, value in product(dict.fromkeys(DEFAULT_ARGUMENT.findall(code)), [*values][:MOST_VALUES]):
        arguments = (*spec.arguments, value)
        if len(arguments) == int(number) and _stays(start, start.words_with({}, arguments), old_texts):
            if not NOT_SAFE.search(value):
                return FolderPin(arguments=arguments)
            unsafe.append(f"argument {number}: {value}")
    return FolderPin(unsafe=tuple(unsafe))


def moved_folder(job: Job, programs: Sequence[JobProgram], folder: Path, *, same_id: bool = False) -> str:
    """Return why another start would look in another folder than that of the checkpoints, for people; empty if it would not.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.
        folder: That of its checkpoints.
        same_id: Whether the job is queued again under its own id.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None:
        return ""
    start = AnotherStart(job, same_id=same_id)
    old_text = next(start.old_texts(folder), None)
    line = start.line_of(old_text.word) if old_text is not None else ""
    if old_text is not None and not line:
        return f"the path of {folder} holds the job's id"
    part = named_at_start(job, programs, folder) if old_text is None and not _is_stated(job) else ""
    if old_text is None and not part:
        return ""
    by = line or "its program made it when it started"
    old_name = old_text.name if old_text is not None else part
    documented = usage_line(job.spec.script)
    usage = f"; {filled_usage(documented, old_name)}" if documented else ""
    return f"{old_name} in the path of {folder} is a name that each start makes anew ({by}){usage}"


def filled_usage(usage: str, old_name: str) -> str:
    """Return a documented command with the name of the old run in the place of the one thing that it leaves open."""
    places = {match[0] for match in PLACEHOLDER.finditer(usage)}
    marked = {text for text in places if text.startswith("<")} or places
    return usage.replace(marked.pop(), old_name) if len(marked) == 1 else f"{usage} (the old run is {old_name})"


def with_pinned_folder(job: Job, way: ResumeWay, programs: Sequence[JobProgram], folder: Path | None) -> ResumeWay:
    """Return a way that goes on by itself with what keeps it in the folder of its run, where that is proven or can be tried.

    Args:
        job: With its spec.
        way: How its script goes on.
        programs: What it starts.
        folder: That of its checkpoints; None where it is not known.

    Raises:
        Unavailable: The storage did not answer.
    """
    by_itself = way.means in (ResumeMeans.NEWEST, ResumeMeans.TRACKER)
    if not (by_itself or way.means is ResumeMeans.UNKNOWN) or way.variable or way.argument:
        return way
    pin = folder_pin(job, programs, folder)
    if pin.unsafe:
        return replace(way, pin_problem=f"{pin.unsafe[0]!r} would keep it there, and holds characters that a shell would change")
    if not pin.label and not pin.made_name:
        return way
    if not pin.label:
        by = f"{way.by}; {pin.made_name} in the path of {folder} is a name that its program made when it started"
        return replace(way, means=ResumeMeans.UNKNOWN, by=by)
    by = f"{way.by}; {pin.label} keeps it in that run"
    if pin.arguments is not None:
        return replace(way, arguments=pin.arguments, pins=True, by=by, home_made=True) if by_itself else way
    if not by_itself or not pin.proven:
        by = f"{way.by}; whether {pin.label} keeps it in that run is not known"
        variables = (pin.variable, *way.trial_variables)
        hint = way.hint or f"{pin.variable} in the environment of its submission"
        return replace(way, means=ResumeMeans.UNKNOWN, by=by, trial_variables=variables, hint=hint)
    return replace(way, variable=pin.variable, pins=True, by=by, home_made=True)


def _code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _settable(job: Job, names: Sequence[str]) -> list[str]:
    """Return the names that a restart may set and that the submission did not."""
    spec = job.spec
    settable = [name for name in dict.fromkeys(names) if _may_be_set(name) and spec is not None and exports_plainly(spec, name)]
    return [name for name in settable if spec is not None and not spec.environment.get(name)][:MOST_NAMES]


def _may_be_set(name: str) -> bool:
    refused = (NEVER_SET, LOADS_CODE, OPTIONS_IN_DISGUISE, OF_SYSTEM, OF_LAUNCHERS)
    return NAME.fullmatch(name) is not None and not any(rule.fullmatch(form) for rule in refused for form in (name, name.upper()))


def _stays(start: AnotherStart, words: Sequence[tuple[str, ...]], old_texts: Sequence[OldText]) -> bool:
    """Tell whether a start with these words names the folder as the attempt did, and differs in nothing else that counts.

    A word that is made anew and names no part of that folder, as that of a log, may stay so; one by the job's id may not.
    """
    old_words: Mapping[str, str] = {item.word: item.old_word for item in old_texts}
    if [len(command) for command in words] != [len(command) for command in start.words]:
        return False
    pairs = [pair for command, new in zip(start.words, words, strict=True) for pair in zip(command, new, strict=True)]
    return all(new == old_words.get(word, word) and (word in old_words or not start.is_by_id(word)) for word, new in pairs)


def _pin_by_program(job: Job, programs: Sequence[JobProgram], part: str) -> FolderPin:
    """Return the variable by which a program may be given the name that it makes at its start."""
    names = [name for program in programs for source in program.sources for name in variables_in_source(source)]
    names = [name for name in _settable(job, names) if NAMES_A_RUN.search(name)]
    if not names or NOT_SAFE.search(part):
        return FolderPin(made_name=part)
    return FolderPin(f"{names[0]}={part}", proven=False, made_name=part)


def _is_stated(job: Job) -> bool:
    """Tell whether the script says itself how it goes on."""
    return job.spec is not None and bool(read_directives(job.spec.script).resumes)
