"""What a job says about itself: the `#NIGHTSHIFT` lines of its batch script.

    #NIGHTSHIFT checkpoints=/ckpt/run7 format=megatron
    #NIGHTSHIFT resume="--load {checkpoint} --ckpt-step {step}"  skip="--skip-samples {from}:{to}"
    #NIGHTSHIFT resumes=newest
    #NIGHTSHIFT restarts=10 act=auto owner=#llm-7b-oncall

A script belongs to its user, so a mistake in it is reported and never stops anything else.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from assistant.errors import MalformedContent
from assistant.records import Job
from assistant.recover.checkpoints.layout import Format
from assistant.untrusted import whole_number

LINE = re.compile(r"^\s*+#\s?NIGHTSHIFT\b[ \t:]*+(.*)$")
PLACEHOLDERS = {"resume": {"checkpoint", "step"}, "skip": {"from", "to", "from_step", "to_step"}}
ACT = ("auto", "ask", "never")
FORMATS = tuple(form for form in Format if form not in (Format.EPOCHS, Format.SAVES))
"""What a script may say; that a file tells only its epoch is found out."""
RESUMES = ("newest", "tracker", "no")


@dataclass(frozen=True, slots=True)
class Directives:
    """What the script says; empty and None where it says nothing."""

    checkpoints: str = ""
    """Folder; relative to the job's working folder."""
    format: str = ""
    resume: str = ""
    """Arguments for a restart, with `{checkpoint}` and `{step}`."""
    resumes: str = ""
    """How the script resumes by itself: `newest`, `tracker`, or `no`; empty: told from the script and its programs."""
    skip: str = ""
    """Arguments that skip data, with `{from}` and `{to}` in samples, or `{from_step}` and `{to_step}`."""
    restarts: int | None = None
    """How many restarts for one root cause, at most; the playbook's limit counts where it is smaller."""
    act: str = ""
    """`auto`: the owner agrees to restarts by policy and wants the run to chain; `ask`; `never`."""
    owner: str = ""
    """Whom to tell."""
    heartbeat: str = ""
    """File that the training loop replaces at each step; the watch reads it."""
    logs: tuple[str, ...] = ()
    """Files that the job logs into, separated by commas; `%j`, `%x`, `%t` and variables as in `srun --output`."""
    problems: tuple[str, ...] = ()
    """What could not be understood, with the line of the script."""


def read_directives(script: str) -> Directives:
    """Return what the `#NIGHTSHIFT` lines of a script say; the last word on a key counts."""
    said = Directives()
    problems: list[str] = []
    for number, line in enumerate(script.splitlines(), 1):
        match = LINE.match(line)
        if match is None:
            continue
        try:
            words = shlex.split(match.group(1), comments=False)
        except ValueError as error:
            problems.append(f"line {number}: {error}: {match.group(1).strip()}")
            continue
        for word in words:
            key, equals, value = word.partition("=")
            problem = f"{word!r} is not key=value" if not equals else ""
            if not problem:
                found = _value(key, value)
                problem = found if isinstance(found, str) else ""
                said = said if isinstance(found, str) else found(said)
            if problem:
                problems.append(f"line {number}: {problem}")
    return replace(said, problems=tuple(problems))


def _value(key: str, value: str) -> str | Callable[[Directives], Directives]:
    """Return how to write a value down, or what is wrong with it."""
    if key == "restarts":
        try:
            number = whole_number(value)
        except MalformedContent:
            number = -1
        if number < 0:
            return f"restarts must be a number, not {value[:40]!r}"
        return lambda said: replace(said, restarts=number)
    if key == "logs":
        paths = tuple(path for path in value.split(",") if path)
        return (lambda said: replace(said, logs=paths)) if paths else "logs must name at least one file"
    if key == "act" and value not in ACT:
        return f"act must be one of {', '.join(ACT)}, not {value!r}"
    if key == "resumes" and value not in RESUMES:
        return f"resumes must be one of {', '.join(RESUMES)}, not {value!r}"
    if key == "format" and value not in FORMATS:
        return f"format {value!r} is unknown; known: {', '.join(FORMATS)}"
    if key in PLACEHOLDERS:
        unknown = set(re.findall(r"\{([^{}]*)\}", value)) - PLACEHOLDERS[key]
        if unknown:
            return f"{key} knows {{{'}, {'.join(sorted(PLACEHOLDERS[key]))}}}, not {{{sorted(unknown)[0]}}}"
    elif key not in ("checkpoints", "act", "format", "owner", "heartbeat", "resumes"):
        known = ["checkpoints", "format", "resume", "resumes", "skip", "restarts", "act", "owner", "heartbeat", "logs"]
        near = difflib.get_close_matches(key, known, n=1)
        return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
    return lambda said: replace(said, **{key: value})  # type: ignore[arg-type]


def directives_of(job: Job | None) -> Directives:
    """Return what the script of a job says to Nightshift; nothing where the scheduler keeps no script."""
    return read_directives(job.spec.script) if job is not None and job.spec is not None else Directives()
