"""`nightshift model test`: what the configured language model may be trusted with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from assistant.doors.cli.door import Door, door_of
from assistant.doors.cli.group import examples
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_table
from assistant.errors import NightshiftError, UsageError

if TYPE_CHECKING:
    from assistant.llm.trial import SummaryCase, Trial

TEST_EXAMPLES = examples("nightshift model test", "nightshift model test --json")


def try_model(context: typer.Context, as_json: Json = False) -> None:
    """Try the model in use against the answers without one.

    Fixed small cases: name the reason of a failure, write a filter rule, sum up an incident. A task is handed to the model only
    where it does better here; what came out is kept with the model's sha256.
    """
    from assistant.llm.models import close_models, identity, open_chat

    door = door_of(context)
    used = door.settings.model
    chat = open_chat(used, site=door.site)
    if chat is None:
        raise UsageError("there is no language model to test; nightshift model use FILE or URL")
    model = identity(used)
    door.say(f"testing {used.path or used.name}; a model on processors takes minutes")
    try:
        trials = _trials(door, chat)
    finally:
        close_models()
    now = door.store.clock.now()
    for trial in trials:
        door.store.keep_trial(model, trial.task, {"cases": trial.cases, "model": trial.model, "baseline": trial.baseline}, now)
    if as_json:
        for trial in trials:
            print_json({**trial.__dict__, "passed": trial.passed, "model_sha256": model})
        return
    rows = [(one.task, one.cases, one.model, one.baseline, one.failed or "", "yes" if one.passed else "no") for one in trials]
    print_table(("task", "cases", "model", "without", "errors", "handed to the model"), rows)
    print_line(f"kept for the model {model[:12]}")


def _trials(door: Door, chat: Any) -> list[Trial]:
    from assistant.content.reasons import reasons
    from assistant.llm import trial

    given = trial.cases(door.site)
    names = sorted({*reasons(door.site), *(case.expect for case in given.reason)})
    first = given.reason[0].lines
    # a model that cannot be asked at all is an error, not a model that knows nothing
    trial.namer_of(chat, names)(first)
    namer, writer = trial.namer_of(chat, names), trial.writer_of(chat)
    return [
        trial.tried_reasons(given.reason, namer, _Without(door)),
        trial.tried_filters(given.filter, writer, _written, _matches),
        trial.tried_summaries(given.summary, trial.summariser_of(chat), _opening),
    ]


def _opening(case: SummaryCase) -> str:
    """Return how the report without a model begins."""
    from assistant.engine.brief import opening

    return opening(case.summary, case.state, case.note)


class _Without:
    """Names reasons by all that there is without a language model: rules, memory, the line ranker."""

    def __init__(self, door: Door) -> None:
        self.engine = door.engine()

    def __call__(self, lines: Sequence[str]) -> str:
        """Return the reason that is named."""
        import tempfile

        from assistant.diagnose.case import Case
        from assistant.diagnose.verdict import diagnose

        with tempfile.TemporaryDirectory(prefix="nightshift-test-") as folder:
            log = Path(folder) / "job.log"
            log.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return diagnose(Case.from_path(log), self.engine.knowledge, self.engine.opinions).reason


def _written(lines: Sequence[str]) -> str:
    """Return the pattern that is written without a model."""
    from assistant.logs.templates import Miner
    from assistant.rules.writer import pattern_of

    miner = Miner()
    miner.add(lines)
    templates = miner.templates()
    return (pattern_of(templates[0].pieces(), lines) or "") if len(templates) == 1 else ""


def _matches(pattern: str, line: str) -> bool:
    """Tell whether a pattern matches a line, by Hyperscan, which takes bounded time; False for a pattern that it refuses."""
    from assistant.rules.compiling import Expression, compiled_alone

    hits: list[int] = []
    try:
        compiled = compiled_alone(Expression("written", pattern, False))
    except NightshiftError:
        return False
    compiled.scan(line.encode(), match_event_handler=lambda *_: hits.append(1))
    return bool(hits)
