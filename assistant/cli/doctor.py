"""`nightshift doctor`: whether everything Nightshift needs is there, what to do where it is not, and what is live.

The last checks reach into the cluster: nodes over SSH, and jobs that run now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from assistant.cli.context import Invocation, Json, app, examples, invocation_of
from assistant.cli.main import missing_extra
from assistant.cli.output import Exit, print_json, print_line
from assistant.errors import NightshiftError

if TYPE_CHECKING:
    from assistant.cli.jobs import CheckedJob
    from assistant.records import Node


doctor_app = app(help="Check that everything Nightshift needs is there.")

LOW_DISK_BYTES = 1 << 30
FULL_DISK_BYTES = 64 << 20
OLDEST_SQLITE = (3, 35, 0)
"""First with RETURNING and dropped columns, which migrations rest on."""


class DoctorHealth(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    """Nightshift works with less."""
    FAIL = "fail"


class DoctorFinding(NamedTuple):
    """The result of one check."""

    name: str
    health: DoctorHealth
    text: str
    todo: str = ""
    """What to do about it."""


Check = Callable[[Invocation], Iterator[DoctorFinding]]


def _python(_: Invocation) -> Iterator[DoctorFinding]:
    import sqlite3

    version = ".".join(map(str, sys.version_info[:3]))
    yield DoctorFinding("python", DoctorHealth.OK, f"{version} at {sys.executable}")
    old = sqlite3.sqlite_version_info < OLDEST_SQLITE
    todo = "use a Python with SQLite 3.35 or newer" if old else ""
    yield DoctorFinding("sqlite", DoctorHealth.FAIL if old else DoctorHealth.OK, sqlite3.sqlite_version, todo)


def _hyperscan(_: Invocation) -> Iterator[DoctorFinding]:
    from importlib.metadata import version

    try:
        import hyperscan  # noqa: F401
    except ImportError as error:
        yield DoctorFinding("hyperscan", DoctorHealth.FAIL, str(error), "pip install hyperscan (needs an x86-64 or arm64 Linux)")
        return
    yield DoctorFinding("hyperscan", DoctorHealth.OK, version("hyperscan"))


def _settings(invocation: Invocation) -> Iterator[DoctorFinding]:
    files = [str(path) for path in invocation.loaded.files]
    variables = sorted({origin for origin in invocation.loaded.origins.values() if origin.startswith("NIGHTSHIFT_")})
    yield DoctorFinding("settings", DoctorHealth.OK, ", ".join([*files, *variables]) or "defaults only")


def _state_folder(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.private_files import check_state_folder

    folder = invocation.settings.state_folder
    if note := check_state_folder(folder, invocation.settings.store):
        yield DoctorFinding("state folder", DoctorHealth.WARN, note, f"see what others left there: ls -la {folder}")
    else:
        yield DoctorFinding("state folder", DoctorHealth.OK, str(folder))


def _policy(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.gate.stops import kill_switch_note, missing_folders, stopped_by
    from assistant.policy import load_policy, short_digest

    standing = invocation.in_force.look()
    policy = standing.policy
    if standing.problem:
        yield DoctorFinding(
            "policy", DoctorHealth.FAIL, f"none in force, every change is refused: {standing.problem}", "nightshift config check"
        )
        return
    own = [f"{kind}: {terms.mode}" for kind, terms in policy.kind.items() if terms.mode is not None]
    yield DoctorFinding(
        "policy", DoctorHealth.OK, ", ".join([f"mode {policy.mode}", *own, f"digest {short_digest(policy.digest)}"])
    )
    switch = stopped_by(policy.kill_switch)
    if switch is not None:
        note = kill_switch_note(switch)
        text = f"the kill switch {switch} is set: nothing is changed" + (f" ({note})" if note else "")
        yield DoctorFinding("kill switch", DoctorHealth.WARN, text, "nightshift stop --lift, to go on")
    # the shipped switches are two, so that each kind of account has one; a site's own folder is missing only by mistake
    usual = load_policy().kill_switch
    for path in missing_folders(policy.kill_switch):
        if path not in usual:
            text = f"the folder of the kill switch {path} does not exist: a mount that is away, or mistyped?"
            yield DoctorFinding(
                "kill switch", DoctorHealth.WARN, text, "make the folder, so that a person can set the switch by touch"
            )


def _content(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.content.devices import xids
    from assistant.content.playbooks import playbooks
    from assistant.content.reading import filters
    from assistant.content.reasons import reasons
    from assistant.rules.loading import load_patterns

    counts = {
        "reasons": len(reasons(invocation.site)),
        "XIDs": len(xids(invocation.site)),
        "filters": len(filters(invocation.site)),
        "playbooks": len(playbooks(invocation.site)),
    }
    yield DoctorFinding("content", DoctorHealth.OK, ", ".join(f"{count} {name}" for name, count in counts.items()))
    yield DoctorFinding("patterns", DoctorHealth.OK, f"{len(load_patterns(invocation.site))} compile together")


def _ranker(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.errors import ContentError
    from assistant.llm.ranker import file_of, load_ranker

    path = file_of(invocation.site)
    try:
        ranker = load_ranker(path)
    except ContentError as error:
        yield DoctorFinding(
            "ranker", DoctorHealth.WARN, f"no guesses where no rule knows a line: {error}", "nightshift model train-ranker"
        )
        return
    about = ranker.weights.about
    yield DoctorFinding(
        "ranker", DoctorHealth.OK, f"{ranker.name}, trained on {about.get('lines', '?')} lines with seed {about.get('seed', '?')}"
    )


def _encoder(_: Invocation) -> Iterator[DoctorFinding]:
    from assistant.llm import embedded

    encoder_status = embedded.status()
    todo = "" if encoder_status.works else "install Nightshift again, and build llama-cpp-python: make deps-llama"
    yield DoctorFinding("embedded model", DoctorHealth.OK if encoder_status.works else DoctorHealth.WARN, encoder_status.says, todo)


def _language_model(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.errors import NightshiftError
    from assistant.llm.gguf import available_bytes, parts_of, read_gguf
    from assistant.llm.models import TASKS, identity, is_set, model_catalogue

    model, remedy = invocation.settings.model, "nightshift model use FILE|URL|none"
    try:
        if not is_set(model):
            yield DoctorFinding("language model", DoctorHealth.OK, "none: questions are answered without one")
            return
        name = f"{model.name} at {model.url}"
        if model.path is not None:
            header, size = read_gguf(model.path), sum(part.stat().st_size for part in parts_of(model.path))
            name = f"{model.path}, {header.architecture}, {size / 1e9:.1f} GB"
            if header.architecture not in model_catalogue(invocation.site).architectures:
                yield DoctorFinding("language model", DoctorHealth.WARN, f"{name}: no model that holds a conversation", remedy)
                return
            if size > available_bytes():
                free = available_bytes() / 1e9
                yield DoctorFinding(
                    "language model", DoctorHealth.WARN, f"{name}: does not fit into the {free:.1f} GB of free memory", remedy
                )
                return
        trusted = [task for task in TASKS if invocation.store.may(identity(model), task)]
    except (NightshiftError, OSError) as error:
        yield DoctorFinding("language model", DoctorHealth.WARN, str(error), remedy)
        return
    tasks_text = f"trusted with {', '.join(trusted)}" if trusted else "answers questions; trusted with no task of diagnosis"
    yield DoctorFinding("language model", DoctorHealth.OK, f"{name}; {tasks_text}", "" if trusted else "nightshift model test")


def _cache(_: Invocation) -> Iterator[DoctorFinding]:
    from assistant.rules.patterns import cache_folder

    folder = cache_folder()
    if _writable(folder):
        yield DoctorFinding("cache", DoctorHealth.OK, str(folder))
    else:
        yield DoctorFinding(
            "cache",
            DoctorHealth.WARN,
            f"{folder} cannot be written: patterns are compiled at each start",
            "set XDG_CACHE_HOME to a folder of yours",
        )


def _disk(invocation: Invocation) -> Iterator[DoctorFinding]:
    import shutil

    folder = _existing(invocation.settings.store.parent)
    free = shutil.disk_usage(folder).free
    health = DoctorHealth.FAIL if free < FULL_DISK_BYTES else DoctorHealth.WARN if free < LOW_DISK_BYTES else DoctorHealth.OK
    yield DoctorFinding(
        "disk", health, f"{free / 1e9:.1f} GB free at {folder}", "" if health is DoctorHealth.OK else f"free space at {folder}"
    )


def _store(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.store.standing_decisions import why_open

    with invocation.store.transaction():
        incidents = len(invocation.store.incidents(open_only=True, limit=10_000))
    yield DoctorFinding("store", DoctorHealth.OK, f"{invocation.store.path}, {incidents} open incidents")
    breaker = why_open(invocation.store)
    if breaker is not None:
        yield DoctorFinding(
            "breaker", DoctorHealth.WARN, f"open {breaker}: the watch changes nothing", "nightshift breaker show, then reset"
        )
    breaks = invocation.store.verify()
    if breaks is not None:
        yield DoctorFinding(
            "audit", DoctorHealth.FAIL, breaks.why, "nightshift audit verify; keep a copy of the store and find out who changed it"
        )
    else:
        yield DoctorFinding("audit", DoctorHealth.OK, "the chain and all sealed rows hold")
    for note in invocation.store.audit_notes():
        yield DoctorFinding("audit", DoctorHealth.WARN, note, "see docs/audit.md")


def _scheduler(invocation: Invocation) -> Iterator[DoctorFinding]:
    scheduler = invocation.engine().scheduler
    nodes, jobs = scheduler.nodes(), scheduler.jobs()
    yield DoctorFinding("scheduler", DoctorHealth.OK, f"{scheduler.name} answers: {len(nodes)} nodes, {len(jobs)} jobs")
    for line in invocation.in_force.look().policy.unmatched(nodes, jobs):
        todo = "compare with `nightshift nodes` and `nightshift jobs`: case and leading zeros count"
        yield DoctorFinding("policy", DoctorHealth.WARN, line, todo)


def _slurm(invocation: Invocation) -> Iterator[DoctorFinding]:
    if invocation.settings.scheduler != "slurm":
        return
    from assistant.schedulers.slurm import SlurmScheduler
    from assistant.schedulers.slurm_rights import check

    scheduler = invocation.engine().scheduler
    if isinstance(scheduler, SlurmScheduler):
        for checked in check(scheduler):
            yield DoctorFinding("slurm", DoctorHealth.OK if checked.works else DoctorHealth.WARN, checked.text, checked.todo)


def _ssh(invocation: Invocation) -> Iterator[DoctorFinding]:

    for works, text, todo in ssh_to_nodes(invocation):
        yield DoctorFinding("ssh", DoctorHealth.OK if works else DoctorHealth.WARN, text, todo)


def _running_jobs(invocation: Invocation) -> Iterator[DoctorFinding]:

    for works, text, todo in running_jobs(invocation):
        yield DoctorFinding("jobs", DoctorHealth.OK if works else DoctorHealth.WARN, text, todo)


def _example_policy(invocation: Invocation) -> Iterator[DoctorFinding]:

    standing = invocation.in_force.look()
    if standing.problem or not standing.policy.only_observes:
        return
    one_line = "; ".join(line.partition("#")[0].strip() for line in EXAMPLE_POLICY.splitlines())
    yield DoctorFinding(
        "example", DoctorHealth.OK, f"a first policy that acts: {one_line}", "docs/from_observe_to_act.md, step by step"
    )


def _watch(invocation: Invocation) -> Iterator[DoctorFinding]:
    from assistant.daemon.delivery import services_of, urls_of

    settings = invocation.settings
    sinks = ", ".join(services_of(settings))
    yield DoctorFinding(
        "notify", DoctorHealth.OK, f"told: {sinks}" if sinks else "nobody is told; see [notify.sinks] in docs/watchdog.md"
    )
    if settings.heartbeat.url_file is not None:
        urls_of(settings.heartbeat.url_file, "heartbeat.url_file")
    textfile = settings.metrics.textfile
    if textfile is not None and not (textfile.parent.is_dir() and _writable(textfile.parent)):
        todo = f"make {textfile.parent}, writable for this user; under systemd with ReadWritePaths="
        yield DoctorFinding("metrics", DoctorHealth.WARN, f"{textfile} cannot be written", todo)


CHECKS: dict[str, Check] = {
    "python": _python,
    "hyperscan": _hyperscan,
    "settings": _settings,
    "state folder": _state_folder,
    "policy": _policy,
    "content": _content,
    "ranker": _ranker,
    "encoder": _encoder,
    "language model": _language_model,
    "cache": _cache,
    "disk": _disk,
    "store": _store,
    "scheduler": _scheduler,
    "slurm": _slurm,
    "ssh": _ssh,
    "jobs": _running_jobs,
    "notify": _watch,
    "example": _example_policy,
}


def examine(invocation: Invocation) -> Iterator[DoctorFinding]:
    """Yield what every check finds; one that fails does not keep the others from running."""
    for name, check in CHECKS.items():
        try:
            yield from check(invocation)
        except (NightshiftError, OSError) as error:
            yield DoctorFinding(name, DoctorHealth.FAIL, str(error))
        except ModuleNotFoundError as error:
            if not (message := missing_extra(error)):
                raise
            yield DoctorFinding(name, DoctorHealth.FAIL, message)


@doctor_app.command(epilog=examples("nightshift doctor", "nightshift doctor --json | jq 'select(.health != \"ok\")'"))
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Check that everything Nightshift needs is there.

    Prints a line for each check, with what to do where something is missing; exit code 1 when a check failed.
    """
    failed = False
    for finding in examine(invocation_of(context)):
        failed |= finding.health is DoctorHealth.FAIL
        if as_json:
            print_json(finding._asdict())
        else:
            _print(finding)
    if failed:
        raise typer.Exit(Exit.ERROR)


def _print(finding: DoctorFinding) -> None:
    colour = {DoctorHealth.OK: "green", DoctorHealth.WARN: "yellow", DoctorHealth.FAIL: "red"}[finding.health]
    print_line(f"{finding.health:<5} {finding.name:<10} {finding.text}", colour="" if finding.health is DoctorHealth.OK else colour)
    if finding.todo:
        print_line(f"{'':<17}to do: {finding.todo}")


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _writable(folder: Path) -> bool:
    import os

    return os.access(_existing(folder), os.W_OK | os.X_OK)


NODES_TRIED = 3
SSH_S = 15.0
JOBS_TRIED = 3
EXAMPLE_POLICY = """extends = "shipped"
mode = "propose"               # asks before each change: nightshift approve N
[kind.resubmit]
mode = "act"                   # restarts go by themselves, within the limits below
hard = { per_hour = 4 }
[[protected]]
partitions = ["prod*"]         # everything but the canary partition
why = "first only in the canary partition"
kinds = ["cordon", "resubmit", "cancel", "requeue"]
[end]
"""
"""A first policy of a site, as docs/from_observe_to_act.md builds it up."""


def ssh_to_nodes(invocation: Invocation) -> Iterator[tuple[bool, str, str]]:
    """Yield for a few nodes that are up whether a command ran there: (works, text, what to do)."""
    from assistant.records import NodeState
    from assistant.wiring import transport_of

    if invocation.settings.transport != "ssh":
        return
    up = [node for node in invocation.engine().scheduler.nodes() if node.state not in (NodeState.DOWN, NodeState.UNKNOWN)]
    if not up:
        yield False, "no node is up to be asked", "look at the scheduler's states: nightshift nodes"
        return
    names = [node.name for node in _spread(up)]
    replies = transport_of(invocation.settings).run(names, ("true",), timeout_s=SSH_S)
    for name in names:
        reply = replies.get(name)
        if reply is not None and reply.reached and reply.status == 0:
            yield True, f"{name} answers", ""
        else:
            why = (reply.err.strip().splitlines() or [f"status {reply.status}"])[-1] if reply is not None else "no reply"
            yield False, f"{name} does not answer: {why}", f"ssh {name} true, as this account; docs/ssh.md"


def _spread(nodes: list[Node]) -> list[Node]:
    """Return the first, the middle and the last of some nodes: racks and images differ."""
    places = sorted({0, len(nodes) // 2, len(nodes) - 1})
    return [nodes[place] for place in places][:NODES_TRIED]


def running_jobs(invocation: Invocation) -> Iterator[tuple[bool, str, str]]:
    """Yield of a few running jobs what `job check` understands of them, read as this account: (works, text, what to do)."""
    from assistant.cli.jobs import checked_job
    from assistant.records import JobState

    scheduler = invocation.engine().scheduler
    running = [job for job in scheduler.jobs() if job.state is JobState.RUNNING]
    if not running:
        yield True, "no job runs now: its log and checkpoints could not be tried", ""
    for job in running[-JOBS_TRIED:]:
        try:
            checked = checked_job(invocation, scheduler.job(job.id))
        except (NightshiftError, OSError) as error:
            yield False, f"job {job.id}: {error}", f"nightshift job check {job.id}"
            continue
        yield _logs_of(job.id, checked)
        yield _checkpoints_of(job.id, checked)


def _logs_of(job_id: str, checked: CheckedJob) -> tuple[bool, str, str]:
    if checked.log_readable:
        return True, f"job {job_id}: of its logs {checked.log}", ""
    todo = "run as root or as the owner, or share the folder with a group of this account: docs/security.md"
    return False, f"job {job_id}: no log of it can be read: {checked.log}", todo


def _checkpoints_of(job_id: str, checked: CheckedJob) -> tuple[bool, str, str]:
    reading = checked.reading
    place = (
        f"saves into {reading.checkpoint_folder} ({reading.checkpoint_how})" if reading.checkpoint_folder else checked.search.note
    )
    text = f"job {job_id}: {reading.resume.sentence}; {place}" + (f"; there now: {checked.saved}" if checked.saved else "")
    blocks = next((gap for gap in reading.gaps if gap.weight == "blocks"), None)
    return blocks is None, text, "" if blocks is None else blocks.line or f"nightshift job check {job_id}"
