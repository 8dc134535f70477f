"""`nightshift bench agent`: questions about recorded clusters, scored without a judge."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from assistant.config import Settings
    from assistant.doors.agent_bench import Asks
    from assistant.engine import Engine

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
    from assistant.doors.agent_bench import load_cases, run_cases, shares

    scored = run_cases(load_cases(cases), cases, _agents(door_of(context).settings, model, name))
    found = shares(scored)
    if as_json:
        for share in found:
            print_json(share._asdict())
    else:
        rows = [(one.name, one.cases, f"{one.tool:.3f}", f"{one.success:.3f}", f"{one.by_model:.3f}") for one in found]
        print_table(("cases", "number", "right tool", "task done", "by the model"), rows)
        print_line(f"median {statistics.median(one.seconds for one in scored) * 1000:.0f} ms an answer")
    for one in scored if faults else ():
        if one.faults or not one.tool:
            read_as = one.answer.intent or one.answer.mode if one.answer is not None else "nothing"
            print_line(f"{' / '.join(one.case.ask)}: taken for {read_as}; {'; '.join(one.faults) or 'wrong tool'}")


def _agents(settings: Settings, model: str, name: str) -> Callable[[Engine], Asks]:
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
