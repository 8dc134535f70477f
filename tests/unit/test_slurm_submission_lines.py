"""Lines of submissions whose quotes Slurm lost: what comes back of them, and what is not guessed. Cases: strange.toml."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.records import JobSpec
from assistant.schedulers.slurm_spec import sbatch_words, with_carried
from assistant.schedulers.slurm_specs import (
    accounted_differences,
    record_differences,
    script_differences,
    shown_record,
    unopened_outputs,
)
from assistant.schedulers.slurm_typed import WRAPPED, read_line

CASES = Path(__file__).parents[1] / "cases" / "slurm" / "submissions" / "strange.toml"
STRANGE = tomllib.loads(CASES.read_text(encoding="utf-8"))["case"]
USES = {
    "all": 'srun python train.py "$@"',
    "plain": "srun python train.py $@",
    "none": "srun python train.py",
    "numbers": 'srun python train.py --name "$1" --lr $2',
    "star": 'srun echo "$*"',
}
FREE = {"-J": "job-name", "--job-name": "job-name", "--comment": "comment", "--chdir": "chdir"}


def typed_by(case: dict[str, Any]) -> tuple[str, str | None, str, dict[str, str]]:
    """Return what Slurm would keep of a case: its line, its `Command=`, its script, and the fields that hold free text."""
    words = ["/w/train.sh" if word == "@" else word for word in case["typed"]]
    script = f"#!/bin/bash\n{USES.get(case.get('script', 'all'), '')}\n"
    if case.get("script") == "python":
        script = "#!/usr/bin/env python3\nimport argparse\n"
    fields = {f"export {name}": text for name, text in case.get("environment", {}).items()}
    wrapped = None
    for place, word in enumerate(words):
        name, equals, text = word.partition("=")
        if name in FREE:
            fields[FREE[name]] = text if equals else words[place + 1]
        elif word.startswith("-J"):
            fields["job-name"] = word[2:]
        if wrapped is None and name in ("--wrap", "--wra"):
            wrapped = text if equals else words[place + 1]
    command = case.get("command", " ".join(words[words.index("/w/train.sh") :]) if "/w/train.sh" in words else "")
    if wrapped is not None:
        script, command = f"{WRAPPED}{wrapped}\n", ""
    return " ".join(["sbatch", *words]), None if case.get("forgotten") else command, script, fields


@pytest.mark.parametrize(
    "case", [pytest.param(one, id=f"{number} {' '.join(one['typed'])[:60]!r}") for number, one in enumerate(STRANGE)]
)
def test_a_submission_comes_back_word_by_word_or_with_a_doubt(case: dict[str, Any]) -> None:
    line, command, script, fields = typed_by(case)
    found = read_line(line, command=command, script=script, fields=fields)
    assert bool(found.doubt) == bool(case.get("doubt"))
    assert case.get("doubt", "") in found.doubt
    if not case.get("doubt"):
        assert (list(found.options or ()), list(found.arguments)) == (case["options"], case.get("arguments", []))


@pytest.mark.parametrize("case", [pytest.param(one, id=" ".join(one["typed"])[:60]) for one in STRANGE if not one.get("doubt")])
def test_what_came_back_comes_back_again_after_another_submission(case: dict[str, Any]) -> None:
    line, command, script, fields = typed_by(case)
    first = read_line(line, command=command, script=script, fields=fields)
    spec = JobSpec("run", script, options=first.options or (), arguments=first.arguments, comment="own words")
    words = ["sbatch", *sbatch_words(spec), *(["/tmp/x.sbatch", *spec.arguments] if spec.arguments else [])]
    own = {"job-name": "run", "comment": "own words", **{key: text for key, text in fields.items() if key.startswith("export ")}}
    again = " ".join(["/tmp/x.sbatch", *spec.arguments]) if spec.arguments else ""
    second = read_line(" ".join(words), command=again, script=with_carried(script.replace(WRAPPED, "#!/bin/sh\n"), {}), fields=own)
    exports = [word for word in first.options or () if not word.startswith("--export")]
    assert [word for word in second.options or () if not word.startswith(("--export", "--get-user-env"))] == [
        word for word in exports if not word.startswith("--get-user-env")
    ]
    assert (second.arguments, second.doubt) == (first.arguments, "")


ENDED = (
    "JobId=25 JobName=llm UserId=bob(2001) GroupId=bob(2001) MCS_label=N/A Priority=1 Nice=0 Account=llm QOS=normal "
    "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0 "
    "TimeLimit=365-00:00:00 TimeMin=N/A StartTime=2026-11-22T21:40:57 AllocNode:Sid=ctl:3706 ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList=gpu001 BatchHost=gpu001 NumNodes=1 NumCPUs=256 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=256,mem=1G,node=1 "
    "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryCPU=7800M Features=(null) OverSubscribe=NO "
    "Contiguous=0 Command=/w/a.sh --note NumTasks=9 WorkDir=/w Comment=my NumNodes=7 words StdErr=/w/slurm-25.out StdIn=/dev/null "
    "StdOut=/w/slurm-25.out Power= TresPerNode=gres:gpu:2"
)
HELD = (
    ENDED.replace("JobId=25", "JobId=31").replace("FAILED Reason=NonZeroExitCode", "PENDING Reason=JobHeldUser")
    .replace("NodeList=gpu001 BatchHost=gpu001 NumNodes=1 NumCPUs=256", "NodeList= NumNodes=1-1 NumCPUs=2")
    .replace("TRES=cpu=256,mem=1G,node=1", "TRES=cpu=2,mem=2G,node=1").replace("365-00:00:00", "UNLIMITED")
    .replace("slurm-25", "slurm-31").replace("/w/a.sh --note", "/tmp/nightshift-x.sbatch --note")
    .replace("my NumNodes=7 words", "my NumNodes=7 words nightshift:scene00001:1:2")
    .replace("ExcNodeList=(null)", "ExcNodeList=gpu[003-004]")
)  # fmt: skip
SPEC = JobSpec("llm", "#!/bin/sh\n", exclude=("gpu003", "gpu004"))


def compared(held: str, command: str = "/tmp/nightshift-x.sbatch --note NumTasks=9") -> list[str]:
    comment = "my NumNodes=7 words"
    before = shown_record(ENDED, {"JobName": "llm", "Command": "/w/a.sh --note NumTasks=9", "Comment": comment})
    texts = {"JobName": "llm", "Command": command, "Comment": f"{comment} nightshift:scene00001:1:2"}
    return record_differences(before, shown_record(held, texts), SPEC, ids=(("25",), ("31",)))


def test_a_held_job_that_asks_for_the_same_has_no_difference() -> None:
    assert compared(HELD) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("NumTasks=2", "NumTasks=6", "NumTasks is 6 and was 2"),
        ("NumNodes=1-1", "NumNodes=2-4", "NumNodes is 2-4 and was 1"),
        ("CPUs/Task=1", "CPUs/Task=4", "CPUs/Task is 4 and was 1"),
        ("TimeLimit=UNLIMITED", "TimeLimit=00:05:00", "TimeLimit is 00:05:00 and was UNLIMITED"),
        ("Features=(null)", "Features=h100", "Features is h100 and was nothing"),
        ("OverSubscribe=NO", "OverSubscribe=OK", "OverSubscribe is OK and was NO"),
        ("MinMemoryCPU=7800M", "MinMemoryNode=1G", "MinMemoryCPU is nothing and was 7800M"),
        (" TresPerNode=gres:gpu:2", "", "TresPerNode is nothing and was gres:gpu:2"),
        ("QOS=normal", "QOS=high", "QOS is high and was normal"),
        ("Requeue=1", "Requeue=0", "Requeue is 0 and was 1"),
        ("StdErr=/w/slurm-31.out", "StdErr=/w/other.err", "StdErr is /w/other.err and was /w/slurm-25.out"),
        ("ExcNodeList=gpu[003-004]", "ExcNodeList=(null)", "the nodes to stay away from are none, not gpu003,gpu004"),
        ("StdErr=/w/slurm-31.out", "StdErr=/w/slurm-32.out", "StdErr is /w/slurm-32.out and was /w/slurm-25.out"),
        ("Power=", "Power= FutureKey=1", "FutureKey is 1 and was nothing"),
    ],
)
def test_a_held_job_that_differs_is_told_by_what(old: str, new: str, said: str) -> None:
    assert old in HELD
    assert said in compared(HELD.replace(old, new, 1))


def test_a_number_in_a_folder_that_is_the_id_of_a_job_by_chance_is_no_difference() -> None:
    before = {"StdOut": "/w/v25x31/slurm-25.out"}
    assert record_differences(before, {"StdOut": "/w/v25x31/slurm-31.out"}, JobSpec("a", ""), ids=(("25",), ("31",))) == []


def test_arguments_of_a_held_job_are_compared_as_slurm_shows_them() -> None:
    held = HELD.replace("--note NumTasks=9", "--note", 1)
    assert "the script's arguments are '--note' and were '--note NumTasks=9'" in compared(held, "/tmp/nightshift-x.sbatch --note")


def test_a_script_may_differ_by_the_place_for_its_checkpoint_alone() -> None:
    before, sent = "#!/bin/sh\nsrun a\n", "#!/bin/sh\n#NIGHTSHIFT_ENVIRONMENT {}\nsrun a ${NIGHTSHIFT_ARGS:-}\n"
    assert script_differences(before, sent, sent) == []
    assert script_differences(before, sent + "\n", sent) == ["its script is not the one that was handed to sbatch"]
    other = sent.replace("srun a", "srun b")
    assert script_differences(before, other, other) == ["its script is another one than before"]


def test_a_forgotten_job_is_compared_by_what_the_accounting_keeps() -> None:
    row = {"Partition": "train", "ReqTRES": "cpu=2", "Timelimit": "UNLIMITED"}
    assert accounted_differences(row, row) == []
    assert accounted_differences(row, {**row, "ReqTRES": "cpu=6"}) == ["ReqTRES is cpu=6 and was cpu=2"]


def test_wanted_nodes_of_which_one_is_left_out_may_be_given_up() -> None:
    before = shown_record(ENDED.replace("ReqNodeList=(null)", "ReqNodeList=gpu[003-005]"), {"Command": "/w/a.sh --note NumTasks=9"})
    after = {**before, "ReqNodeList": "(null)", "ExcNodeList": "gpu[003-004]"}
    assert record_differences(before, after, SPEC, ids=(("25",), ("25",))) == []
    other = record_differences(before, after, replace(SPEC, exclude=("gpu001",)), ids=(("25",), ("25",)))
    assert "ReqNodeList is nothing and was gpu[003-005]" in other


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"StdOut": "/w/logs/31/out.log", "StdErr": "/w/logs/31/out.log"}, ["/w/logs/31"]),
        ({"StdOut": "/w/slurm-31.out", "StdErr": "/w/err/31/e"}, ["/w/err/31"]),
        ({"StdOut": "/w/slurm-31.out", "StdErr": "/w/slurm-31.out"}, []),
        ({"StdOut": "/dev/null"}, []),
        ({"StdOut": "/w/logs/%j/out.log"}, []),  # what Slurm makes of it is not known
        ({}, []),
    ],
)
def test_a_folder_that_slurm_would_not_make_is_told_before_a_job_starts(record: dict[str, str], named: list[str]) -> None:
    there = {"/w", "/dev"}
    problems = unopened_outputs(None, record, lambda folder: folder not in there, ids=(("30",), ("31",)), account="ada")
    assert [problem.split(",")[0].removeprefix("its output would go into ") for problem in problems] == named


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {"StdOut": "/w/slurm/30/x.log", "ExitCode": "0:15"},
            {"StdOut": "/w/slurm/31/x.log"},
            [
                "whoever submitted job 30 made /w/slurm/30",
                '`id=$(sbatch --hold --parsable SCRIPT) && mkdir -p "/w/slurm/$id" && scontrol release $id`',
            ],
        ),
        (
            {"StdOut": "/w/old logs/x-30.log", "ExitCode": "1:0"},
            {"StdOut": "/w/old logs/x-31.log"},
            ["it was there when job 30 began", "`mkdir -p '/w/old logs'` as ada"],
        ),
        ({"StdOut": "/w/logs/x.log", "ExitCode": "0:53"}, {"StdOut": "/w/logs/x.log"}, ["0:53; `mkdir -p /w/logs` as ada"]),
    ],
    ids=["a folder for each job, made at its submission", "one that is gone since", "one that never was there"],
)
def test_the_command_is_named_that_makes_the_missing_folder_of_an_output(
    before: dict[str, str], after: dict[str, str], words: list[str]
) -> None:
    (problem,) = unopened_outputs(before, after, lambda _: True, ids=(("30",), ("31",)), account="ada")
    assert [part for part in words if part not in problem] == []
