"""Readers of text and files of others, for bench/fuzz.py. Not a benchmark by itself.

`text_targets` take text: answers of Slurm's commands and of nodes, scripts, questions, turns of a model. `file_targets` take the
path of a file; those of `tests/adversary/test_files.py` are among them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from assistant import display
from assistant.content.devices import limits
from assistant.diagnose.case import Case, numbered
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.kernel import read_kernel
from assistant.diagnose.verdict import diagnose
from assistant.evaluation import files as evaluation_files
from assistant.linear_patterns import linear_pattern, named_groups
from assistant.llm.chat import read_turn
from assistant.llm.gguf import read_gguf
from assistant.logs.compress import compress
from assistant.logs.lines import Line, clean, cut_line
from assistant.logs.metrics import metric_points
from assistant.logs.prefix import parse
from assistant.logs.scan import scan_log
from assistant.logs.tail import typed_search
from assistant.logs.templates import mined
from assistant.nodeset import expand
from assistant.ports import Reply
from assistant.probing import Circumstances
from assistant.records import Job, JobState
from assistant.recover.directives import read_directives
from assistant.redact import redact
from assistant.rules.patterns import Expression
from assistant.schedulers.slurm_completions import finished_rows
from assistant.schedulers.slurm_history import ACCOUNTED_COLUMNS, accounted_rows
from assistant.schedulers.slurm_jobs import QUEUE_COLUMNS, lines_about, nodes_of, queue_rows, waits_for
from assistant.schedulers.slurm_nodes import configuration, node_facts, reservations, switches
from assistant.schedulers.slurm_spec import job_spec, output_pattern, shown_details, typed_submission, without_carried
from assistant.schedulers.slurm_text import Marks, log_path, moment, seconds
from assistant.tools.gpu import activities
from assistant.tools.probes import probes
from assistant.tools.probes._check import judged_by
from assistant.tools.stacks import node_stacks
from assistant.transports.ssh_hosts import read_config
from assistant.transports.ssh_keys import read_known_hosts
from tests.adversary.test_files import READERS

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MARKS = Marks("<f00d>")
JOB = Job("7", "llm", "ada", JobState.FAILED, "gpu", ("node01",), None, Path("/work"), NOON, NOON, NOON, 1, None)
Texts = tuple[Callable[[str], object], tuple[str, ...], tuple[str, ...]]
Files = tuple[Callable[[Path], object], tuple[str, ...], str]


@cache
def _knowledge() -> Knowledge:
    return Knowledge.load(None)


def text_targets() -> dict[str, Texts]:
    """Return (reader, globs of its beginnings, further beginnings) by name."""
    slurm, secrets = ("slurm/**/*.toml",), ("redact/*",)
    queue = MARKS.record_end.join(
        [MARKS.between.join(QUEUE_COLUMNS) + "", "\n" + MARKS.between.join("7" for _ in QUEUE_COLUMNS), "\n"]
    )
    accounted = "".join(f"{MARKS.between.join(row)}\n" for row in (ACCOUNTED_COLUMNS, ["7"] * len(ACCOUNTED_COLUMNS)))
    return {
        "redaction": (redact, secrets, ()),
        "outputs": (_shown, secrets, ()),
        "cut of a line": (lambda text: clean(cut_line(text.encode("utf-8", "replace"))), (), ()),
        "beginning of a line": (parse, (), ()),
        "squeue": (lambda text: queue_rows(text, MARKS), slurm, (queue,)),
        "sacct": (lambda text: accounted_rows(text, MARKS, ACCOUNTED_COLUMNS), slurm, (accounted,)),
        "completion log": (lambda text: finished_rows(text, "7"), slurm, ("JobId=7 Name=x JobState=FAILED ExitCode=1:0 ",)),
        "scontrol show": (_controlled, slurm, ("NodeName=node01 State=IDLE Reason=x [root@2026-01-01T00:00:00]\n",)),
        "a job's specification": (_specified, slurm, ("sbatch --nodes=2 -x 'a[1-3]' job.sh --lr 1\n#SBATCH --output=%5j_%x.log",)),
        "words of Slurm": (
            _words,
            ("slurm/words.toml",),
            ("node[001-016,20]", "afterok:12_3:14?after:9", "2-03:04:05", "%5j_%x-%N"),
        ),
        "log of slurmctld": (lambda text: lines_about(text, JOB), ("diagnose/*/*/slurmctld.log",), ("JobId=7_3 node[01-99]",)),
        "set of nodes": (expand, ("nodeset/*",), ("node[001-016,20]", "a[1-3]b[2-4],c")),
        "directives": (
            read_directives,
            ("directives/*",),
            ("#NIGHTSHIFT checkpoints=/c resume='--load {checkpoint}' restarts=10",),
        ),
        "probes": (_probed, ("probes/*/*.toml",), ()),
        "GPU activity": (activities, ("gpu_activity/*",), ()),
        "stacks of ranks": (lambda text: node_stacks("node01", text), ("stacks/*",), ()),
        "kernel log": (lambda text: read_kernel(numbered(text)), ("probes/kernel_log/*", "diagnose/*/*/dmesg.log"), ()),
        "turn of a model": (
            read_turn,
            (),
            ('{"tool": "x", "args": {"a": [1]}}', '```json\n{"answer": "x"}\n```', "<think>x</think>y"),
        ),
        "patterns of a site": (_compiled, ("rules/*",), (r"^(?P<a>\w+): [0-9]{3,} \[.*\]$",)),
        "metrics of a log": (lambda text: metric_points([Line(1, line) for line in text.split("\n")]), (), ()),
        "templates": (lambda text: mined(text.split("\n")), (), ()),
    }


def file_targets() -> dict[str, Files]:
    """Return (reader, globs of its beginnings, name of the file) by name."""
    readers: dict[str, Files] = {f"file: {name}": (read, (), "job.log") for name, read in READERS.items()}
    return readers | {
        "diagnosis": (lambda path: diagnose(Case("fuzz", path), _knowledge()), (), "job.log"),
        "compression": (lambda path: compress(scan_log(path, _knowledge().patterns), 4_000), (), "job.log"),
        "ssh_config": (lambda path: read_config(path, home=path.parent, folder=path.parent), ("ssh/*",), "config"),
        "known_hosts": (read_known_hosts, ("ssh/*",), "known_hosts"),
        "gguf": (read_gguf, ("../models/*",), "model.gguf"),
        "evaluation record": (lambda path: list(evaluation_files.records(path)), ("evaluation/*",), "records.jsonl"),
        "evaluation file": (evaluation_files.read_json, ("evaluation/*",), "report.json"),
    }


def _shown(text: str) -> None:
    outputs: tuple[Callable[[str], object], ...] = (
        *(display.line, display.block, display.unambiguous, display.json_text, display.notice_line, display.removed),
        *(display.markdown, display.markdown_code, display.markdown_fence, display.markdown_tamed, display.file_stem),
    )
    for show in outputs:
        show(text)
    display.prompt_data(text, text)
    display.shell_words([text])


def _controlled(text: str) -> None:
    node_facts(text)
    reservations(text)
    switches(text)
    configuration(text)


def _specified(text: str) -> None:
    line, _, script = text.partition("\n")
    details = shown_details(line, "llm")
    typed = typed_submission(JOB, script, line, command=script, environment={})
    output_pattern(typed, script)
    without_carried(script)
    job_spec(JOB, details, script, pattern=line, typed=typed, environment={})


def _words(text: str) -> None:
    moment(text)
    seconds(text)
    nodes_of(text)
    waits_for(text, "7")
    log_path(text, raw_id="7", job_id="7_3", name=text, user="ada", node="node01")


def _probed(text: str) -> None:
    circumstances = Circumstances(limits(), NOON, NOON, busy=True)
    reply = Reply("node01", True, 0, text, "")
    for probe in probes():
        judged_by(probe, reply, circumstances)
        if probe.counts is not None:
            probe.counts(reply, circumstances)


def _compiled(text: str) -> None:
    Expression("fuzz", text, False)
    typed_search(text[:200], caseless=True)(b"a1 " * 1_000)
    named_groups(linear_pattern(text[:200]), "a1 " * 1_000)
