"""Look a word up in what is known about failures: reasons, NVIDIA XIDs, playbooks."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from assistant.content.devices import xids
from assistant.content.playbooks import playbooks
from assistant.content.reasons import reasons
from assistant.errors import ToolError
from assistant.records import Risk
from assistant.tooling import Context, tool

_XID = re.compile(r"\bs?xid\D{0,3}(\d{1,3})\b", re.IGNORECASE)
_CLOSE = 0.72


@tool(risk=Risk.READ)
def look_up(context: Context, word: str) -> dict[str, Any]:
    """Tell what a failure reason or an Xid means, what is done about it and by which playbook; without a word the reasons.

    Args:
        word: Such as `ecc_error`, `nvlink error` or `Xid 79`.
    """
    known = reasons(context.site)
    code = _XID.search(word)
    if code is not None:
        return _xid(context, int(code.group(1)))
    if not word.strip():
        return {"reasons": {name: reason.title for name, reason in known.items()}}
    name = _nearest(word, list(known))
    if name is None:
        raise ToolError(f"{word!r} is no reason that is known here; known: {', '.join(known)}")
    reason = known[name]
    handled = [
        book.name
        for book in playbooks(context.site).values()
        if {name, reason.category.value, reason.action.value} & set(book.handles)
    ]
    return {
        "reason": name,
        "title": reason.title,
        "category": reason.category.value,
        "meaning": reason.meaning,
        "action": reason.action.value,
        "advice": reason.remedy,
        "playbooks": handled,
    }


def _xid(context: Context, code: int) -> dict[str, Any]:
    table = xids(context.site)
    row = table.get(code)
    if row is None:
        raise ToolError(f"Xid {code} is not in the table of Xids; known: {', '.join(str(one) for one in sorted(table))}")
    return {
        "xid": code,
        "meaning": row.meaning,
        "reason": row.reason,
        "action": row.action.value,
        "blames_node": row.blames_node,
        "nvidia": row.vendor,
        "source": row.source,
    }


def _nearest(word: str, names: list[str]) -> str | None:
    wanted = re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")
    if wanted in names:
        return wanted
    parts = set(wanted.split("_")) - {"error", "errors", "a", "an", "the"}
    holding = [name for name in names if parts and parts <= set(name.split("_"))]
    if holding:
        return min(holding, key=len)
    near = get_close_matches(wanted, names, n=1, cutoff=_CLOSE)
    if near:
        return near[0]
    sharing = [
        name for name in names if parts & (set(name.split("_")) - {"error", "file", "not", "found", "type", "key", "value", "name"})
    ]
    return min(sharing, key=len) if sharing else None
