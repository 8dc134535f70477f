"""The agent without a language model: the time of an answer, of a cold `nightshift ask`, of the choice among 60 tools; memory.

    python -m bench.agent [--runs 9]

Answers are given about a recorded cluster; the encoder is loaded where it works. The 60 intents are the real ones and as many made
from them as are missing, each with its sentences and cues.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from assistant.agent.chooser import BlendedChooser, IntentChoice, QuestionIntent, WordChooser, concepts, intents, reader
from assistant.agent.semantic import SemanticAgent
from assistant.cli.measure.agent_bench import load_cases, open_state
from assistant.engine.intake import AgentRecovery
from assistant.wiring import chooser_for

CASES = Path(__file__).parents[1] / "tests" / "cases" / "agent"
TOOLS = 60
WARM_S, COLD_S, MORE_MS = 0.3, 1.5, 20.0


def many(known: Mapping[str, QuestionIntent], wanted: int) -> dict[str, QuestionIntent]:
    """Return as many intents as wanted: the real ones, then others made from them, with words of their own."""
    found = dict(known)
    for number, intent in enumerate(cycle(known.values())):
        if len(found) >= wanted:
            return found
        name = f"{intent.name}_{number}"
        says = tuple(f"{text} quux{number} {word}" for text, word in zip(intent.says, cycle(("early", "loudly", "twice"))))
        found[name] = replace(intent, name=name, says=says)
    return found


def blended(words: WordChooser) -> Callable[[str], Sequence[IntentChoice]]:
    """Return the choice by words and, where the encoder works, by what was learnt from sentences."""
    learnt = reader(words)
    return words.choose if learnt is None else BlendedChooser(words, learnt.choose, name=learnt.name).choose


def median_ms(run: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return the median time of one call, each text once."""
    times = []
    for text in texts:
        start = time.perf_counter()
        run(text)
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def cold_s(runs: int) -> tuple[list[float], float]:
    """Return the times of `nightshift ask` as a process of its own, the best first, and the CPU seconds of one run."""
    times = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="nightshift-ask-") as folder:
        own = {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "PATH": "/usr/bin:/bin"}
        for _ in range(runs):
            start = time.perf_counter()
            words = [sys.executable, "-m", "assistant", "ask", "what is wrong now?"]
            subprocess.run(words, env=own, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sorted(times), used / runs


def main() -> int:
    """Measure, print, and return 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="Cold starts.")
    options = parser.parse_args()
    questions = [case.ask[0] for case in load_cases(CASES) if case.state == "night" and case.kind == "answer"][:100]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(prefix="nightshift-agent-") as folder:
        engine, _ = open_state(CASES / "states" / "night.toml", Path(folder))
        agent = SemanticAgent(engine.gate, engine.clock, chooser_for(), recovery=AgentRecovery(engine))
        agent.ask(questions[0])
        warm = median_ms(agent.ask, questions) / 1000
        engine.store.close()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    choices = [blended(WordChooser(known, concepts())) for known in (intents(), many(intents(), TOOLS))]
    for choose in choices:  # sentences that the encoder has seen are as fast for both
        median_ms(choose, questions)
    few, more = (median_ms(choose, questions) for choose in choices)
    cold, used = cold_s(options.runs)
    print(f"an answer, warm, median of {len(questions)} questions    {warm * 1000:7.1f} ms   limit {WARM_S * 1000:.0f} ms")
    print(f"choice among {len(intents())} intents, median             {few:7.2f} ms")
    print(f"choice among {TOOLS} intents, median             {more:7.2f} ms   {more - few:+.2f} ms, limit {MORE_MS:+.0f} ms")
    spread = f"best {cold[0]:.2f} s  worst {cold[-1]:.2f} s  of {options.runs}  CPU {used:.2f} s"
    print(f"nightshift ask, cold, median                {statistics.median(cold):7.2f} s    {spread}  limit {COLD_S} s")
    print(f"memory that answers add to the process      {grown:7.0f} MB   with the encoder, the rules and {len(questions)} answers")
    return int(warm > WARM_S or more - few > MORE_MS or statistics.median(cold) > COLD_S)


if __name__ == "__main__":
    raise SystemExit(main())
