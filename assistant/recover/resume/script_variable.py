"""What one variable of its environment changes in the commands of a job's script: they are read with it and without it.

The rule by which a name may be set at all stands here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.processes import LOADS_CODE, NAME, OPTIONS_IN_DISGUISE
from assistant.records import Job
from assistant.recover.batch_script import SHELLS, Launch
from assistant.recover.job_program import CONFIGS, OPTION, FileReader, JobProgram, job_launches, launched_program, normalised
from assistant.recover.resume.argument import RESUMING, saves
from assistant.recover.resume.means import RESUME_OPTIONS
from assistant.recover.resume.number import NUMBERED
from assistant.recover.shell.folders import FolderEntry, FolderView, file_test, listed_folder
from assistant.recover.source.quantities import is_measure
from assistant.recover.source.settings import OF_LAUNCHERS, variables_in_source
from assistant.redact import head_of
from assistant.schedulers.slurm_spec import OF_SYSTEM, exports_plainly

GOES_ON = re.compile(
    r"resum|restor|restart|contin|load|ckpt|chkpt|check_?point|snapshot|init_?from|start|begin|from|iter|step|epoch|latest|last|prev",
    re.IGNORECASE,
)
"""Names of variables by which scripts go on; whether they do is for the script to prove."""
SAYS_SO = re.compile(r"resum|restor|load|ckpt|check", re.IGNORECASE)
_SHOWN_VARIABLE = re.compile(r"(?<![\w-])([A-Za-z_]\w{0,80})=(?:<[^<>]{0,80}>|[^\s=<]*/)")
ON_A_NODE = re.compile(r"local(?!_?rank)|scratch|tmp|temp|cache|stag(?:e|ing)", re.IGNORECASE)
"""Of a variable that names where a node keeps files of its own: it says to where, and never from which checkpoint."""
NEVER_SET = re.compile(
    r"(?:NIGHTSHIFT|SLURM|SBATCH|SRUN|SPANK|BASH|LD|DYLD|PYTHON|PERL|RUBY|JAVA|NODE|GIT|SSH|SUDO|XDG|LC|PAM|KRB5|MUNGE|APPTAINER"
    r"|SINGULARITY|DOCKER|PODMAN|ENROOT|PYXIS|CUDA|NCCL|NVIDIA|MODULE|LOADEDMODULES|LMOD)\w*|_\w*|\w*(?:PRELOAD|LIBRARY_PATH)\w*",
    re.IGNORECASE,
)
"""Names that mean something to shells, loaders, launchers and schedulers, whatever a script does with them besides."""
SWITCHES = frozenset(
    "fresh clean debug seed epochs epoch batch samples sample keep log logs logging out output outdir reset force overwrite max "
    "min num total end stop per every interval freq save warmup eval val test train mode rate lr size count steps iters points "
    "data no skip delete remove dry dryrun".split()
)
"""Parts of names of variables that switch or measure what a run does, and never say from where it goes on."""
COUNTS = frozenset("step iter iteration ckpt checkpoint chkpt snapshot".split())
SPEAKS = frozenset(("echo", "printf", "[", "[[", "test", ":", "true", "(("))
"""Commands of a script that change nothing by what they are given."""
STEP_OPTIONS = frozenset(("ckpt_step", "load_step", "load_tag", "resume_step", "resume_iter", "start_step", "checkpoint_step"))
SAYS_ITSELF = frozenset(("resume_from_checkpoint", "resume_from", "resume", "resume_path", "resume_ckpt", "ckpt_path"))
"""Options that mean the whole training, also of a program that cannot be read; `load` and `init_from` may mean weights alone."""
OF_A_PART = re.compile(r"optim|sched|strict|only|every|interval|freq|rng|data|_id$|wandb|name$|num_|count", re.IGNORECASE)
SUBSTITUTION = re.compile(r"[$<>]\((?!\()(?:[^()]|\([^()]*\))*\)|`[^`]*`")
LOOP = re.compile(r"(?<![\w./-])(?:for|while|until|select)\s.*?(?<![\w./-])done\b", re.DOTALL)
OTHER_ENVIRONMENT = frozenset(
    "env sudo su runuser ssh pdsh clush mpirun mpiexec horovodrun deepspeed parallel xargs at batch sbatch flux jsrun aprun".split()
)
"""Commands that may start a program without the variables of the script."""
TRUTHS = frozenset(("1", "true", "yes", "y", "on", "auto", "latest", "last", "resume"))
"""Words by which a script is told to go on."""
SCRIPTS = (".sh", ".bash")
PROBE_FOLDER = "/nightshift-probe/run_5"
PROBE_STEP = "7654321"
PROBE_NAME = f"step_{PROBE_STEP}"
"""A checkpoint that no script has of its own."""


def may_be_set(name: str) -> bool:
    """Tell whether a restart may set a variable of this name at all, and whether it speaks of going on."""
    return GOES_ON.search(name) is not None and is_harmless(name)


def names_a_checkpoint(name: str) -> bool:
    """Tell whether a variable that is only shown may name where a run goes on, and switches or measures nothing by its name."""
    return may_be_set(name) and not SWITCHES.intersection(name.lower().split("_"))


def counts_for_a_step(name: str) -> bool:
    """Tell whether a number in a variable of this name may be a step of the run: `FROM_STEP`, `CKPT_ITER`, `CKPT`."""
    return names_a_checkpoint(name) and not COUNTS.isdisjoint(name.lower().split("_"))


def is_harmless(name: str) -> bool:
    """Tell whether a name is none that shells, loaders, launchers or Slurm obey."""
    refused = (NEVER_SET, LOADS_CODE, OPTIONS_IN_DISGUISE, OF_SYSTEM, OF_LAUNCHERS)
    plain = NAME.fullmatch(name) is not None
    return plain and not any(pattern.fullmatch(spelling) for pattern in refused for spelling in (name, name.upper()))


class Goal(NamedTuple):
    """A checkpoint to go on from, and how a variable names it."""

    template: str
    """With `{checkpoint}`, `{name}`, `{step}` or `{folder}`; a word that only says that the script is to go on holds none."""
    checkpoint: str
    """Its absolute path."""
    step: str
    imagined: str = ""
    """`file` or `folder` for a checkpoint that does not exist, so that tests of files are answered as if it did."""

    @property
    def folder(self) -> str:
        """That the checkpoint lies in."""
        return str(PurePosixPath(self.checkpoint).parent)

    @property
    def value(self) -> str:
        """What the variable holds."""
        name = PurePosixPath(self.checkpoint).name
        return self.template.format(checkpoint=self.checkpoint, name=name, step=self.step, folder=self.folder)


def imagined_goal(template: str, kind: str) -> Goal:
    """Return a checkpoint that no script has of its own, a `file` or a `folder`."""
    return Goal(template, f"{PROBE_FOLDER}/{PROBE_NAME}{'.pt' if kind == 'file' else ''}", PROBE_STEP, kind)


class Difference(NamedTuple):
    """The one command of a script that a variable changes."""

    before: Launch
    after: Launch
    words: tuple[str, ...]
    """Of the later one, where they differ; none where its program itself reads the variable."""
    option: str
    """Whose value it is, normalised; empty for none."""


@dataclass
class VariableScript:
    """A job's script, read with other values of its variables."""

    job: Job
    read: FileReader
    _before: dict[tuple[str, str, bool | None], list[Launch]] = field(default_factory=dict)
    _listed: Callable[[str], tuple[FolderEntry, ...] | None] | None = None

    def names(self, programs: Sequence[JobProgram]) -> list[str]:
        """Return the variables that script and programs read and that a restart may set, those that speak of resuming first.

        A time or a rate is none of them.
        """
        spec = self.job.spec
        if spec is None:
            return []
        self.launches("", "", None, None)  # reads the scripts that it calls
        pairs = (
            pair for text in self.texts() for pair in re.findall(r"\$\{?([A-Za-z_]\w{0,80})|-v[ \t]+([A-Za-z_]\w{0,80})", text)
        )
        listed = [first or second for first, second in pairs]
        listed += [name for program in programs for source in program.sources for name in variables_in_source(source)]
        sources = [source for program in programs for source in program.sources]
        unique = [
            name
            for name in dict.fromkeys(listed)
            if may_be_set(name)
            and exports_plainly(spec, name)
            and not is_measure(name, spec.environment.get(name, ""), self.texts(), sources)
        ]
        documented = self.shown_names()
        return sorted(
            (name for name in unique if not self.is_fixed(name)),
            key=lambda name: (name not in documented, not SAYS_SO.search(name)),
        )

    def is_fixed(self, name: str) -> bool:
        """Tell whether the script, or a file that it reads, gives a variable a value of its own whatever the submission says.

        An indented line may stand in a branch, and is none.
        """
        assigns = re.compile(rf"^(?:export[ \t]+|declare[ \t]+-x[ \t]+)?{re.escape(name)}=(?P<value>.*)$", re.MULTILINE)
        texts = (*self.texts(), *(text for text in self.read.texts.values() if text))
        return any(name not in match["value"] for text in texts for match in assigns.finditer(text))

    def texts(self) -> list[str]:
        """Return the script and those that it calls, without lines that are comments."""
        called = [text for path, text in self.read.texts.items() if text and PurePosixPath(path).suffix in SCRIPTS]
        texts = [self.job.spec.script if self.job.spec is not None else "", *called]
        return ["\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")) for text in texts]

    def launches(self, name: str, value: str, goal: Goal | None, unanswered: bool | None) -> list[Launch]:
        """Return the commands of the script with a variable set.

        Args:
            name: Of the variable; empty to leave all as they are.
            value: What it holds.
            goal: The checkpoint that tests of files may ask for.
            unanswered: How tests count that cannot be told.
        """
        spec = self.job.spec
        if spec is None:
            return []
        job = replace(self.job, spec=replace(spec, environment={**spec.environment, name: value})) if name else self.job
        if self._listed is None:
            self._listed = lru_cache(maxsize=None)(partial(listed_folder, self.job.account))
        exists = partial(_file_test, self.job.account, goal)
        return job_launches(job, self.read, exists=exists, unanswered=unanswered, view=FolderView(self._listed))

    def difference(self, name: str, goal: Goal) -> Difference | str | None:
        """Return the one command that trains and that a variable changes; what speaks against it, in words; None for no difference.

        Raises:
            Unavailable: The storage did not answer.
        """
        old = self.job.spec.environment.get(name, "") if self.job.spec is not None else ""
        old = "" if old == goal.value else old  # former that is tried again is compared with a start without
        first: Difference | None = None
        for unanswered in (None, True, False):
            key = (name, old, unanswered)
            before = self._before[key] = self._before.get(key) or self.launches(name, old, goal, unanswered)
            compared = self._compared(name, before, self.launches(name, goal.value, goal, unanswered))
            if isinstance(compared, str) or (compared is None and unanswered is None):
                return compared
            if compared is None:
                if unanswered is not None and not self._is_trained(before):
                    continue  # with this answer the script ends before
                return f"whether {program_name(first.after)} is given it hangs on a test that only a run answers" if first else None
            if first is not None and compared.after.words != first.after.words:
                return f"what {program_name(first.after)} is given hangs on a test that only a run answers"
            first = first or compared
        return first

    def _is_trained(self, launches: Sequence[Launch]) -> bool:
        return any(self._trains(launch) for launch in launches)

    def _trains(self, launch: Launch) -> bool:
        return bool(launch.program or launch.stdin or len(launch.words) > 1) and saves(launched_program(launch, self.read))

    def _compared(self, name: str, before: Sequence[Launch], after: Sequence[Launch]) -> Difference | str | None:
        earlier, later = ([launch for launch in launches if not _speaks(launch)] for launches in (before, after))
        left_out = [
            launch for launch in earlier if launch.words[0] == "rm" and all(launch.words != latter.words for latter in later)
        ]
        earlier = [launch for launch in earlier if launch not in left_out]  # what it removes no more is no harm
        if len(earlier) != len(later):
            return f"with {name} set its script runs other commands"
        changed = {name}
        for former, latter in zip(earlier, later, strict=True):
            changed |= {
                key for key in {*former.variables, *latter.variables} if former.variables.get(key) != latter.variables.get(key)
            }
        changed -= {"_", "PWD", "OLDPWD"}
        pairs = [(former, latter) for former, latter in zip(earlier, later, strict=True) if not _is_shell_text(latter)]
        differing = [(former, latter) for former, latter in pairs if not _is_same(former, latter)]
        readers = [pair for pair in pairs if pair not in differing and self._reads(pair[1], changed)]
        if not differing and not readers:
            return None
        if problem := self._hidden(changed, (*earlier, *later)) or self._set_in_a_loop(changed):
            return problem
        if readers and (problem := self._withheld(changed, readers[0][1])):
            return problem
        if len(differing) + len(readers) > 1:
            users = [pair for pair in (*differing, *readers) if not self._trains(pair[1])] or [*differing, *readers]
            return f"{name} is also used for {program_name(users[-1][1])}"
        former, latter = (differing or readers)[0]
        if not self._trains(latter):
            return f"{name} is used for {program_name(latter)}, which does not train" if differing else None
        same = ("folder", "stdin", "writes", "container", "program")
        if any(getattr(former, part) != getattr(latter, part) for part in same):
            return f"{name} also changes what {program_name(former)} is, or where it runs or writes"
        return _changed_words(name, former, latter)

    def _reads(self, launch: Launch, names: set[str]) -> bool:
        """Tell whether a program reads one of some variables from its environment."""
        if not launch.program and not launch.stdin:
            return False
        program = launched_program(launch, self.read)
        return any(name in names for source in program.sources for name in variables_in_source(source))

    def _hidden(self, names: set[str], launches: Sequence[Launch]) -> str:
        """Return where variables are used so that no word of a command shows what becomes of it; empty for nowhere."""
        mention = re.compile(rf"\$\{{?[#!]?(?:{'|'.join(map(re.escape, sorted(names)))})\b")
        inside = (match[0] for text in self.texts() for match in SUBSTITUTION.finditer(text))
        if (inner := next((text for text in inside if mention.search(text)), "")) != "":
            return f"it is used in {head_of(inner, 60)}, whose output only a run can tell"
        for launch in launches:
            base = PurePosixPath(launch.words[0]).name
            trapped = base == "trap" and mention.search(" ".join(launch.words))
            if trapped or base == "envsubst" or mention.search(launch.stdin):
                return f"it is used in what {base} is given"
        of_config = re.compile(rf"env:(?:{'|'.join(map(re.escape, sorted(names)))})\b")
        for path, text in self.read.texts.items():
            if text and PurePosixPath(path).suffix in CONFIGS and (mention.search(text) or of_config.search(text)):
                return f"{PurePosixPath(path).name} uses it"
        return ""

    def _set_in_a_loop(self, names: set[str]) -> str:
        """Return the variable that a loop sets, of whose rounds nothing is known; empty for none."""
        loops = [match[0] for text in self.texts() for match in LOOP.finditer(text)]
        assigned = re.compile(rf"(?<![\w$])(?:{'|'.join(map(re.escape, sorted(names)))})(?:\[[^\]]*\])?\+?=")
        variable = next((match[0] for text in loops if (match := assigned.search(text)) is not None), "")
        return f"{variable.rstrip('+=')} is set in a loop" if variable else ""

    def _withheld(self, names: set[str], launch: Launch) -> str:
        """Return what may keep a variable from a program that reads its environment; empty where it surely gets it."""
        end = launch.words.index(launch.program) if launch.program in launch.words else len(launch.words)
        words = [PurePosixPath(word).name for word in launch.words[:end]]
        if launch.container is not None or (between := next((word for word in words if _narrows(word)), "")):
            return f"{between if launch.container is None else 'its container'} may not hand the environment on"
        alone = re.compile(rf"(?<![\w$.{{/-])({'|'.join(map(re.escape, sorted(names)))})\b")
        for line in (line for text in self.texts() for line in text.splitlines()):
            own = re.sub(
                rf"(?<![\w$])({'|'.join(map(re.escape, sorted(names)))})=[\"']?\$\{{?\1(?::?-)?\}}?[\"']?(?=[\s;]|$)", "", line
            )
            exported = re.match(r"\s*export\s(?!.*\s-n\b)", own) is not None and not re.match(r"\s*export\s+-n", own)
            for match in alone.finditer(own):
                if not exported or own[match.end() : match.end() + 1] in ("=", "+", "["):
                    return f"`{head_of(line.strip(), 60)}` may take it away or give it another value"
        return ""

    def truths(self, name: str) -> Iterator[str]:
        """Yield the words with which script and programs compare a variable; `1` where only it being set counts."""
        texts = [*self.texts(), *(text for path, text in self.read.texts.items() if text and path.endswith(".py"))]
        pattern = re.compile(
            rf"\$\{{?{re.escape(name)}\b(?::?-[^}}]{{0,80}})?\}}?[\"']?\s{{0,8}}(?:==?|-eq)\s{{0,8}}[\"']?(\w+)"
            rf"|{re.escape(name)}[\"'](?:,[^()]{{0,20}})?[\])]\s{{0,8}}==\s{{0,8}}[\"'](\w+)[\"']"
        )
        compared = [former or latter for text in texts for former, latter in pattern.findall(text)]
        yield from [word for word in dict.fromkeys(compared) if word.lower() in TRUTHS]
        if not compared:
            yield "1"

    def is_shown_with_path(self, name: str) -> bool:
        """Tell whether the submission set a variable to a path, or a comment shows it so: `# RESUME=out/step_40 sbatch`."""
        spec = self.job.spec
        if spec is None:
            return False
        usage = re.compile(rf"#.*(?<!\w){re.escape(name)}=[\"']?[^\s\"']*/")
        lines = (line.strip()[:2000] for line in spec.script.splitlines())
        return "/" in spec.environment.get(name, "") or any(usage.match(line) for line in lines)

    def shown_names(self) -> list[str]:
        """Return the variables that a comment of the script shows with a path before a submission: `# WARM=out/40.bin sbatch`."""
        spec = self.job.spec
        comments = [line.strip()[:2000] for line in spec.script.splitlines() if line.lstrip().startswith("#")] if spec else []
        usages = [name for line in comments if "sbatch" in line for name in _SHOWN_VARIABLE.findall(line)]
        return [name for name in dict.fromkeys(usages) if spec is not None and is_harmless(name) and exports_plainly(spec, name)]

    def line_of(self, name: str) -> int:
        """Return the line of the script that reads a variable first, 1-based; 0 for none."""
        lines = self.job.spec.script.splitlines() if self.job.spec is not None else []
        use = re.compile(rf"\$\{{?{re.escape(name)}\b")
        return next((n for n, line in enumerate(lines, 1) if use.search(line) and not line.lstrip().startswith("#")), 0)


USAGE = re.compile(r"#(?!SBATCH|NIGHTSHIFT|!).*\bsbatch\s+\S")
TELLS_OF_RESUMING = re.compile(
    r"resum|continu|restart|re-?start|go(?:es)? on|pick(?:s)? up|carry on|from (?:a |the )?(?:last |old )?(?:checkpoint|run)",
    re.IGNORECASE,
)
LONGEST_USAGE = 200


def usage_line(script: str) -> str:
    """Return how a comment of a script says that its run is continued, with its line, for people; empty where none does.

    Nothing is done by it: it is what its author wrote, and untrusted text.
    """
    lines = [line.strip() for line in script.splitlines()]
    for number, (before, line) in enumerate(zip(("", *lines), lines, strict=False), 1):
        around = f"{before if before.startswith('#') and not before.startswith('#SBATCH') else ''} {line}"
        if USAGE.match(line[:2000]) and TELLS_OF_RESUMING.search(around[:4000]):
            return f"line {number} of its script says: {head_of(line.lstrip('# '), LONGEST_USAGE)}"
    return ""


def program_name(launch: Launch) -> str:
    """Return the name of what a command runs, for people."""
    return PurePosixPath(launch.program or launch.words[0]).name


def _narrows(word: str) -> bool:
    """Tell whether a word before a program may give it another environment than that of the script."""
    return word in OTHER_ENVIRONMENT or word.startswith("--export")


def _file_test(account: str, goal: Goal | None, letter: str, path: str) -> bool | None:
    """Answer a test of a file; of a checkpoint that is imagined as if it were there, and of what would lie in it not at all."""
    kinds = {"d": True, "f": False, "h": False, "L": False}
    if goal is not None and goal.imagined:
        parts, name = PurePosixPath(path).parts, PurePosixPath(goal.checkpoint).name
        if name in parts:
            kinds |= {"d": goal.imagined == "folder", "f": goal.imagined == "file"}
            return kinds.get(letter, True) if parts[-1] == name else None
        if path.startswith(goal.folder):
            return kinds.get(letter, True) if path.rstrip("/") == goal.folder else None
    return file_test(account, frozenset(), letter, path)


def _speaks(launch: Launch) -> bool:
    return PurePosixPath(launch.words[0]).name in SPEAKS and not launch.writes and not launch.apart


def _is_shell_text(launch: Launch) -> bool:
    """Tell whether a command is a shell with a text of its own: what that starts follows as commands of their own."""
    names = [PurePosixPath(word).name for word in launch.words]
    return "-c" in names and any(name in SHELLS for name in names[: names.index("-c")]) and not launch.program


def _is_same(former: Launch, latter: Launch) -> bool:
    parts = ("words", "folder", "stdin", "writes", "container")
    return all(getattr(former, part) == getattr(latter, part) for part in parts)


def _changed_words(name: str, former: Launch, latter: Launch) -> Difference | str:
    """Return in which words two commands differ, where these are options of going on alone."""
    first, second = list(former.words), list(latter.words)
    least = min(len(first), len(second))
    start = next((n for n in range(least) if first[n] != second[n]), least)
    end = 0
    while end < least - start and first[-1 - end] == second[-1 - end]:
        end += 1
    removed, come = first[start : len(first) - end], second[start : len(second) - end]
    before = second[start - 1] if start else ""
    if before.startswith("-") and "=" not in before and [*come, *removed][:1] and not [*come, *removed][0].startswith("-"):
        come, removed = [before, *come], [before, *removed] if removed else []
    option = ""
    for word in (*removed, *come):
        setting = OPTION.fullmatch(word)
        if setting is None and not word.startswith("-"):
            continue
        option = normalised(setting[1] if setting is not None else word).rpartition(".")[2]
        if not _is_of_resuming(option):
            return f"{name} also changes {word.partition('=')[0]} of {program_name(latter)}"
    return Difference(former, latter, tuple(come), option)


def _is_of_resuming(option: str) -> bool:
    is_named_so = any((option in RESUME_OPTIONS, option in STEP_OPTIONS, RESUMING.fullmatch(option), NUMBERED.fullmatch(option)))
    return is_named_so and (option in SAYS_ITSELF or OF_A_PART.search(option) is None)
