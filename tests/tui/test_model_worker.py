"""A language model in a process of its own that dies in the middle of an answer: the chat says so, keeps the text, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from assistant.agent.answer import Answer, AnswerSource, Listener
from assistant.cli.measure.agent_bench import open_state
from assistant.config import ModelSettings, Settings
from assistant.engine import Engine
from assistant.llm.models import close_models
from assistant.ports import JumpingClock
from assistant.tui.widgets.exchange import CUT_SHORT
from assistant.wiring import Agent, open_agent
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, exchange, say, seen_text
from tests.tui.waiting import until

STATE = Path(__file__).parents[1] / "cases" / "agent" / "states" / "night.toml"

TINY = Path(__file__).parents[1] / "models" / "tiny-dialogue.gguf"
QUESTION, BY_MODEL = "is 4830 running?", "model:tiny-dialogue.gguf"
TRIES = 8
pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make deps-llama")


def workers() -> list[int]:
    """Return the processes of models that this one has begun."""
    command = ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "assistant.llm.worker" in line]


@contextmanager
def slowed(processes: list[int]) -> Iterator[None]:
    """Let processes run for a tenth of the time: a tiny model has else said all before anybody can end it."""
    done = threading.Event()

    def brake() -> None:
        with suppress(ProcessLookupError):
            while not done.wait(0.002):
                for process in processes:
                    os.kill(process, signal.SIGSTOP)
                done.wait(0.018)
                for process in processes:
                    os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=brake)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Watched:
    """The agent as it is, with an ear of the test's at what its model says."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.kills: list[int] = []
        """Processes to be ended at the model's next word."""

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        def listening(what: AnswerSource | str) -> None:
            if isinstance(what, str) and what.strip():
                while self.kills:
                    os.kill(self.kills.pop(), signal.SIGKILL)
            assert listener is not None
            listener(what)

        return self.agent.ask(question, trusted=trusted, listener=listening)


class Night(Scene):
    """The recorded night that the tiny model was taught to talk about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine, _ = open_state(STATE, folder)
        assert isinstance(self.engine.clock, JumpingClock)
        self.clock = self.engine.clock


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    found = Night(tmp_path)
    yield found
    found.engine.store.close()


@pytest.fixture
def model() -> Iterator[ModelSettings]:
    yield ModelSettings(path=TINY, threads=1)
    close_models()


async def test_a_worker_that_is_killed_in_the_middle_of_an_answer(night: Night, model: ModelSettings) -> None:
    settings = Settings(state_folder=night.folder, store=night.engine.store.path, model=model)
    watched: list[Watched] = []

    def make(engine: Engine) -> Agent:
        watched.append(Watched(open_agent(engine, settings)))
        return watched[0]

    async with opened(night, agent=make) as (app, pilot):

        async def asked(number: int) -> Answer:
            await say(pilot, QUESTION)
            await answered(pilot, number)
            answer = exchange(app, number).reply.answer
            assert answer is not None
            return answer

        await until(pilot, lambda: watched)
        assert (await asked(1)).mode == BY_MODEL
        for number in range(2, 2 + TRIES):
            killed = workers()
            watched[0].kills = [*killed]
            with slowed(killed):
                told = await asked(number)
            if told.begun:
                break
        assert told.begun, f"in {TRIES} answers it never died in the middle"
        assert (told.mode, told.intent) == ("semantic", "job_status")
        assert "4830" in told.text
        assert "running" in told.text
        words = told.begun.split(" [", 1)[0]  # what it cites is shown as a link
        begun = f"{CUT_SHORT} {' '.join(words.split())}"
        await until(pilot, lambda: begun in " ".join(seen_text(app).split()), begun)
        seen = " ".join(seen_text(app).split())
        assert "ended by SIGKILL" in seen
        assert "this is the answer without a model" in seen

        assert (await asked(number + 1)).mode == BY_MODEL
        assert not set(killed) & set(workers())
