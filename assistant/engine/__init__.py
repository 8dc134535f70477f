"""The one pipeline: open an incident, gather evidence, diagnose, recover, verify, learn; and resume after a crash.

The store is the state. Every stage writes its row before the next begins, so a process may die anywhere: `resume` reads what is
unfinished and goes on. A lease makes sure that two processes never work on the same incident.

Read `engine` first: it has the stages; the others see it through `ports`. `intake` says which incident an event opens or joins;
`gather` reads what the attempt left, and `evidence/` what the cluster adds, in the order of `cluster_evidence`. `retry_policy`,
`outages`, `drivers` and `faulty_nodes` say what is started again, what waits for others and which node is set aside at once;
`outcomes/` how an incident ends, and `learning`, `node_ledger` and `report` what is kept of it; `shared_words` and `node_remedy`
word it for people. `written_files` is what a silent job still writes, `ownership` who may work, `reconciliation` what earlier
passes left open. Nothing is changed in `dry_runs` and `backtest/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> object:
    """Load the engine when it is asked for: its parts are many, and the chat names its lease before its first paint."""
    if name != "Engine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assistant.engine.engine import Engine

    return Engine
