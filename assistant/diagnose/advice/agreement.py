"""Hold advice against the case: action and text say the same about another start, and nothing is taken for granted.

Whether a start helps is decided here alone, in this order: advice that fits the line says so itself (`wall`, `quiet`), the words of
the failure say so (knowledge/recurrence.toml), else the action of the reason stands. Where a sentence that was made from the case
says that the same start meets the same, the action goes with it.

An entry fits by the words of one line, which other programs say as well. Before it is given (`borne_out`), its sentences are held
against the case: a file that is to be changed must not belong to the system or to an installed package, a program that is spoken of
must show in a whole log, and a service that is called out of reach must not have answered. Its first sentence has to bear that, or
the entry is no advice for this case; of the others those that do not are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from assistant.content.reading import build, knowledge_file, read_toml, wrong
from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of, raised_at
from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern
from assistant.records import Action, Citation, Diagnosis

FILE = "recurrence.toml"
MESSAGE_LINES = 8
"""Of a message of several lines, those whose words are asked."""
OF_SERVICES = frozenset(
    "connection_error network_error s3_storage_error os_error runtime_error called_process_error file_not_found_error "
    "dataset_loading_error model_loading_error".split()
)
"""Reasons behind which may stand another machine's moment as well as an own mistake."""
STARTS = (Action.RESTART_SAME_NODES, Action.WAIT_AND_RETRY)
_SENTENCE = re.compile(r"(?<=[a-z0-9)`'\"][.!?]) (?=[A-Z`])")
_MEETS_AGAIN = re.compile(
    r"Under the same limit.{0,80} it ends at the same place|from the start it wants |restart is refused the same way"
    r"|every start comes to (?:it|the same)|(?:, so|[.:]) ?[Ww]aiting does not help|is the same at every start"
)
"""Sentences of our own which say, without a condition, that the same start meets the same."""
_STARTS_AGAIN = re.compile(r"(?:Start it again|Restart|Wait until what it needs is there)\b")
_ASKS_TO_RETRY = re.compile(
    r"(?:Do what the message asks|The message itself asks.{0,80}|The log itself says.{0,80}): (?:please )?(?:re)?try"
)
_VARIABLE = re.compile(r"(?<![\w$/.-])[A-Z][A-Z0-9]{1,20}(?:_[A-Z0-9]{1,20}){1,6}(?![\w/])")
_ASSIGNED = re.compile(
    r"^\W{0,3}(?:export |declare -x |setenv |os\.environ\[)?['\"]?(?P<name>[A-Z][A-Z0-9_]{3,80})['\"]?\]? ?(?:[=:]| (?=\S+$)) ?"
    r"['\"]?(?P<value>[^\s'\",;]{1,120})"
)
_BY_NCCL = re.compile(r"(?P<name>[A-Z][A-Z0-9_]{3,80}) set (?:by environment )?to (?P<value>[^\s.,;]{1,120})")
"""How NCCL and RCCL print a variable that they read."""
MOST_OF_LINE = 400


@dataclass(frozen=True)
class RecurrenceForm:
    """Words of a failure that say whether another start meets the same."""

    id: str
    pattern: str
    """RE2, for one line of a message."""
    passes: bool
    """Whether only the moment was wrong."""
    examples: tuple[str, ...]
    pause: bool = False
    """Whether a start at once would meet it again."""


@dataclass(frozen=True)
class _File:
    form: tuple[RecurrenceForm, ...]


@cache
def recurrence_forms() -> tuple[RecurrenceForm, ...]:
    """Return the forms in the order in which they are asked.

    Raises:
        ContentError: The file is malformed; the message names file, line and key.
    """
    path = knowledge_file(FILE)
    forms = build(_File, read_toml(path), path).form
    for form in forms:
        try:
            linear_pattern(form.pattern)
        except ContentError as error:
            raise wrong(path, "pattern", f"{form.id}: {error}") from error
    return forms


def form_of(text: str) -> RecurrenceForm | None:
    """Return the form whose words a line has; None where it does not say whether another start meets the same."""
    return next((form for form in recurrence_forms() if holds(linear_pattern(form.pattern), text)), None)


def action_of(diagnosis: Diagnosis, facts: Facts, *, wall: bool, quiet: bool) -> Action:
    """Return the action of a diagnosis: none that meets a wall again, and no mending where only the moment was wrong.

    Args:
        diagnosis: With the action of its reason or signature.
        facts: Of the case.
        wall: The advice says that a start meets the same again.
        quiet: The advice says that nothing has to be changed.
    """
    action = diagnosis.action
    if wall:
        return Action.FIX_AND_RESUBMIT if action in (STARTS if diagnosis.nodes else (*DEEDS,)) else action
    startable = (*STARTS, Action.FIX_AND_RESUBMIT) if not diagnosis.nodes else (Action.FIX_AND_RESUBMIT,)
    if quiet:
        return Action.WAIT_AND_RETRY if action in startable else action
    if diagnosis.reason not in OF_SERVICES or diagnosis.nodes or not diagnosis.root_cause:
        return action
    lines = message_of(diagnosis.root_cause[0], facts)[:MESSAGE_LINES]
    form = next((form for line in lines if (form := form_of(line)) is not None), None)
    if form is None or action not in startable:
        return action
    if not form.passes:
        return Action.FIX_AND_RESUBMIT
    return Action.WAIT_AND_RETRY if form.pause or action is Action.FIX_AND_RESUBMIT else action


def agreeing(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return the diagnosis with an action that its advice does not contradict, and what of its settings the log shows as set."""
    sentences = _SENTENCE.split(diagnosis.advice)
    if diagnosis.action in STARTS and not diagnosis.nodes and any(_MEETS_AGAIN.search(sentence) for sentence in sentences):
        changes = [sentence for sentence in sentences if not _STARTS_AGAIN.match(sentence)]
        diagnosis = replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=" ".join(changes))
    elif diagnosis.action is Action.FIX_AND_RESUBMIT and any(_ASKS_TO_RETRY.match(sentence) for sentence in sentences):
        changes = [sentence for sentence in sentences if not _ASKS_TO_RETRY.match(sentence)]
        diagnosis = replace(diagnosis, advice=" ".join(changes))
    settings = " ".join(_set_already(diagnosis, facts))
    if not settings:
        return diagnosis
    body = diagnosis.advice.removesuffix(NO_HELP).strip()
    ending = f" {NO_HELP}" if diagnosis.advice.endswith(NO_HELP) else ""
    return replace(diagnosis, advice=f"{body} {settings}{ending}")


def _set_already(diagnosis: Diagnosis, facts: Facts) -> Iterator[str]:
    """Yield a sentence for each environment variable that the advice asks for and the log shows as set before the failure."""
    names = set(_VARIABLE.findall(diagnosis.advice))
    if not names or diagnosis.action is not Action.FIX_AND_RESUBMIT or not diagnosis.root_cause:
        return
    values: dict[str, tuple[str, int]] = {}
    for line in facts.lines:
        if line.number >= diagnosis.root_cause[0].line and diagnosis.root_cause[0].file == "job.log":
            break
        text = line.text[:MOST_OF_LINE]
        if "_" not in text:
            continue
        match = _BY_NCCL.search(text) or _ASSIGNED.match(facts.streams.body(text).text)
        if match is not None and match["name"] in names:
            values[match["name"]] = (match["value"].rstrip(")]}"), line.number)
    for name, (value, number) in values.items():
        if f"job.log:{number}" not in diagnosis.advice:
            yield (
                f"{name} is set already, to {value} (job.log:{number}): that value did not do, so choose another one, or mend what "
                "it names."
            )


MOST_OF_SPOKEN_LINE = 2000
LEAST_LINES = 40
"""Lines of a log from which on a program that ran shows in it: an excerpt may hold nothing but its message."""
_SENTENCE_START = re.compile(r"(?<=[a-z0-9)`'\"][.!?]) (?=[A-Z`{])")
_BRACKETS = re.compile(r"\([^()]*\)|`[^`]*`")
_SECOND = re.compile(r"[;:] |, (?:or|and|for|of|which|where|as|so|but) | or ")
"""What a sentence takes for granted stands before these; behind them come remedies to choose from."""
SYSTEM = (
    r"/(?:usr/(?:local/)?)?(?:s?bin|lib(?:32|64|exec)?|share|include)/|/(?:etc|proc|sys|boot|snap|nix/store|cvmfs)/"
    r"|/opt/[\w.+-]+/(?:s?bin|lib(?:64)?)/|/(?:[\w.@+=~-]+/)*(?:(?:site|dist)-packages|lib/python3[\d.]*)/"
    r"|/(?:[\w.@+=~-]+/)*(?:mini|ana)(?:conda|forge)\w*/(?:envs/[\w.-]+/)?(?:bin|lib)/"
)
"""Where files lie that come from the system, from a package or from an environment."""
SYSTEM_PATH = re.compile(rf"(?:{SYSTEM})[\w.@+=~/-]+")
_CHANGES = re.compile(
    rf"\b(?:chmod (?:[-+\w]+ )?|chown (?:\S+ )?|Make |Correct |Edit |Rename |Rewrite |Truncate |[Ww]rite into |Add .{{0,60}} to "
    rf"|rm (?:-\w+ )?)(?P<path>(?:{SYSTEM})[\w.@+=~/-]+)"
)
"""Orders to change a file, whose path is one of the system."""
_RIGHTS = re.compile(r"change (?:its )?(?:owner|mode)|owner or mode")
_NO_PROGRAM = re.compile(
    r"Make \S{1,200}\.(?:log|txt|out|err|csv|tsv|jsonl?|ya?ml|toml|gz|zip|bam|vcf|h5|hdf5|pt|pth|ckpt|np[yz]|pkl|dat|db"
    r"|lock|tmp|nc) exec"
)
"""An order to make a program of what by its name is a file of data."""
_NO_NAME = re.compile(r"`?[(<](?:unknown|null|nil|none|unnamed|anonymous)[)>]`?|`\?{2,}`")
NOT_NAMED = "what the message does not name"
_OUT_OF_REACH = re.compile(
    r"cannot be reached|not asked or not reached|[Nn]othing listens|no way out|is out of reach|cannot reach|is not reached"
)
ANSWERED = re.compile(
    r"\b(?P<status>[45]\d\d) (?:Client|Server) Error: (?P<words>[A-Z][\w -]{2,60}?) (?:for|from) "
    r"|HTTP Error (?P<status_2>[45]\d\d): (?P<words_2>[A-Z][\w ]{2,60})|Error code: (?P<status_3>[45]\d\d)\b"
    r"|(?:HTTP(?:/[\d.]+)?|[Ss]tatus(?:[ _][Cc]ode)?)[ :=\"']{1,4}(?P<status_4>[45]\d\d)\b"
)
"""How clients print the status with which a service refused a request."""


class _Program(NamedTuple):
    names: re.Pattern[str]
    """How advice names it."""
    evidence: re.Pattern[str]
    """What of it any log of it shows, in letters of either case."""


def _program(names: str, evidence: str = "") -> _Program:
    return _Program(re.compile(rf"(?<![\w/.-])(?:{names})(?![\w-])"), re.compile(evidence or names, re.IGNORECASE))


_PROGRAMS = (
    _program("Nextflow", r"nextflow|N E X T F L O W|\bnf-core|executor >|\.command\.(?:sh|run|err)"),
    _program("Snakemake", r"snakemake|Error in rule|\.smk\b|Snakefile|\bsnakejob|MissingInputException|MissingOutputException"),
    _program("Ray"),
    _program("DeepSpeed"),
    _program("Megatron", "megatron|pretrain_gpt|_text_document|latest_checkpointed_iteration"),
    _program("vLLM", "vllm"),
    _program("TensorFlow", r"tensorflow|\btf\.|tf_|keras"),
    _program("JAX", r"\bjax|xla|flax"),
    _program("Kubernetes", r"kube|\bpods?\b|helm|k8s|containerd"),
    _program("Docker", r"docker|containerd|\bimage\b"),
    _program("Apptainer|Singularity", r"apptainer|singularity|\.sif\b|FATAL: {2,3}"),
    _program("MATLAB", r"matlab|\.m\b|Error using|Error in "),
    _program("Julia", r"julia|\.jl\b"),
    _program("Spark", r"spark|hadoop|py4j"),
    _program("Dask", r"dask|distributed\."),
    _program("OpenFOAM", r"foam"),
    _program("LAMMPS"),
    _program("GROMACS", r"gromacs|\bgmx|mdrun"),
    _program("VASP"),
    _program("Gaussian", r"gaussian|l\d{3,4}\.exe|Link \d"),
    _program("Hydra", r"hydra|omegaconf|\.yaml"),
    _program("Horovod"),
    _program("MPI|MPI_ABORT|mpirun|mpiexec|Open MPI|Intel MPI", r"mpi|pmix|prte|orte|ucx|ucp_|psm2|ofi\b|hydra_"),
    _program("NCCL", r"nccl|torch\.distributed|torchrun|cuda|distributed|ProcessGroup"),
    _program("PyTorch", r"torch|lightning|transformers|flash_?attn|flashattention|bitsandbytes|cud(?:a|nn)"),
    _program("Slurm|srun|sbatch", r"slurm|srun|sbatch|salloc|sacct"),
    _program("LSF", r"lsf|bsub|LSB_"),
    _program("PBS", r"\bpbs|qsub"),
)
"""Programs that advice may speak of only where the log shows them."""


def borne_out(text: str, cited: Citation, facts: Facts) -> str:
    """Return advice with what the case bears out; empty where its first sentence takes for granted what the log does not show.

    Args:
        text: Of an entry, filled.
        cited: The line that it was made for.
        facts: Of the case.
    """
    sentences = _SENTENCE_START.split(_NO_NAME.sub(NOT_NAMED, text))
    if _refused(sentences[0], cited, facts):
        return ""
    return " ".join([sentences[0], *(sentence for sentence in sentences[1:] if not _refused(sentence, cited, facts))])


def _refused(sentence: str, cited: Citation, facts: Facts) -> bool:
    if (
        _RIGHTS.search(sentence)
        and SYSTEM_PATH.search(cited.text[:MOST_OF_SPOKEN_LINE])
        and "rror" not in cited.text[:MOST_OF_SPOKEN_LINE]
    ):
        return True
    if _CHANGES.search(sentence) is not None or _NO_PROGRAM.match(sentence) is not None:
        return True
    if _OUT_OF_REACH.search(sentence) and answer_of_service(cited, facts) is not None:
        return True
    if len(facts.lines) < LEAST_LINES:
        return False
    subject = _SECOND.split(_BRACKETS.sub("", sentence), maxsplit=1)[0]
    programs = [program for program in _PROGRAMS if program.names.search(subject)]
    return any(not _shows(program, cited, facts) for program in programs)


def _shows(program: _Program, cited: Citation, facts: Facts) -> bool:
    texts: Iterable[str] = (
        cited.text,
        *(line.text[:MOST_OF_SPOKEN_LINE] for lines in (facts.lines, facts.scheduler) for line in lines),
    )
    scheduled = facts.case.job is not None and program.evidence.search("slurm") is not None
    return scheduled or any(program.evidence.search(text) for text in texts)


def system_refusal(cited: Citation) -> str:
    """Return what to do where the system's own file is refused; empty for other lines."""
    match = SYSTEM_PATH.search(cited.text[:MOST_OF_SPOKEN_LINE])
    if match is None:
        return ""
    name = match[0].rpartition("/")[2]
    return (
        f"{match[0]} is a file of the node's system or of an installed package, whose rights no job changes: load the module or "
        f"environment in which {name} is one that this account may use, so that it comes first on PATH (type -a {name} shows which "
        f"are there), or ask who runs the node ({cited.file}:{cited.line})."
    )


def answer_of_service(cited: Citation, facts: Facts) -> Citation | None:
    """Return the exception of a chain by which a service answered with a status, where the cited one came while it was handled."""
    exception = raised_at(cited, facts)
    if exception is None or ANSWERED.search(cited.text):
        return None
    earlier = (error for error in exception[0].raised if error.line < cited.line)
    first = next((error for error in earlier if ANSWERED.search(error.text)), None)
    return Citation("job.log", first.line, first.text, cited.rule) if first is not None else None
