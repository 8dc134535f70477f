"""`nightshift bench`: how fast this machine starts, scans and diagnoses; ratios to the limits, so that machines compare."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from assistant import processes
from assistant.cli.context import Json, app, examples, invocation_of
from assistant.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from assistant.cli.measure.agent_bench import QuestionAnswerer
    from assistant.config import Settings
    from assistant.engine import Engine
from dataclasses import replace
from typing import TYPE_CHECKING

from assistant.errors import InputError
from assistant.output_files import write_output

if TYPE_CHECKING:
    from assistant.diagnose.case import Label
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.ranked import Reliability
    from assistant.ports import Ranker

# `nightshift bench calibration`: how far confidence can be believed.

LIKE_RANKER = 0.6
"""How alike lines are that the ranker may not have learned from."""


def calibration(
    context: typer.Context,
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Cases with label.toml, or with labels.jsonl beside them.")
    ],
    on_seen: Annotated[
        bool, typer.Option("--seen", help="Leave the rules as they are, although they may know the wordings of these cases.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the curves of these cases, as a calibration.toml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell how far confidence can be believed.

    Each case is diagnosed with the signatures hidden that know its wording, and the line ranker is trained without it. Confidence
    comes from curves that were fitted on the other four fifths of the cases. For each tenth of confidence: cases, mean confidence,
    share right; then the mean distance between the two (ECE) and the Brier score.
    """
    from assistant.diagnose.case import read_labels
    from assistant.diagnose.knowledge import Knowledge, curves, fitted
    from assistant.diagnose.learning.ranked import as_toml, guesses, held_out, reliability, verdicts

    labels = [label for folder in folders for label in read_labels(folder)]
    knowledge = Knowledge.load(invocation_of(context).site)
    answers = [answer for answer in verdicts(labels, knowledge, hide_wording=not on_seen) if answer.reason != "unknown"]
    rule = [(answer.raw, answer.right) for answer in answers]
    ranker = [(answer.raw, answer.right) for answer in guesses(labels, knowledge, _ranker(labels, invocation_of(context).site))]
    if min(len(rule), len(ranker)) < 2:
        raise InputError(f"{len(labels)} cases are too few: a curve needs some that are diagnosed")
    encoder = _encoder(knowledge, labels)
    tables = [("rules, as computed", rule), ("rules", held_out(rule)), ("linear line ranker", held_out(ranker))]
    for name, seen_of in (*tables, *([("line ranker with the encoder", held_out(encoder))] if encoder else [])):
        _show(name, reliability(seen_of), as_json=as_json)
    if write is not None:
        made_from = f"{len(labels)} cases of {', '.join(folder.name for folder in folders)}; wordings hidden: {not on_seen}".lower()
        current = curves(invocation_of(context).site)  # how sure a good end is has a curve of its own, of raw logs
        calibrated = replace(current, made_from=made_from, rule=fitted(rule), ranker=fitted(ranker), encoder=fitted(encoder))
        write_output(write, as_toml(calibrated))


def _encoder(knowledge: Knowledge, labels: Sequence[Label]) -> list[tuple[float, bool]]:
    """Return how sure the shipped encoder is of each case, and whether it is right; nothing where it does not work.

    It was trained without lines like those of the suites in tests/cases; of other cases it may know the wordings.
    """
    from assistant.diagnose.learning.ranked import guesses
    from assistant.llm import embedded

    if not embedded.status().works:
        return []
    return [(guess.raw, guess.right) for guess in guesses(labels, knowledge, embedded.ranker())]


def _ranker(labels: Sequence[Label], site: Path | None) -> Ranker:
    from assistant.diagnose.learning.ranked import unseen_lessons
    from assistant.llm.ranker import LinearRanker, lessons, train

    return LinearRanker(train(unseen_lessons(lessons(site), labels, LIKE_RANKER)))


def _show(name: str, table: Reliability, *, as_json: bool) -> None:
    if as_json:
        bins = [band._asdict() for band in table.bins]
        print_json({"of": name, "cases": table.cases, "right": table.right, "ece": table.error, "brier": table.brier, "bins": bins})
        return
    print_line(f"{name}: {table.cases} cases, {table.right:.3f} right, ECE {table.error:.3f}, Brier {table.brier:.3f}")
    rows = [(f"{band.low:.1f}-{band.high:.1f}", band.cases, f"{band.confidence:.2f}", f"{band.right:.2f}") for band in table.bins]
    print_table(("confidence", "cases", "mean", "right"), rows)


# `nightshift bench agent`: questions about recorded clusters, scored without a judge.

CASES = Path("tests/cases/agent")


def agent(
    context: typer.Context,
    cases: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Cases and their states; tests/cases/agent of the sources.")
    ] = CASES,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A GGUF file, the URL of an endpoint, `configured`, `none`, or `words`: none and no encoder.",
        ),
    ] = "none",
    name: Annotated[str, typer.Option("--name", help="What the endpoint calls its model.")] = "",
    faults: Annotated[bool, typer.Option("--faults", help="Print each task that failed, and why.")] = False,
    as_json: Json = False,
) -> None:
    """Measure the agent on questions about recorded clusters.

    Of each group of cases: how often the right tool was chosen, and how often the whole task succeeded: the facts named, nothing
    said that must not be said, sources given, and the cluster left as it was. Of a language model also: how many it answered
    itself; for the others the answer without one stood in.
    """
    from assistant.cli.measure.agent_bench import load_cases, run_cases, shares

    scored = run_cases(load_cases(cases), cases, _agents(invocation_of(context).settings, model, name))
    groups = shares(scored)
    if as_json:
        for share in groups:
            print_json(share._asdict())
    else:
        rows = [(group.name, group.cases, f"{group.tool:.3f}", f"{group.success:.3f}", f"{group.by_model:.3f}") for group in groups]
        print_table(("cases", "number", "right tool", "task done", "by the model"), rows)
        print_line(f"median {statistics.median(score.seconds for score in scored) * 1000:.0f} ms an answer")
    for score in scored if faults else ():
        if score.faults or not score.tool:
            read_as = score.answer.intent or score.answer.mode if score.answer is not None else "nothing"
            print_line(f"{' / '.join(score.case.ask)}: taken for {read_as}; {'; '.join(score.faults) or 'wrong tool'}")


def _agents(settings: Settings, model: str, name: str) -> Callable[[Engine], QuestionAnswerer]:
    """Return what makes the agent that is measured.

    Raises:
        ConfigError: There is no such model, or none is configured.
        InputError: The file of the model cannot be used.
    """
    from dataclasses import replace

    from assistant.agent.chooser import WordChooser
    from assistant.agent.semantic import SemanticAgent
    from assistant.errors import ConfigError
    from assistant.llm.models import is_set, process_of
    from assistant.wiring import open_agent

    if model == "words":
        chooser = WordChooser.load(settings.content)
        return lambda engine: SemanticAgent(engine.gate, engine.clock, chooser)
    if model not in ("none", "configured"):
        url = model if "://" in model else ""
        terms = replace(settings.model, path=None if url else Path(model), sha256="", url=url, name=name)
        settings = replace(settings, model=terms)
    if model != "none":
        if not is_set(settings.model):
            raise ConfigError("no language model is configured; nightshift model use FILE or URL, or --model FILE")
        if settings.model.path is not None:
            # a file that cannot be used is an error here, not 346 answers without a model
            process_of(settings.model, settings.content).check()
    return lambda engine: open_agent(engine, settings, model=model != "none")


class _Bench(TyperGroup):
    """Takes what is no command of its own for paths to measure."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command before the words where none is named."""
        has_command = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if has_command else ["speed", *args])


bench_app = app(cls=_Bench, help="Measure start-up, scanning and diagnosis on this machine.")
bench_app.command("agent", epilog=examples("nightshift bench agent", "nightshift bench agent --model model.gguf --faults"))(agent)
bench_app.command(
    "calibration",
    epilog=examples("nightshift bench calibration runs/labelled", "nightshift bench calibration a/ b/ --write calibration.toml"),
)(calibration)

START_LIMIT_MS = 200.0
SCAN_LIMIT_MB_S = 400.0
DIAGNOSE_LIMIT_S = 0.3
STARTED = (("--help",), ("incidents",))
"""The commands whose start-up counts: what a person or a cron job runs all day."""


class Figure(NamedTuple):
    """One measurement."""

    name: str
    value: float
    unit: str
    limit: float
    smaller_is_better: bool

    @property
    def ratio(self) -> float:
        """How many times better than the limit; below 1 misses it."""
        if self.smaller_is_better:
            return self.limit / self.value if self.value else float("inf")
        return self.value / self.limit


def startup_ms(program: Sequence[str], words: Sequence[str], runs: int, environment: Mapping[str, str]) -> list[float]:
    """Return the wall times of starting a command, in milliseconds, sorted.

    Args:
        program: What stands before the command: the path of `nightshift`, or `python -m assistant`.
        words: The command.
        runs: How often; one more run before them warms the disk's cache and makes the store.
        environment: Variables on top of this process's own.
    """
    times = []
    for number in range(runs + 1):
        begin = time.perf_counter()
        processes.run([*program, *words], environment={**os.environ, **environment}, check=True, capture_output=True)
        if number:
            times.append((time.perf_counter() - begin) * 1000)
    return sorted(times)


def startup(runs: int) -> Iterator[Figure]:
    """Yield the median start-up times of this installation, in a store of their own."""
    with tempfile.TemporaryDirectory(prefix="nightshift-bench-") as folder:
        own = {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "NIGHTSHIFT_STORE": f"{folder}/store.db"}
        for words in STARTED:
            times = startup_ms([sys.executable, "-m", "assistant"], words, runs, own)
            yield Figure(f"start-up of nightshift {' '.join(words)}", statistics.median(times), "ms", START_LIMIT_MS, True)


def scanning(logs: Sequence[Path], site: Path | None) -> Figure:
    """Return how fast logs are scanned with all signatures and filters."""
    from assistant.logs.scan import scan_log
    from assistant.rules.loading import load_patterns

    patterns = load_patterns(site)
    begin = time.perf_counter()
    size = sum(scan_log(log, patterns).size_bytes for log in logs)
    return Figure("scanning", size / 1e6 / (time.perf_counter() - begin), "MB/s", SCAN_LIMIT_MB_S, False)


def diagnosing(cases: Sequence[Path], site: Path | None) -> Figure:
    """Return the median time of a diagnosis."""
    from assistant.diagnose.case import Case
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.verdict import diagnose

    knowledge = Knowledge.load(site)
    times = []
    for case in cases:
        begin = time.perf_counter()
        diagnose(Case.from_path(case), knowledge)
        times.append(time.perf_counter() - begin)
    return Figure("diagnosis", statistics.median(times), "s", DIAGNOSE_LIMIT_S, True)


@bench_app.command(
    "speed",
    epilog=examples(
        "nightshift bench",
        "nightshift bench speed --runs 3",
        "nightshift bench /var/log/jobs/*.out",
        "nightshift bench runs/*/ --json",
    ),
)
def bench(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Logs or folders of your own to scan and diagnose.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, metavar="N", help="How often each command is started.")] = 10,
    as_json: Json = False,
) -> None:
    """Measure start-up, scanning and diagnosis on this machine.

    Without a PATH only start-up is measured; a figure of scanning means something for large logs only.
    """
    figures = list(startup(runs))
    if paths:
        site = invocation_of(context).site
        logs = [log for path in paths for log in (sorted(path.glob("job.log*")) if path.is_dir() else [path])]
        figures += [scanning(logs, site), diagnosing(paths, site)]
    if as_json:
        for figure in figures:
            print_json({**figure._asdict(), "ratio": round(figure.ratio, 3)})
        return
    rows = [
        (figure.name, f"{figure.value:.3g} {figure.unit}", f"{figure.limit:g} {figure.unit}", f"{figure.ratio:.1f} x")
        for figure in figures
    ]
    print_table(("what", "measured", "limit", "better than the limit"), rows)
