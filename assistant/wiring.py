"""Build an engine from the settings: the only place that chooses a scheduler, a transport and a clock."""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assistant.config import Settings
from assistant.content.reasons import reasons
from assistant.diagnose.learning.opinions import MemoryOpinion, ModelOpinion
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.engine import Engine
from assistant.engine.dry_runs import PipelineAnswers
from assistant.engine.outages import OutageLimits, Outages
from assistant.engine.outcomes.living_jobs import NodeLook, PaceNodeLook
from assistant.engine.report import mask_for
from assistant.gate import Gate, Park
from assistant.llm.embedded import EmbeddedEmbedder
from assistant.overall_state import longest_gap
from assistant.policy import Policy, PolicyInForce
from assistant.ports import Approver, Clock, Describer, RecallsProcesses, Scheduler, SystemClock, Transport
from assistant.private_files import close_state_folder
from assistant.store import Store
from assistant.tooling import Context
from assistant.watch.hang import HangLimits
from assistant.watch.progress import PaceLimits, SaveLimits, SpikeLimits
from assistant.watch.watcher import Watcher

if TYPE_CHECKING:
    from assistant.agent.answer import Answer, Listener
    from assistant.agent.chooser import ToolChooser


def open_store(settings: Settings, clock: Clock | None = None) -> Store:
    """Open the store of the settings, making it where there is none.

    Raises:
        StoreError: It cannot be opened; the message says why and what to do.
    """
    close_state_folder(settings.state_folder, settings.store)
    return Store(settings.store, clock or SystemClock(), busy_timeout_s=settings.busy_timeout_s)


def build(
    settings: Settings,
    *,
    approver: Callable[[Store], Approver] | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
    transport: Transport | None = None,
    policy: Policy | PolicyInForce | None = None,
    store: Store | None = None,
    since: datetime | None = None,
    configured: bool = True,
) -> Engine:
    """Return an engine.

    Args:
        settings: What the site wants.
        approver: Whom to ask; without it every question is parked in the inbox.
        clock: Another clock than the machine's.
        scheduler: Another scheduler than that of the settings.
        transport: Another transport than that of the settings.
        policy: Another policy than that of the site's files, which are read anew for each decision.
        store: Another store than that of the settings.
        since: Jobs that ended before this are history; default: when the store was made.
        configured: Whether anybody has said where jobs run; answers to "what is wrong?" tell where nobody has.
    """
    clock = clock or SystemClock()
    store = store or open_store(settings, clock)
    scheduler = scheduler or scheduler_of(settings, clock)
    transport = transport or transport_of(settings)
    if isinstance(scheduler, RecallsProcesses):
        scheduler.recall_processes = store.process_report
    commands = {name: tuple(words) for name, words in settings.commands.items()}

    pipeline: list[PipelineAnswers] = []

    def context_for(incident: int | None, tag: str) -> Context:
        return Context(
            scheduler=scheduler,
            transport=transport,
            clock=clock,
            # without the store's random id: what a call does by chance can be repeated with another store
            random=random.Random(":".join(tag.split(":")[-2:])),
            history=store,
            commands=commands,
            command_timeout_s=settings.command_timeout_s,
            checkpoint_folders=dict(settings.checkpoints),
            incident=incident,
            tag=tag,
            site=settings.content,
            readings=store,
            pipeline=pipeline[0] if pipeline else None,
            services=gate.policy.services,
        )

    chosen_approver = approver(store) if approver is not None else Park(store, expires_after_s=settings.approval_expires_h * 3600)
    gate = Gate(store, context_for, policy or PolicyInForce(settings.content, record=store), chosen_approver)
    watch = settings.watch
    watcher = Watcher(
        scheduler,
        clock,
        hang=HangLimits(silent_s=watch.hang_after_s, factor=watch.hang_factor),
        spike=SpikeLimits(persist_steps=watch.spike_patience_steps),
        pace=PaceLimits(ratio=watch.slow_ratio, persist_s=watch.slow_after_s),
        saves=SaveLimits(factor=watch.late_checkpoints),
        since=since or store.made_at,
        # where time jumps, an answer must not depend on which thread is first
        second=NodeLook(gate, clock, threaded=isinstance(clock, SystemClock)),
        store_id=store.store_id,
        paces=PaceNodeLook(gate, clock, threaded=isinstance(clock, SystemClock)),
    )
    embedder = EmbeddedEmbedder()
    memory = MemoryOpinion(store, embedder, lambda: reasons(settings.content))
    engine = Engine(store, gate, scheduler, clock, watcher, site=settings.content, lease_s=settings.lease_s)
    engine.checkpoint_folders = dict(settings.checkpoints)
    engine.outages = Outages(OutageLimits(watch.shared_settle_s, watch.shared_apart_s, watch.shared_patience_s))
    model = ModelOpinion(lambda: describer_for(settings, store), lambda: reasons(settings.content))
    engine.opinions, engine.embedder = (memory, RankerOpinion(settings.content), model), embedder
    pipeline.append(PipelineAnswers(engine, gap=longest_gap(watch.poll_s), configured=configured))
    return engine


def open_agent(engine: Engine, settings: Settings, *, model: bool = True, thread: str = "") -> Agent:
    """Return what answers questions: with the configured language model, else without one.

    Args:
        engine: Its approver is asked about nothing: give one that parks.
        settings: Name the model, and the folder in which conversations are kept.
        model: False answers without a model also where there is one.
        thread: The conversation to go on with; empty keeps none.

    Raises:
        ConfigError: The settings of the model contradict one another.
    """
    from assistant.agent.semantic import SemanticAgent
    from assistant.engine.intake import AgentRecovery
    from assistant.llm.models import is_set

    talks = settings.store.with_name("conversations.db") if thread else None
    chooser, recovery = chooser_for(settings.content), AgentRecovery(engine)
    without = SemanticAgent(engine.gate, engine.clock, chooser, recovery=recovery, talks=talks, thread=thread)
    if not model or not is_set(settings.model):
        return without
    # nothing of a conversation leaves this machine but to the model itself
    os.environ["LANGSMITH_TRACING"] = "false"
    from assistant.agent.conversation import ModelAgent
    from assistant.llm.models import open_chat, room_of

    chat = open_chat(settings.model, site=settings.content, mask=mask_for(settings, engine.store, engine.scheduler))
    assert chat is not None
    return ModelAgent(
        engine.gate,
        engine.clock,
        chat,
        name=_model_name(settings),
        talks=talks,
        thread=thread,
        room=room_of(settings.model, settings.content),
        without=without,
    )


def describer_for(settings: Settings, store: Store) -> Describer | None:
    """Return the configured model as a describer; None without one, and where no trial showed that it names reasons well."""
    from assistant.llm.models import identity, is_set

    if not is_set(settings.model):
        return None
    from assistant.llm.models import REASON

    if not store.may(identity(settings.model), REASON):
        return None
    from assistant.agent.grounding import ModelDescriber
    from assistant.llm.models import open_chat

    chat = open_chat(settings.model, site=settings.content, mask=mask_for(settings, store))
    return ModelDescriber(_model_name(settings), chat) if chat is not None else None


def summariser_for(settings: Settings, store: Store) -> tuple[str, Callable[[Sequence[str]], str]] | None:
    """Return the configured model's name and what sums up by it; None where no trial showed that it does that better."""
    from assistant.llm.models import identity, is_set

    if not is_set(settings.model):
        return None
    from assistant.llm.models import SUMMARY, summariser_of

    if not store.may(identity(settings.model), SUMMARY):
        return None
    from assistant.llm.models import open_chat

    chat = open_chat(settings.model, site=settings.content, mask=mask_for(settings, store))
    return (_model_name(settings), summariser_of(chat)) if chat is not None else None


def _model_name(settings: Settings) -> str:
    return settings.model.name or (settings.model.path.name if settings.model.path is not None else "model")


def chooser_for(site: Path | None = None) -> ToolChooser:
    """Return what chooses the tool for a sentence: cues and words, and what was learnt from sentences where the encoder works."""
    from assistant.agent.chooser import BlendedChooser, WordChooser, reader

    words = WordChooser.load(site)
    learnt = reader(words)
    return words if learnt is None else BlendedChooser(words, learnt.choose, name=learnt.name)


class Agent(Protocol):
    """Answers questions one after the other."""

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        """Answer one."""
        ...


def scheduler_of(settings: Settings, clock: Clock) -> Scheduler:
    """Return the scheduler that the settings name: what `open_scheduler` of the module of that name returns.

    Raises:
        ConfigError: They name one that lives in memory only.
    """
    # the settings take no name but that of a module there
    module = importlib.import_module(f"assistant.schedulers.{settings.scheduler}")
    opened: Scheduler = module.open_scheduler(settings, clock)
    return opened


def local_folder(settings: Settings) -> Path:
    """Return the folder of the embedded scheduler."""
    return settings.state_folder / "local"


def transport_of(settings: Settings) -> Transport:
    """Return the way to the nodes that the settings name.

    Raises:
        UsageError: The settings name none that is known.
    """
    if settings.transport == "local":
        from assistant.transports.local import LocalTransport

        return LocalTransport(local_folder(settings) / "nodes")
    if settings.transport == "ssh":
        from assistant.transports.ssh import SshTransport

        return SshTransport(settings.ssh)
    from assistant.transports.local import RecordedTransport

    return RecordedTransport.from_file(settings.state_folder / "recorded.toml")
