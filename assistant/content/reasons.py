"""The failure knowledge: one file a reason in knowledge/reasons/, and the advice of knowledge/advice/.

A signature is a regular expression for one line of a log. It must compile in Hyperscan and in `re` alike (so: no back-references,
no look-around) and match each of its own examples; it may name groups (`node`, `rank`, `xid`, …) that diagnosis reads.

Advice says what a person has to change, by what a line of the failure says. One `[[advice]]` belongs to reasons and begins with a
pattern for a line that the diagnosis cites. Its named groups, those of further patterns for the lines around, and what diagnosis
knows of the case (`SLOTS`) fill the clauses; a clause with a group that nothing filled is left out, so that nothing is ever
invented. A name that an entry's own patterns have is filled by them alone: the slot of that name may mean something else. Where one
message has several remedies, by what else is known, they are variants of one entry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

from assistant.content.reading import build, content_files, knowledge_file, read_toml, wrong
from assistant.errors import ContentError
from assistant.linear_patterns import group_names, holds, linear_pattern, named_groups
from assistant.records import Action, Category


class SignatureSource(StrEnum):
    """Where a line stands: how far it can be believed, and about what."""

    JOB = "job"
    """job.log: the output of the job itself."""
    KERNEL = "kernel"
    """dmesg.log: kernel, syslog or console of nodes."""
    SCHEDULER = "scheduler"
    """slurmctld.log."""


class Role(StrEnum):
    """What a line that matches says about the failure."""

    ROOT = "root"
    """The cause itself, where nothing stronger stands earlier."""
    SYMPTOM = "symptom"
    """Names the reason only where no root is found: an NCCL timeout, a bare SIGKILL."""
    CASCADE = "cascade"
    """Follows from another rank's or node's failure."""
    CONFIRMATION = "confirmation"
    """Proves a reason that something else named: an OOM record for a SIGKILL."""
    TEARDOWN = "teardown"
    """Noise of processes that are being ended."""
    BENIGN = "benign"
    """Looks like an error and is none."""
    RECOVERED = "recovered"
    """Says that an earlier trouble is over."""


@dataclass(frozen=True)
class Signature:
    """A pattern of one line that speaks for a reason."""

    id: str
    """`<reason>.<word>`, unique."""
    pattern: str
    examples: tuple[str, ...]
    """Whole lines that it must match; real wordings."""
    role: Role = Role.ROOT
    where: tuple[SignatureSource, ...] = (SignatureSource.JOB,)
    """Kinds of files in which it counts."""
    weight: float = 0.8
    """0..1: how sure the reason is when this line is the earliest root."""
    action: Action | None = None
    """Instead of the reason's own action."""
    versions: str = ""
    """Program and versions that print it, where known."""
    caseless: bool = False
    blames_node: bool = False
    """Whether the host that printed it (or that the group `node` names) is at fault."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight of {self.id} must be above 0 and at most 1, not {self.weight}")


@dataclass(frozen=True)
class Herring:
    """A line that looks like this reason and must not count."""

    id: str
    pattern: str
    why: str
    examples: tuple[str, ...]
    caseless: bool = False


@dataclass(frozen=True)
class Prior:
    """How common and how costly a reason is."""

    source: str
    failures: int | None = None
    """Count in the Acme trace."""
    gpu_time_share: float | None = None
    """0..1 of the GPU time lost to failures."""


@dataclass(frozen=True)
class Reason:
    """One reason of failure: what it means, how it shows, what to do."""

    name: str
    title: str
    category: Category
    meaning: str
    action: Action
    remedy: str
    """What a person should do, in the imperative."""
    confirmation_restart: bool = False
    """Whether one restart is allowed to see if it happens again."""
    persistent: bool | None = None
    """Whether it comes back without a change; None where that needs a test."""
    prior: Prior | None = None
    exceptions: tuple[str, ...] = ()
    """Python exception classes (last part of the name) that mean this reason when nothing better is known."""
    signature: tuple[Signature, ...] = ()
    herring: tuple[Herring, ...] = ()
    undecided: bool = False
    """Whether it names an effect whose cause the case does not show: the summary then ends with the first test."""
    tests: tuple[str, ...] = ()
    """Cheapest checks that would confirm or refute it."""


@cache
def reasons(site: Path | None = None) -> Mapping[str, Reason]:
    """Return every known reason by name.

    Raises:
        ContentError: A file is malformed, is not named after its reason, or uses a signature id twice.
    """
    reasons_by_name: dict[str, Reason] = {}
    ids: dict[str, Path] = {}
    for path in content_files("knowledge/reasons", site):
        reason = build(Reason, read_toml(path), path)
        if reason.name != path.stem:
            raise ContentError(f"{path}:1: name: is {reason.name!r}, but the file is named {path.stem!r}")
        entries: list[Signature | Herring] = [*reason.signature, *reason.herring]
        for entry in entries:
            if entry.id in ids:
                raise ContentError(f"{path}: id {entry.id!r} is used in {ids[entry.id]} already")
            ids[entry.id] = path
        reasons_by_name[reason.name] = reason
    return reasons_by_name


LONGEST = 160
"""Characters of one quoted group."""
SHIPPED = (
    "requests systems interconnects devices builds platforms kubernetes programs codes analysis research distributed "
    "libraries saved frameworks mpi containers scheduler services clients pipelines building simulations starts batch tools "
    "serving models training datasets objects calls values joins tensors files environment storage resources general "
    "machines messages"
).split()
"""Files of knowledge/advice/ in the order in which they are asked; a site has one file, `knowledge/advice.toml`, asked before."""
SLOTS = frozenset(
    "place own code call subject library caller versions successor since import package compiled own_module root path "
    "folder gone saved relative foreign base letters left sign right condition exhausted used_up assertion asserted parsed service "
    "job environment divisor table step method prompt trusted printed installed newer asker inner port_setting training "
    "serving evaluation workers option program refused start temporary unpacked arguments evaluated importer top "
    "more_memory ask_gpus job_record gpus_shown processes text_setting emptied lost outer started_in measured bound module "
    "rows room pairs made bare newer_numpy sharded launched warned port_option missing_on there_on operand handed handed_as "
    "first_argument second_argument application missing_too inside gcc reader cancelled_with beside_code code_folder "
    "recomputed mapped has_it largest nan rate embedding whole nothing outputs linear transposed swapped asked fits collated axes "
    "compare tokenized conversion offline sharing builder architectures gpu_capability since_cuda returned sent_by who_knows "
    "got want service_name address doubled reader_at inner_check checked_at checked_values handed_from "
    "jobs_out one_task forward_at forward_code unsound callee rounded "
    "line_lacks sound text_operand parsed_code fields_of_row unsupported_by module_like "
    "odd_operand even_operand axes_of divisor_printed counted parsed_text run_as absolute_part positions store_port ask_memory "
    "taker taker_library loading loaded_from "
    "unset_inside folder_there file_there older feature python postponed channels gpu_shared full_path undecided_path".split()
)
"""What diagnosis may know of a case beside the words of its lines: see `assistant/diagnose/advice/slots.py`."""
_GROUP = re.compile(r"\{(\w+)\}")
_SECOND_FORM = re.compile(r"_\d$")
"""End of the name of a group that fills another one: `path_2` fills `path` in a second form of the message."""


@dataclass(frozen=True)
class AdviceExample:
    """Lines, the first of which is cited, and what is said about them."""

    lines: tuple[str, ...]
    says: str
    slots: Mapping[str, str] = field(default_factory=dict)
    """What the case knows beside its lines."""


@dataclass(frozen=True)
class Advice:
    """One piece of advice: what to change where a line of a log says so."""

    id: str
    """`<what>.<word>`, unique."""
    reasons: tuple[str, ...]
    """For which it is asked; empty: for any."""
    pattern: str
    """Of a cited line; RE2, with named groups."""
    clauses: tuple[str, ...]
    """Sentences with `{group}` for what is quoted. The first has to be complete, or nothing is said."""
    examples: tuple[AdviceExample, ...]
    variants: tuple[tuple[str, ...], ...] = ()
    """Further sets of clauses; the first set whose first clause can be filled is said, `clauses` before all of them."""
    around: tuple[str, ...] = ()
    """Patterns of lines near the cited one, which fill further groups."""
    caseless: bool = False
    wall: bool = False
    """Whether a restart would meet the same again, so that a person has to change something first."""
    whole: bool = False
    """Whether it says what to do about the run, too, so that the sentence of the action would say something else."""
    quiet: bool = False
    """Whether nothing has to be mended: a start at a moment when what disturbed it is over does."""
    complete: bool = False
    """Whether what stands around the cited line adds nothing to it: an earlier error that it has read, a hint that leads astray."""
    first: bool = False
    """Whether it knows the case better than what is counted of it, and is asked before that."""
    nearby: bool = False
    """Whether the pattern may as well match a line around the cited one."""
    cited: str = ""
    """Pattern that the cited line itself must match, too; empty: any line."""

    @cached_property
    def groups(self) -> frozenset[str]:
        """Names that the entry's own patterns fill."""
        patterns = (self.pattern, self.cited, *self.around)
        return frozenset(_SECOND_FORM.sub("", name) for pattern in patterns for name in group_names(linear_pattern(pattern)))

    def fill(self, cited: str, around: Sequence[str], slots: Mapping[str, str] | None = None) -> str:
        """Return what to change; empty where the cited line does not match or the first clause cannot be filled.

        Args:
            cited: The line of the diagnosis.
            around: Lines of the same failure, nearest first, the cited one among them.
            slots: What the case knows beside its lines; those that are named like a group of the entry are not used.
        """
        if self.cited and self._groups(self.cited, cited) is None:
            return ""
        lines = (cited, *around) if self.nearby else (cited,)
        words = next((groups for line in lines if (groups := self._groups(self.pattern, line)) is not None), None)
        if words is None:
            return ""
        for pattern in self.around:
            more = next((groups for line in around if (groups := self._groups(pattern, line)) is not None), {})
            words = more | words
        words = {name: value for name, value in (slots or {}).items() if name not in self.groups} | words
        clauses = next((each for each in (self.clauses, *self.variants) if each and _names(each[0]) <= words.keys()), ())
        return " ".join(_GROUP.sub(lambda match: words[match[1]], clause) for clause in clauses if _names(clause) <= words.keys())

    def _groups(self, pattern: str, line: str) -> dict[str, str] | None:
        compiled = linear_pattern(pattern, caseless=self.caseless)
        if not holds(compiled, line):
            return None
        groups = {
            _SECOND_FORM.sub("", name): _unquoted(value.strip()) for name, value in named_groups(compiled, line).items() if value
        }
        return {
            name: value if len(value) <= LONGEST else f"{value[: LONGEST // 2]}…{value[-LONGEST // 2 :]}"
            for name, value in groups.items()
            if value and not _ORDERS.search(value)
        }


_ORDERS = re.compile(
    r"(?<![\w.-])(?:rm|curl|wget|sudo|su|scontrol|scancel|sacctmgr|sbatch|chmod|chown|kill|killall|pkill|dd|mkfs[.\w]*|ssh|scp|nc|eval"
    r"|base64|crontab|systemctl|iptables)\s+[\w./~$'\"-]"
    r"|[;&|]\s*(?:\S*/)?(?:bash|sh|zsh|python\d?|perl|rm|curl|wget|sudo)\b|\$\("
    r"|\b(?:LD_PRELOAD|LD_AUDIT|BASH_ENV|PYTHONSTARTUP|PROMPT_COMMAND|GIT_SSH\w*)\b|_PLUGIN\b|=\s*['\"]?/(?:tmp|dev/shm|var/tmp)/"
    r"|\bas root\b"
)
"""Commands that change a system or run what they fetch, and variables by which a program loads the code of others."""
_ADDRESSES = re.compile(r"git\+\w|https?://")


def gives_orders(text: str) -> bool:
    """Tell whether a sentence of a log holds what nobody may be told in our own words: it is quoted as the log's, or left out."""
    return _ORDERS.search(text) is not None or _ADDRESSES.search(text) is not None


def _unquoted(value: str) -> str:
    """Return a value without a quotation mark at one end of it that has no fellow, and without the stop of its sentence."""
    marks = [letter for letter in value if letter in "'\"`"]
    bare = value.strip(marks[0]) if len(marks) == 1 else value
    return bare if bare.endswith("..") else bare.removesuffix(".") or bare


def _names(clause: str) -> set[str]:
    return set(_GROUP.findall(clause))


@cache
def advices(site: Path | None = None) -> tuple[Advice, ...]:
    """Return the site's `knowledge/advice.toml` before the shipped one, in the order in which they are asked.

    Raises:
        ContentError: A file is malformed; the message names file, line and key.
    """
    entries = tuple(entry for name in SHIPPED for entry in _read(knowledge_file(f"advice/{name}.toml")))
    own = site / "knowledge" / "advice.toml" if site is not None else None
    if own is None or not os.path.lexists(own):
        return entries
    return (*_read(knowledge_file("advice.toml", site)), *entries)


@dataclass(frozen=True)
class _File:
    advice: tuple[Advice, ...]


def _read(path: Path) -> tuple[Advice, ...]:
    entries = build(_File, read_toml(path), path).advice
    for entry in entries:
        try:
            groups = entry.groups
        except ContentError as error:
            raise wrong(path, "pattern", f"{entry.id}: {error}") from error
        clauses = [clause for each in (entry.clauses, *entry.variants) for clause in each]
        if not all((entry.clauses, *entry.variants)) or not all(_names(clause) <= groups | SLOTS for clause in clauses):
            raise wrong(path, "clauses", f"{entry.id}: wants at least one, and quotes only groups that its patterns name, or slots")
    return entries
