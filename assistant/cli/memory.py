"""`nightshift memory plan`: why memory ran out, what holds it, and what to change, with numbers. Changes nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import Invocation, Json, app, examples, invocation_of, job_ids
from assistant.cli.diagnose import log_of, open_lines
from assistant.cli.output import print_json, print_line, print_pairs, print_table
from assistant.errors import InputError, ToolError, UsageError
from assistant.redact import head_of, redact
from assistant.untrusted import LOOK_S, read_whole, within

if TYPE_CHECKING:
    from assistant.logs.lines import Line
    from assistant.memory_plan.arguments import RunArguments
    from assistant.memory_plan.ladder import Rung
    from assistant.memory_plan.plan import MemoryPlan
    from assistant.memory_plan.problems import MemoryProblem
    from assistant.records import Job

memory_app = app(help="Plan how a run fits into the memory of its GPUs.", no_args_is_help=True)

LINE_ROOM = 160
"""Characters of a cited line that are shown."""
MOST_CONFIG_BYTES = 2 << 20
MOST_GPUS = 1_000_000
LEAST_GIB, MOST_GIB = 0.1, 10_000.0


@memory_app.callback()
def memory() -> None:
    """Plan how a run fits into the memory of its GPUs."""


@memory_app.command(
    "plan",
    epilog=examples(
        "nightshift memory plan --log slurm-4821.out",
        "nightshift memory plan --job 4821",
        "nightshift memory plan --config llama3_8b.toml --gpus 8 --gpu-memory 80",
        "nightshift memory plan --log job.log --command 'torchrun --nproc_per_node 8 train.py --config run.yaml'",
        "nightshift memory plan --job 4821 --json | jq .proposal",
    ),
)
def plan(
    context: typer.Context,
    log: Annotated[str, typer.Option("--log", metavar="FILE", help="The run's log: a file, a .gz, - for stdin.")] = "",
    job: Annotated[str, typer.Option("--job", metavar="ID", help="A job: its log, script and files.", autocompletion=job_ids)] = "",
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="A configuration of the run (TOML, YAML, JSON); repeatable."),
    ] = None,
    command: Annotated[
        str, typer.Option("--command", metavar="LINE", help="The run's command line; files that it names are read.")
    ] = "",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=MOST_GPUS, metavar="N", help="GPUs of the run, where nothing says it.")
    ] = 0,
    gpu_memory: Annotated[
        float, typer.Option("--gpu-memory", metavar="GIB", help="Memory of one GPU, where the log does not say it.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Plan how a run fits into the memory of its GPUs, and say why it did not.

    Which shortage it is, with the lines that prove it and what would decide where they do not; what the run holds on its fullest
    GPU, computed from its own arguments and calibrated on its own figures; and ways out, those that keep the training the same
    first, each with its peak, time and arguments. Nothing is changed.
    """
    from assistant.memory_plan.plan import make_plan
    from assistant.memory_plan.problems import MemoryReading, read_problems
    from assistant.memory_plan.setup import GIB

    if not (log or job or config or command):
        raise UsageError("wanted what to plan for, found nothing: --log FILE, --job ID, --config FILE or --command 'LINE'")
    if gpu_memory and not LEAST_GIB <= gpu_memory <= MOST_GIB:
        raise UsageError(f"--gpu-memory: wanted GiB from {LEAST_GIB:g} to {MOST_GIB:,.0f}, found {gpu_memory:g}")
    invocation = invocation_of(context)
    subject = _job(invocation, job) if job else None
    name, lines = _log_lines(context, log, subject)
    reading = read_problems(lines, log_file=name) if lines else MemoryReading((), None, 0, (), 0)
    run = _arguments(invocation, subject, config or [], command, lines, gpus)
    memory_plan = make_plan(reading, run, gpu_memory=gpu_memory * GIB)
    if as_json:
        print_json(as_record(memory_plan))
    else:
        _show(memory_plan, name)


def _job(invocation: Invocation, job: str) -> Job:
    """Return a job as its scheduler knows it; neither a store nor a local cluster is made for it.

    Raises:
        ToolError: The scheduler knows no such job.
    """
    from assistant.ports import SystemClock
    from assistant.wiring import local_folder, scheduler_of

    folder = local_folder(invocation.settings)
    if invocation.settings.scheduler == "local" and not folder.exists():
        raise ToolError(f"job {job!r} is unknown: there is no local cluster in {folder}, and no other scheduler is set")
    return scheduler_of(invocation.settings, SystemClock()).job(job)


def _log_of_job(context: typer.Context, subject: Job | None) -> str:
    """Return the path of a job's log; empty where it has none that can be read."""
    from assistant.recover.joblog import logs_of
    from assistant.untrusted import reading_as

    if subject is None:
        return ""
    readable = () if subject.log is not None else logs_of(subject).readable
    path = subject.log or (readable[0].path if readable else None)
    if path is None:
        return ""
    context.with_resource(reading_as(subject.account))  # until the command has ended
    try:
        return log_of(context, str(path))
    except ToolError:
        return ""


def _log_lines(context: typer.Context, log: str, subject: Job | None) -> tuple[str, list[Line]]:
    """Return the name of the log and those of its lines that count; no lines where only arguments are given."""
    from assistant.memory_plan.intake import counted_lines

    if not log and subject is None:
        return "", []
    path = log_of(context, log) if log == "-" else log or _log_of_job(context, subject)
    if not path:
        return "", []  # without a log the arguments of the job tell something
    return Path(path).name if path != "-" else "stdin", counted_lines(open_lines(path))


def _arguments(
    invocation: Invocation, subject: Job | None, configs: list[Path], command: str, lines: list[Line], gpus: int
) -> RunArguments:
    from assistant.memory_plan import intake
    from assistant.recover.job_program import FileReader, config_values

    read = FileReader("")
    site = invocation.site
    files = [(path, _text(path)) for path in configs]
    for path, text in files:
        if not config_values(path, text):
            raise InputError(f"{path}: holds no settings; wanted a configuration of a run in TOML, YAML or JSON")
    if command:
        return intake.run_of_command(command, read, folder=str(Path.cwd()), files=files, lines=lines, gpus=gpus, site=site)
    if subject is not None:
        return intake.run_of_job(subject, FileReader(subject.account), files=files, lines=lines, gpus=gpus, site=site)
    if files:
        return intake.run_of_configs(files, read, lines=lines, gpus=gpus, site=site)
    return intake.run_of_log(lines, gpus=gpus, site=site)


def _text(path: Path) -> str:
    try:
        return within(LOOK_S, partial(read_whole, path, MOST_CONFIG_BYTES), str(path)).decode("utf-8", "replace")
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _show(memory_plan: MemoryPlan, name: str) -> None:
    """Print a plan for a person: the shortage, what holds the memory, the proposal, then all ways out."""
    print_line(f"memory plan{f' for {name}' if name else ''}", colour="bold")
    if memory_plan.problem is None:
        print_pairs([("shortage", "none shows" if name else "no log was given")])
    for number, problem in enumerate(memory_plan.reading.problems[:3]):
        _show_problem(problem, "shortage" if number == 0 else "or")
    print_pairs([("first", [f"{rung.name}{_arguments_of(rung)}" for rung in memory_plan.measures])])
    _show_estimate(memory_plan)
    proposal = memory_plan.proposal
    if proposal is not None:
        print_line()
        print_line("proposal: the same training, with the least time", colour="bold")
        print_pairs(
            [
                ("change", [str(redacted(argument)) for argument in proposal.arguments] or [proposal.name]),
                ("that is", proposal.name),
                ("peak", _peak(proposal, memory_plan.capacity)),
                ("step", _time(proposal)),
                ("checkpoint", proposal.checkpoint),
                ("risk", proposal.risk),
                ("host", f"{_gib(proposal.host)} more on each rank" if proposal.host else None),
            ]
        )
    print_pairs([("note", [redact(note) for note in memory_plan.notes])])
    if memory_plan.ladder:
        print_line()
        print_line("ways out, each by itself", colour="bold")
        rows = [
            (
                "fits" if rung.fits else "-", _gib(rung.peak or 0.0), _gib(rung.margin or 0.0), f"x{rung.relative_time:.2f}",
                "same" if rung.effect == 0 else "another", rung.name,
                "; ".join(str(redacted(argument)) for argument in rung.arguments),
            )
            for rung in memory_plan.ladder
        ]  # fmt: skip
        print_table(("fits", "peak", "free", "step", "training", "way", "arguments"), rows)


def redacted(argument: object) -> str:
    """Return an argument as text without secrets."""
    return redact(str(argument))


def _show_problem(problem: MemoryProblem, word: str) -> None:
    place = f": {problem.place or problem.cause}" if problem.place or problem.cause else ""
    rank = f", rank {problem.rank}" if problem.rank is not None else ""
    cited = [f"{proof.file}:{proof.line}: {head_of(redact(proof.text.strip()), LINE_ROOM, '…')}" for proof in problem.proof]
    print_pairs(
        [
            (word, f"{problem.kind}{place} ({problem.confidence:.0%}{rank})"),
            ("because", redact(problem.summary)),
            ("lines", cited),
            ("decides", problem.decides),
        ]
    )


def _show_estimate(memory_plan: MemoryPlan) -> None:
    run, guess = memory_plan.run, memory_plan.estimate
    setup = run.setup
    if guess is None or setup is None:
        return
    layout = setup.layout
    print_line()
    print_line(f"what the fullest GPU holds, at the {guess.moment}", colour="bold")
    parts = [(str(part), _gib(size)) for part, size in guess.parts.items() if size >= 1e6]
    calibration = memory_plan.calibration
    print_pairs(
        [
            ("read as", f"{run.framework}: {setup.model.parameters / 1e9:.2f} billion weights, {setup.sequence} tokens, "
                        f"micro-batch "
             f"{setup.micro_batch}, accumulation {setup.accumulation}, {layout.gpus} GPUs (data {layout.data}, tensor "
             f"{layout.tensor}, "
             f"pipeline {layout.pipeline}, context {layout.context}), {setup.precision}, sharding {layout.zero}, recomputation "
             f"{setup.recompute}"),
            *parts,
            ("together", _gib(guess.total)),
            ("calibrated", f"{_gib(memory_plan.peak)} (x{calibration.factor:.2f} by the {calibration.source})"
             if calibration.source and memory_plan.peak is not None else None),
            ("GPU", f"{_gib(memory_plan.capacity)} ({memory_plan.capacity_source})" if memory_plan.capacity else "unknown"),
        ]
    )  # fmt: skip


def _arguments_of(rung: Rung) -> str:
    return f": {'; '.join(str(redacted(argument)) for argument in rung.arguments)}" if rung.arguments else ""


def _peak(rung: Rung, capacity: float) -> str | None:
    if rung.peak is None:
        return None
    return f"{_gib(rung.peak)} of {_gib(capacity)}, {_gib(rung.margin or 0.0)} stay free"


def _time(rung: Rung) -> str:
    change = rung.relative_time - 1
    return "as long as now" if abs(change) < 0.005 else f"about {abs(change):.0%} {'longer' if change > 0 else 'shorter'} than now"


def _gib(size: float) -> str:
    return f"{size / 1024**3:,.1f} GiB" if abs(size) >= 1024**3 / 10 else f"{size / 1024**2:,.0f} MiB"


def as_record(memory_plan: MemoryPlan) -> dict[str, Any]:
    """Return a plan as JSON."""
    from assistant.tooling import to_json

    record: dict[str, Any] = to_json(memory_plan)
    return {**record, "problem": to_json(memory_plan.problem)}
