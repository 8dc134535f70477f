"""Scripts of several programs: stages after one another, parts of a heterogeneous job, and programs side by side. Pure.

Programs that save into different folders are different stages (fine-tune, then align). A restart runs the whole script again: a
stage that is finished must be passed over by a test of a file, or go on from its own last checkpoint, else it trains again over
what it has saved.

Of programs side by side the one that writes the checkpoints decides. One that is read to write none may follow the same `latest`
for its weights: it neither makes unknown how the job goes on nor proves it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.records import JobState, JobStep
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.load_calls import SAVES
from assistant.recover.source.load_proof import foreign_library

LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec"))
_FRAME = re.compile(r'^.{0,200}?\s*File "([^"]{1,1000})", line \d+')


@dataclass(frozen=True, slots=True)
class Stage:
    """One training of a script."""

    programs: tuple[JobProgram, ...]
    """Those that save into its folder: one started in two ways counts twice."""
    folder: Path
    """The surest folder that it saves into."""
    held: int = 0
    """Checkpoints that lie there."""
    written: bool = False
    """Whether the attempt has written some of them."""
    problem: str = ""
    """Why what lies there is not known, or why the newest must not be loaded; empty where neither holds."""
    runs: bool = True
    """Whether the script would run it if it were started now."""

    @property
    def name(self) -> str:
        """Its program and its folder, for people."""
        return f"{self.programs[-1].name} ({self.folder.name})"

    @property
    def launched(self) -> bool:
        """Whether a launcher of many ranks starts it, or its source shows a call that saves."""
        words = (PurePosixPath(word).name for program in self.programs for word in program.launch.words[:12])
        return not LAUNCHERS.isdisjoint(words) or any(
            call.method.startswith("save") for program in self.programs for call in program.calls
        )

    @property
    def guarded(self) -> bool:
        """Whether tests of files decide each time if it is run."""
        return all(program.launch.guarded for program in self.programs)


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a script and where the attempt failed."""

    stages: tuple[Stage, ...]
    """In the order in which the script runs them."""
    failed: int | None = None
    """Which one it failed in, from 0; None where that is not known."""
    how: str = ""
    """How that is known, or why it is not, for people."""

    @property
    def resumed(self) -> int | None:
        """The stage whose checkpoint a restart loads: the one that failed, else one before it that it would run again first."""
        if self.failed is None or self.stages[self.failed].held:
            return self.failed
        before = [place for place in range(self.failed) if self.stages[place].runs and self.stages[place].held]
        return before[-1] if before else self.failed

    @property
    def sentence(self) -> str:
        """Which stage failed, for people."""
        names = ", ".join(stage.name for stage in self.stages)
        if self.failed is None:
            return f"its script trains in {len(self.stages)} stages, {names}, and which of them failed is not known: {self.how}"
        return f"it failed in stage {self.failed + 1} of {len(self.stages)}, {self.stages[self.failed].name}: {self.how}"


class FailedStage(NamedTuple):
    """Which stage failed, and how that is known."""

    place: int | None
    how: str


def stages_of(programs: Sequence[JobProgram]) -> tuple[Stage, ...]:
    """Return the stages of a script in order: programs with a folder of their own; fewer than two are no pipeline."""
    stages: list[Stage] = []
    for program in programs:
        folders = [folder.folder for folder in save_folders([program])]
        if not folders:
            continue
        same = next((place for place, stage in enumerate(stages) if stage.folder in folders), None)
        if same is None:
            stages.append(Stage((program,), folders[0]))
        else:
            stages[same] = replace(stages[same], programs=(*stages[same].programs, program))
    return tuple(stages)


def running_now(stages: Sequence[Stage], programs: Sequence[JobProgram]) -> tuple[Stage, ...]:
    """Return the stages with what the script would run if it were started now.

    Args:
        stages: From `stages_of`.
        programs: From `programs_now`.
    """
    folders = {stage.folder: stage.programs for stage in stages_of(programs)}
    return tuple(
        replace(stage, runs=stage.folder in folders, programs=folders.get(stage.folder, stage.programs)) for stage in stages
    )


def failed_stage(stages: Sequence[Stage], texts: Sequence[str], steps: Sequence[JobStep] = ()) -> FailedStage:
    """Return the stage that an attempt failed in: by the one step that did not end well, its last traceback, or what it wrote.

    Args:
        stages: With what lies in their folders.
        texts: The log of the attempt, in order.
        steps: Of the attempt, as the scheduler keeps them.
    """
    bad = [step for step in steps if step.state.ended and step.state is not JobState.COMPLETED]
    # a step of a heterogeneous job is counted in each part
    if len({step.id.rpartition(".")[2] for step in bad}) == 1 and (by_step := _started_by(stages, bad[0])) is not None:
        code = f"exit code {bad[0].exit_code}" if bad[0].exit_code else f"signal {bad[0].signal}" if bad[0].signal else ""
        return FailedStage(by_step, f"of its steps {bad[0].id} alone did not end well ({code or bad[0].state}): {bad[0].command}")
    raised, file = _raised_in(stages, texts)
    written = max((place for place, stage in enumerate(stages) if stage.written), default=None)
    if raised is not None and written is not None and raised < written:
        return FailedStage(
            None, f"its last traceback is of {stages[raised].name}, and {stages[written].name} has saved since it began"
        )
    if raised is not None:
        return FailedStage(raised, f"its last traceback is of {file}")
    if written is not None:
        if stages[written].runs:
            return FailedStage(written, f"the last that saved into {stages[written].folder}")
        later = next((place for place in range(written + 1, len(stages)) if stages[place].runs), None)
        finished_words = f"{stages[written].name} is finished: its script would pass over it now"
        return FailedStage(later if later is not None else written, finished_words)
    places_with_saves = [place for place, stage in enumerate(stages) if stage.held or stage.problem]
    if len(places_with_saves) > 1:
        return FailedStage(None, "none has saved since the job began, and several hold checkpoints")
    running = [place for place, stage in enumerate(stages) if stage.runs]
    first = next((place for place in running if stages[place].launched), running[0] if running else 0)
    place = places_with_saves[0] if places_with_saves else first
    return FailedStage(place, "none of the others holds a checkpoint" if places_with_saves else "no stage has saved anything")


def _started_by(stages: Sequence[Stage], step: JobStep) -> int | None:
    """Return the stage whose program and folder the line of a step names; None where that is none, or more than one."""
    paths = [PurePosixPath(part) for word in step.command.split() for part in (word, word.partition("=")[2]) if part]
    names = {path.name for path in paths}
    matching_stages = [
        place
        for place, stage in enumerate(stages)
        if any(PurePosixPath(program.launch.program).name in names for program in stage.programs if program.launch.program)
    ]
    if len(matching_stages) > 1:  # one program trains them all
        matching_stages = [
            place for place in matching_stages if stages[place].folder.name in {name for path in paths for name in path.parts}
        ]
    return matching_stages[0] if len(matching_stages) == 1 else None


def _raised_in(stages: Sequence[Stage], texts: Sequence[str]) -> tuple[int | None, str]:
    """Return the stage whose program the last traceback names that names one, and the program's file."""
    names: dict[str, set[int]] = {}
    for place, stage in enumerate(stages):
        for program in stage.programs:
            if program.launch.program.endswith(".py"):
                names.setdefault(PurePosixPath(program.launch.program).name, set()).add(place)
    for text in reversed(texts):
        match = _FRAME.match(text) if len(text) < 2000 else None
        places = names.get(PurePosixPath(match[1]).name, set()) if match is not None else set()
        if match is not None and len(places) == 1:
            return next(iter(places)), PurePosixPath(match[1]).name
    return None, ""


def behind_training(programs: Sequence[JobProgram], folder: Path) -> tuple[str, ...]:
    """Return the names of the programs that a script starts behind the one that trains: what failed may be one of them.

    Args:
        programs: From `programs_of`.
        folder: Where the training saved.
    """
    around = (folder, *folder.parents)
    saves = [any(folder.folder in around for folder in save_folders([program])) for program in programs]
    first = saves.index(True) if True in saves else len(programs)
    return tuple(dict.fromkeys(program.name for program in programs[first + 1 :] if program.name != programs[first].name))


def without_saves_of(texts: Sequence[str], other_stages: Sequence[Stage]) -> list[str]:
    """Return the lines of a log that name no folder of other stages: those tell of their saves."""
    names = [re.compile(rf"(?:^|[\s'\"=:/(\[]){re.escape(stage.folder.name)}(?:[/'\"\s,;:)\]]|$)") for stage in other_stages]
    return [text for text in texts if not any(name.search(text) for name in names)]


OPEN_OR_NONE = (ResumeMeans.NONE, ResumeMeans.UNKNOWN)


def deciding_way(ways: Sequence[ResumeWay], programs: Sequence[JobProgram]) -> ResumeWay | None:
    """Return the way of the program that decides how a script goes on; None where no program of it is known to resume.

    Args:
        ways: How each program goes on, the one that starts last first.
        programs: In the same order.

    Returns:
        UNKNOWN where only programs that write nothing are known to resume, and of one that may write it is not known.
    """
    pairs = list(zip(ways, programs, strict=True))
    resuming = [(way, program) for way, program in pairs if way.means not in OPEN_OR_NONE]
    if len(pairs) < 2 or not resuming:
        return resuming[0][0] if resuming else None
    writers = [way for way, program in resuming if not only_reads(program)]
    if writers:
        return writers[0]
    undecided = (way for way, program in pairs if way.means is ResumeMeans.UNKNOWN and not only_reads(program))
    return next(undecided, resuming[0][0])


def only_reads(program: JobProgram) -> bool:
    """Tell whether a program is read to write no state, with all that it imports."""
    if not program.sources or program.starts_others or not all(source.parsed for source in program.sources):
        return False
    if any(True for source in program.sources for _ in source.called(*SAVES)) or foreign_library(program):
        return False
    return not file_uses(program).saves


def begins_anew(ways: Sequence[ResumeWay], programs: Sequence[JobProgram]) -> ResumeWay | None:
    """Return that a script of which one program resumes starts another that saves and does not, or the same without its option.

    Args: as `deciding_way`.
    """
    pairs = list(zip(ways, programs, strict=True))
    resuming = {program.name for way, program in pairs if way.means not in OPEN_OR_NONE}
    for way, program in pairs:
        if way.means is not ResumeMeans.NONE:
            continue
        if program.name in resuming:
            return ResumeWay(ResumeMeans.UNKNOWN, f"its script starts {program.name} in two ways, of which one begins at the start")
        unread = not any(source.parsed for source in program.sources)
        if any(True for source in program.sources for _ in source.called(*SAVES)) or (unread and save_folders([program])):
            return ResumeWay(ResumeMeans.UNKNOWN, f"its script also starts {program.name}, which saves and begins at the start")
    return None
