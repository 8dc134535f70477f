"""The chat on a simulated cluster: the real app, backend and engine; only the cluster and time are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from assistant.agent.semantic import SemanticAgent
from assistant.config import ChatSettings
from assistant.engine import Engine
from assistant.policy import Mode
from assistant.tui.app import ChatApp
from assistant.tui.backend import ChatBackend
from assistant.tui.sessions import Talks
from assistant.wiring import Agent
from tests.scenarios.scene import Scene
from tests.tui.waiting import until

WATCH = "watch@login1:4821.77"
"""The watch over a scene."""
MakesAgent = Callable[[Engine], Agent]


class OnScene:
    """Builds nothing: gives the chat the engine of a scene, with an agent that needs no model."""

    def __init__(self, scene: Scene, agent: MakesAgent | None = None) -> None:
        self._scene, self._agent = scene, agent

    def engine(self) -> Engine:
        return self._scene.engine

    def agent(self, engine: Engine, thread: str) -> tuple[Agent, str]:
        if self._agent is not None:
            return self._agent(engine), "scripted"
        return SemanticAgent(engine.gate, engine.clock), "words only"


def app_on(
    scene: Scene,
    *,
    by: str = "chat:alice",
    thread: str = "",
    talks: Talks | None = None,
    agent: MakesAgent | None = None,
    configured: bool = True,
    settings: ChatSettings | None = None,
) -> ChatApp:
    starts, owner = OnScene(scene, agent), f"{by}@here:1.1"
    return ChatApp(
        lambda post: ChatBackend(starts, post, by=by, owner=owner, clock=scene.clock, configured=configured),
        thread=thread,
        talks=talks,
        settings=settings,
    )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A quiet cluster."""
    return Scene(tmp_path, mode=Mode.PROPOSE)


@pytest.fixture
def broken(scene: Scene) -> Scene:
    """A job has died of a GPU; the cordon of its node waits for a yes."""
    scene.cluster.submit(scene.spec)
    scene.watch(120)
    assert scene.engine.store.approvals()
    return scene


def pass_of_watch(scene: Scene, trouble: tuple[str, ...] = ()) -> None:
    """Let a watch make a pass now, as the store shows it."""
    scene.engine.store.keep_pass(WATCH, at=scene.clock.now(), seconds=0.4, leads=True, whole=not trouble, trouble=trouble)


@asynccontextmanager
async def opened(
    scene: Scene,
    size: tuple[int, int] = (120, 40),
    *,
    thread: str = "",
    talks: Talks | None = None,
    agent: MakesAgent | None = None,
    watch: bool = True,
    configured: bool = True,
    notifications: bool = False,
    settings: ChatSettings | None = None,
) -> AsyncIterator[tuple[ChatApp, Pilot[int]]]:
    """Run the chat until it has read store and scheduler once, and the agent is ready; a watch has just made a pass."""
    if watch:
        pass_of_watch(scene)
    app = app_on(scene, thread=thread, talks=talks, agent=agent, configured=configured, settings=settings)
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await until(
            pilot,
            lambda: app.store_snapshot is not None and app.cluster_snapshot is not None and app.cluster_snapshot.at is not None,
            "the first look",
        )
        yield app, pilot


Opens = Callable[..., AbstractAsyncContextManager[tuple[ChatApp, Pilot[int]]]]
