"""Other stores of Nightshift on the same cluster, by the tags that they leave on nodes and jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from assistant.records import Job, Node, tags_in
from assistant.records.tags import MARK
from assistant.watch.unseen import Remark, Trouble

__all__ = ["stores_on_jobs", "stores_on_nodes"]

LATELY = timedelta(hours=24)
"""Of a job: an older tag says nothing about who is at work now."""


def stores_on_nodes(own: str, nodes: Iterable[Node]) -> list[Trouble]:
    """Return a trouble for each other store whose cordons stand; only administrators write a node's reason."""
    places: dict[str, list[str]] = {}
    for node in nodes:
        for tag in tags_in(node.reason) if MARK in node.reason else ():
            if tag.store not in ("", own):
                places.setdefault(tag.store, []).append(node.name)
    return [
        Trouble(
            f"store {store}",
            f"another Nightshift (store {store}) has cordoned {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}: this "
            "one leaves them alone. A cluster needs one store: stop one of the two, or uncordon what a store that is gone left",
        )
        for store, names in places.items()
    ]


def stores_on_jobs(own: str, jobs: Iterable[Job], now: datetime) -> list[Remark]:
    """Return a remark for each other store whose tag a job of the last day carries; it may be a forgery of the job's user."""
    remarks: dict[str, Remark] = {}
    for job in jobs:
        if MARK not in job.comment or job.submitted is None or now - job.submitted > LATELY:
            continue
        for tag in tags_in(job.comment):
            if tag.store not in ("", own, *remarks):
                text = f"job {job.id} of {job.user} carries the tag of another Nightshift (store {tag.store})"
                remarks[tag.store] = Remark(
                    f"store {tag.store} on jobs",
                    f"{text}: it is not restarted by this one; where no other is at work, ask {job.user}",
                )
    return list(remarks.values())
