"""What a batch script does with its arguments, also with those that were not given: read as bash reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assistant.recover.batch_script import launches_of
from assistant.recover.shell.folders import UNRESOLVED
from assistant.schedulers.slurm_typed import read_line

SCRIPTS = (
    'ARGS="--a b"\nif [ -n "$1" ]; then\n  ARGS="$ARGS --resume $1"\nfi\nrun $ARGS',
    'ARGS="--a b"\n[ -n "${1:-}" ] && ARGS="$ARGS --resume $1"\nrun $ARGS',
    '[ -z "$1" ] || run again "$1"\n[ -z "$1" ] && run first',
    'if [ $# -gt 0 ]; then run "$@"; else run --fresh; fi',
    'if [ $# -eq 0 ]\nthen run none\nelif [ "$#" = 1 ]\nthen run one "$1"\nelse run many "$@"\nfi',
    'if [ "$1" = resume ]; then run --resume; else run --scratch; fi',
    'if [[ -n $1 ]]; then run --load "$1"; else run --scratch; fi',
    'case "$1" in resume) run --resume;; "") run --scratch;; *) run --load "$1";; esac',
    "CKPT=${1:-none}\nSTEPS=${2:-40}\nrun --load $CKPT --steps $STEPS",
    'MODE=$1; shift\nrun --mode "$MODE" "$@"',
    'go() { if [ -n "$2" ]; then run "$1" "$2"; else run "$1"; fi; }\ngo x\ngo x y',
    'set -- a b\n[ -n "$3" ] && run three\nrun "$2"',
)
ARGUMENTS: tuple[tuple[str, ...], ...] = ((), ("resume",), ("out/checkpoint-30",), ("a", "b"), ("", "x"))


def of_bash(script: str, arguments: tuple[str, ...]) -> list[str]:
    text = "run() { printf '%s|' \"$@\"; echo; }\n" + script
    return subprocess.run(
        ["/bin/bash", "-c", text, "job", *arguments], capture_output=True, text=True, check=False
    ).stdout.splitlines()


def of_reader(script: str, arguments: tuple[str, ...] | None) -> list[str]:
    launches = launches_of(f"#!/bin/bash\n{script}\n", environment={}, work_dir="/w", arguments=arguments, read=lambda _: None)
    return ["".join(f"{word}|" for word in launch.words[1:]) for launch in launches if launch.words[0] == "run"]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_does_with_its_arguments_what_bash_does(script: str, arguments: tuple[str, ...]) -> None:
    assert of_reader(script, arguments) == of_bash(script, arguments)


@pytest.mark.parametrize("script", SCRIPTS[:4])
def test_arguments_that_nobody_knows_leave_it_open(script: str) -> None:
    lines = of_reader(script, None)
    assert len(lines) > 1 or UNRESOLVED in lines[0]


def test_a_variable_of_the_submission_that_is_not_known_is_not_taken_for_empty() -> None:
    lines = of_reader('ARGS="--a"\nif [ -n "$RESUME" ]; then ARGS="$ARGS --load $RESUME"; fi\nrun $ARGS', ())
    assert UNRESOLVED in lines[0]


@pytest.mark.parametrize(
    ("script", "doubtful"), [('run "$1"\n', True), ("run ${@}\n", True), ("run a\n", False), (r"run \$1" + "\n", False)]
)
def test_a_job_whose_arguments_were_not_kept_is_not_submitted_again_where_its_script_takes_some(
    script: str, doubtful: bool
) -> None:
    typed = read_line("", command=None, script=f"#!/bin/bash\n{script}", fields={})
    assert bool(typed.doubt) is doubtful
    assert not read_line("", command=f"{Path('/w/run.sh')} x", script=f"#!/bin/bash\n{script}", fields={}).doubt
