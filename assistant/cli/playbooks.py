"""`nightshift playbooks`: the procedures, and a try of their fixtures where nothing happens.

A fixture with a cluster is played by the whole engine: only the cluster is simulated, and time jumps.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Json, app, examples, invocation_of, one_of
from assistant.cli.output import Exit, print_json, print_line, print_pairs, print_record, print_table
from assistant.config import Settings, WatchSettings
from assistant.content.playbooks import ClusterFixture, Fixture, Happening, Playbook, choose_playbook, playbooks
from assistant.engine.dry_runs import silent_log
from assistant.errors import Unavailable
from assistant.policy import Mode, load_policy
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobSpec
from assistant.recover.directives import read_directives
from assistant.recover.launch_arguments import STEP
from assistant.recover.playbook import STATES
from assistant.recover.restart import SKIP_STEPS
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.wiring import build

if TYPE_CHECKING:
    from assistant.content.playbooks import Fixture, Playbook, Step, Verify
    from assistant.diagnose.knowledge import Knowledge
    from assistant.recover.rehearsal import Rehearsal


playbooks_app = app(help="List, show and try playbooks.", no_args_is_help=True)


def _playbooks(context: typer.Context) -> Mapping[str, Playbook]:
    from assistant.content.playbooks import playbooks

    return playbooks(invocation_of(context).site)


def _names(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _playbooks(context) if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the playbook.", autocompletion=_names)]


@playbooks_app.command("list", epilog=examples("nightshift playbooks list", "nightshift playbooks list --json"))
def list_playbooks(context: typer.Context, as_json: Json = False) -> None:
    """List the playbooks: name, what they handle, how they end, title."""
    books = _playbooks(context).values()
    if as_json:
        for book in books:
            print_json(
                {"name": book.name, "title": book.title, "handles": list(book.handles), "ends": book.ends, "shipped": book.shipped}
            )
        return
    rows = [(book.name, ",".join(book.handles), book.ends, "shipped" if book.shipped else "site", book.title) for book in books]
    print_table(("name", "handles", "ends", "from", "title"), rows)


@playbooks_app.command("show", epilog=examples("nightshift playbooks show ecc_error", "nightshift playbooks show ecc_error --json"))
def show_playbook(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a playbook step by step, with why each is taken."""
    book = one_of(name, _playbooks(context), "playbook", "nightshift playbooks list")
    if as_json:
        print_record(book)
        return
    limits = f"{book.limits.attempts} restarts within {book.limits.within_h:g} h" if book.restarts else "restarts nothing"
    print_pairs(
        [
            ("name", book.name),
            ("title", book.title),
            ("handles", ", ".join(book.handles)),
            ("only for", ", ".join(book.actions)),
            ("limits", limits),
            ("ends", book.ends),
            ("file", book.path),
        ]
    )
    for number, entry in enumerate(book.entries, 1):
        print_line()
        print_line(f"{number}. {_heading(entry)}")
        for key, value in entry.with_.items():
            print_line(f"     {key} = {value}")
        if entry.why:
            print_line(f"     why: {entry.why}")


@playbooks_app.command(
    "try",
    epilog=examples(
        "nightshift playbooks try faulty_node",
        "nightshift playbooks try site/playbooks/mine.toml",
        "nightshift playbooks try hang --json",
    ),
)
def try_one(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A playbook by name, or its file.", autocompletion=_names)],
    fixture: Annotated[str, typer.Option("--fixture", metavar="NAME", help="Only this fixture.")] = "",
    as_json: Json = False,
) -> None:
    """Check a playbook and rehearse it on its fixtures.

    Fixtures with `calls` are rehearsed step by step; those with `cluster` are played by the whole engine on a simulated cluster in
    memory. Nothing happens outside, and nothing but the file is needed. Exit code 1 when a fixture goes another way than it says,
    or the playbook names a tool or argument that does not exist.
    """
    from assistant.content.reasons import reasons
    from assistant.recover.rehearsal import check_playbook, try_playbook
    from assistant.tooling import found

    book = _playbook(context, name)
    problems = check_playbook(book, found(), list(reasons(invocation_of(context).site)))
    fixtures = {entry.name: entry for entry in book.fixture}
    selected = [one_of(fixture, fixtures, "fixture", f"nightshift playbooks show {book.name}")] if fixture else list(book.fixture)
    for problem in problems:
        _print_problem(problem, as_json)
    failed = bool(problems)
    for rehearsal in (try_playbook(book, entry) for entry in selected if entry.calls is not None):
        failed |= bool(rehearsal.problems)
        _print_rehearsal(rehearsal, as_json)
    # a playbook that names what does not exist cannot be played
    for played in _played(context, book, selected) if not problems else ():
        failed |= bool(played.problems)
        _print_played(played, as_json)
    if failed:
        raise typer.Exit(Exit.ERROR)


def _playbook(context: typer.Context, name: str) -> Playbook:
    from assistant.content.playbooks import read_playbook

    if name.endswith(".toml"):
        return read_playbook(Path(name))
    return one_of(name, _playbooks(context), "playbook", "nightshift playbooks list")


def _played(context: typer.Context, book: Playbook, fixtures: Sequence[Fixture]) -> Iterator[FixtureResult]:
    on_cluster = [entry for entry in fixtures if entry.cluster is not None]
    if not on_cluster:
        return
    from assistant.diagnose.knowledge import Knowledge

    site = invocation_of(context).site
    knowledge = Knowledge.load(site)
    for entry in on_cluster:
        yield play_fixture(book, entry, site=site, knowledge=knowledge)


def _print_problem(problem: str, as_json: bool) -> None:
    if as_json:
        print_json({"problem": problem})
    else:
        print_line(problem, colour="red")


def _print_rehearsal(rehearsal: Rehearsal, as_json: bool) -> None:
    if as_json:
        calls = [{"step": call.step, "tool": call.tool, "arguments": call.arguments, "why": call.why} for call in rehearsal.calls]
        about = {"fixture": rehearsal.fixture, "calls": calls, "ends": rehearsal.ended.state, "note": rehearsal.ended.note}
        print_json({**about, "passed": not rehearsal.problems, "problems": list(rehearsal.problems)})
        return
    print_line(
        f"{'FAILED' if rehearsal.problems else 'passed'}  {rehearsal.fixture}", colour="red" if rehearsal.problems else "green"
    )
    for number, call in enumerate(rehearsal.calls, 1):
        arguments = ", ".join(f"{name}={value}" for name, value in call.arguments.items())
        print_line(f"    {number}. {call.tool}({arguments})")
    print_line(f"    ends {rehearsal.ended.state}: {rehearsal.ended.note}")
    for problem in rehearsal.problems:
        print_line(f"    {problem}", colour="red")


def _print_played(played: FixtureResult, as_json: bool) -> None:
    if as_json:
        incidents = [
            {"job": incident.job, "state": incident.state, "playbook": incident.playbook, "note": incident.note}
            for incident in played.incidents
        ]
        about = {"fixture": played.fixture, "changes": list(played.changes), "incidents": incidents}
        print_json({**about, "passed": not played.problems, "problems": list(played.problems)})
        return
    print_line(f"{'FAILED' if played.problems else 'passed'}  {played.fixture}", colour="red" if played.problems else "green")
    for number, change in enumerate(played.changes, 1):
        print_line(f"    {number}. {change}")
    for incident in played.incidents:
        print_line(f"    job {incident.job} {incident.state}: {incident.note}")
    for problem in played.problems:
        print_line(f"    {problem}", colour="red")


def _heading(entry: Step | Verify) -> str:
    """Return one entry in words: what is called, under which condition, what is expected."""
    from assistant.content.playbooks import Step

    name = f"{entry.use} (as {entry.name})" if entry.name != entry.use else entry.use
    when = f", when {entry.when}" if entry.when else ""
    if not isinstance(entry, Step):
        return f"{name}, until it says {entry.expect} within {entry.within_min:g} min{when}"
    repetition = f", for each of {entry.each}" if entry.each else ""
    unless = f", unless {' or '.join(entry.unless)}" if entry.unless else ""
    waits = f", until it says {entry.expect} within {entry.within_min:g} min" if entry.expect else ""
    return f"{name}{waits}{repetition}{when}{unless}" + (f", then ends as {entry.then}" if entry.then else "")


START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
OUTAGE = "storage_down_until"
"""The file by which our trainer and `wait_storage` are told that the storage is away."""
PATIENCE_S = 900.0
"""Without any change for so long nothing more will come of a job that hangs or waits."""
PACES_S = (10.0, 60.0)
"""Between two passes of the watch: while things change, and once nothing has changed for some minutes."""
LONGEST_S = 30 * 3600.0
"""More than the longest verify of a shipped playbook."""


@dataclass(frozen=True, slots=True)
class FixtureResult:
    """What came of a job on the simulated cluster."""

    fixture: str
    changes: tuple[str, ...]
    """What Nightshift changed on the cluster, in order."""
    incidents: tuple[Incident, ...]
    """Oldest first."""
    problems: tuple[str, ...]
    """Where it differs from what the fixture says; empty when it passed."""


def play_fixture(
    playbook: Playbook, fixture: Fixture, *, site: Path | None = None, knowledge: Knowledge | None = None
) -> FixtureResult:
    """Play a fixture that has a `cluster` and return what came of it.

    Args:
        playbook: The fixture's own.
        fixture: Its name, reason and `cluster` count.
        site: Folder of the site's content.
        knowledge: What is known of failures, where it is loaded already.
    """
    if fixture.cluster is None:
        raise ValueError(f"fixture {fixture.name!r} has no cluster to be played on")
    with tempfile.TemporaryDirectory(prefix="nightshift-play-") as folder, silent_log():
        stage = _Stage(Path(folder), playbook, fixture.cluster, site, knowledge)
        stage.play()
        incidents = tuple(reversed(stage.engine.store.incidents()))
        problems = (*_outcome_problems(stage, fixture, incidents), *_restart_problems(stage))
        return FixtureResult(fixture.name, stage.changes, incidents, problems)


class _Stage:
    """A cluster, an engine on it, and job 1."""

    def __init__(
        self, folder: Path, playbook: Playbook, fixture: ClusterFixture, site: Path | None, knowledge: Knowledge | None
    ) -> None:
        self.playbook, self.fixture = playbook, fixture
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=fixture.node_names)
        self.saved = folder / "checkpoints"
        self.saved.mkdir()
        self.outage = self.saved / OUTAGE
        self.cluster.plan("llm", *(SimulatedRun(**vars(run), checkpoints=self.saved) for run in fixture.runs))
        self.site = _site_with(playbook, site, folder / "site")
        settings = Settings(
            state_folder=folder,
            store=folder / "nightshift.db",
            content=self.site,
            commands={"kernel_log": ("dmesg",)},
            watch=WatchSettings(poll_s=PACES_S[0], hang_after_s=300),
        )
        # the shipped policy: a fixture must mean the same at every site
        policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=())
        self.engine = build(settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=policy)
        if knowledge is not None:
            self.engine.shipped = knowledge
        self.to_come = sorted(fixture.happens, key=lambda happening: happening.after_s)
        words = f'checkpoints={self.saved} skip="--skip {{from}}:{{to}}" {fixture.directives}'
        script = f"#NIGHTSHIFT {words}\nsrun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
        spec = JobSpec("llm", script, nodes=fixture.job_nodes, work_dir=folder, user="ada", log="job-%j.log")
        self.spec = dataclasses.replace(spec, time_limit_s=fixture.time_limit_s)
        self.cluster.submit(self.spec)

    @property
    def changes(self) -> tuple[str, ...]:
        """What Nightshift changed: all but the first submission."""
        return tuple(self.cluster.changes[1:])

    def play(self) -> None:
        """Let time pass until nothing more will come."""
        state, unchanged_since = self._observed_state(), START
        while (now := self.clock.now()) < START + timedelta(seconds=LONGEST_S):
            quiet_s = (now - unchanged_since).total_seconds()
            if self._over(quiet_s):
                return
            self._pass(PACES_S[quiet_s > PATIENCE_S / 2])
            try:
                self.engine.tick(owner="fixture")
            except Unavailable:
                continue
            if state != (state := self._observed_state()):
                unchanged_since = self.clock.now()

    def _over(self, quiet_s: float) -> bool:
        if self.to_come or self.cluster.outage:
            return False
        stuck = quiet_s > PATIENCE_S
        waits = any(
            not incident.state.ended and not (stuck and incident.state is IncidentState.WAITING)
            for incident in self.engine.store.incidents()
        )
        return not waits and (stuck or all(job.state.ended for job in self.cluster.jobs()))

    def _observed_state(self) -> object:
        """Return all by which one sees that something changed."""
        incidents = [(incident.id, incident.state) for incident in self.engine.store.incidents()]
        jobs = [] if self.cluster.outage else [(job.id, job.attempt, job.state) for job in self.cluster.jobs()]
        return incidents, jobs, self.changes, len(self.to_come)

    def _pass(self, seconds: float) -> None:
        """Let so much time pass; what happens meanwhile happens at its own moment."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.to_come and (at := START + timedelta(seconds=self.to_come[0].after_s)) <= end:
            self.clock.sleep((at - self.clock.now()).total_seconds())
            self._happens(self.to_come.pop(0))
        self.clock.sleep((end - self.clock.now()).total_seconds())

    def _happens(self, happening: Happening) -> None:
        about = happening.about
        match happening.word:
            case "ask":
                self.engine.open_for(about, by="cli:ada")
            case "submit":
                spec = self.cluster.job(about).spec
                own = self.cluster.submit(spec if spec is not None else self.spec)
                self.cluster.changes.remove(f"submit {own}")
            case "slow":
                self.engine.open(Event(EventKind.SLOW_JOB, about, None, self.clock.now(), attempt=self.cluster.job(about).attempt))
            case "cancel":
                self.cluster.set_cancelled(about)
            case "requeue":
                self.cluster.set_requeued(about)
            case "cordon":
                self.cluster.set_cordon(about, "grace: replacing a fan")
            case "down":
                self.cluster.set_down(about)
            case "up":
                self.cluster.set_up(about)
            case "storage_away":
                self.outage.write_text(str((START + timedelta(days=365)).timestamp()), encoding="utf-8")
            case "storage_back":
                self.outage.unlink(missing_ok=True)
            case "scheduler_away" | "scheduler_back":
                self.cluster.outage = happening.word == "scheduler_away"
            case _:
                raise ValueError(f"{happening.what!r} cannot happen")


def _site_with(playbook: Playbook, site: Path | None, folder: Path) -> Path | None:
    """Return a folder of site content in which the playbook is the one of its name."""
    existing = playbooks(site).get(playbook.name)
    if existing is not None and existing.digest == playbook.digest:
        return site
    if site is not None and site.is_dir():
        shutil.copytree(site, folder)
    (folder / "playbooks").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(playbook.path, folder / "playbooks" / f"{playbook.name}.toml")
    return folder


def _outcome_problems(stage: _Stage, fixture: Fixture, incidents: tuple[Incident, ...]) -> Iterator[str]:
    ending = stage.fixture
    yield from (f"directives: {problem}" for problem in read_directives(f"#NIGHTSHIFT {ending.directives}").problems)
    if stage.changes != ending.changes:
        yield f"changed {_listed(stage.changes)} instead of {_listed(ending.changes)}"
    if not incidents:
        yield "no incident was opened: nothing that a watch notices happened to the job"
        return
    first, *later = incidents
    if first.state is not STATES[fixture.ends]:
        yield f"ended {first.state} instead of {fixture.ends}: {first.note}"
    elif ending.note not in first.note:
        yield f"its note says {first.note!r}, not {ending.note!r}"
    states = tuple(incident.state for incident in later)
    if states != ending.later:
        notes = "".join(f"; incident {incident.id}: {incident.note}" for incident in later)
        yield f"later incidents ended {_listed(states)} instead of {_listed(ending.later)}{notes}"
    yield from _diagnosis_problems(stage, fixture, first)


def _diagnosis_problems(stage: _Stage, fixture: Fixture, incident: Incident) -> Iterator[str]:
    diagnosis = stage.engine.store.diagnosis(incident.id)
    if diagnosis is None:
        yield "the incident was not diagnosed"
        return
    if diagnosis.reason != fixture.reason:
        yield f"diagnosed {diagnosis.reason} instead of {fixture.reason}: {diagnosis.summary}"
    if fixture.action is not None and diagnosis.action is not fixture.action:
        yield f"advised {diagnosis.action} instead of {fixture.action}"
    if fixture.faulty_nodes and set(diagnosis.faulty_nodes) != set(fixture.faulty_nodes):
        yield f"blamed {_listed(diagnosis.faulty_nodes)} instead of {_listed(fixture.faulty_nodes)}"
    playbook = choose_playbook(diagnosis, stage.engine.playbooks)
    if playbook is None or playbook.name != stage.playbook.name:
        yield f"chose playbook {playbook.name if playbook else 'none'} for {diagnosis.reason} with {diagnosis.action}"


def _restart_problems(stage: _Stage) -> Iterator[str]:
    """Compare the last submission with what the fixture says of it."""
    fixture, last = stage.fixture, stage.cluster.jobs()[-1]
    environment = last.spec.environment if last.spec is not None else {}
    step = int(environment.get(STEP, "0") or 0)
    if fixture.restart_step is not None and step != fixture.restart_step:
        yield f"job {last.id} began with step {step} instead of {fixture.restart_step}"
    if fixture.excluded is not None and set(_excluded(last)) != set(fixture.excluded):
        yield f"job {last.id} stays away from {_listed(_excluded(last))} instead of {_listed(fixture.excluded)}"
    skipped = tuple(int(environment[name]) for name in SKIP_STEPS if name in environment)
    if fixture.skipped is not None and skipped != fixture.skipped:
        yield f"job {last.id} leaves out the data of steps {skipped} instead of {fixture.skipped}"


def _excluded(job: Job) -> tuple[str, ...]:
    return tuple(job.spec.exclude) if job.spec is not None else ()


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "nothing"
