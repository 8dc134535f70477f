"""Conversations without a language model that outlive the process: what was spoken of, in the file of those with one."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assistant.agent.answer import AnswerSource
from assistant.agent.dialogue import Dialogue
from assistant.errors import ConfigError
from assistant.private_files import open_private, private_folder

logger = logging.getLogger(__name__)

KEPT_TALKS = 40
MOST_KEPT = 200_000
"""Characters of the sources of one conversation that are kept; what is longer is looked up again when it is asked for."""
_TABLE = "CREATE TABLE IF NOT EXISTS spoken (thread TEXT PRIMARY KEY, turn INTEGER NOT NULL, state TEXT NOT NULL)"


def recall(path: Path, thread: str) -> Dialogue:
    """Return what was spoken of in a conversation; nothing where there is none, or where it cannot be read any more."""
    if not path.exists():
        return Dialogue()
    try:
        with closing(sqlite3.connect(path, timeout=5.0)) as file:
            row = file.execute("SELECT state FROM spoken WHERE thread = ?", [thread]).fetchone()
        return _from_record(json.loads(row[0])) if row is not None else Dialogue()
    except (sqlite3.Error, ValueError, TypeError, KeyError):
        # a conversation is worth less than an answer
        return Dialogue()


def keep(path: Path, thread: str, state: Dialogue) -> None:
    """Keep what was spoken of; of all conversations the newest. Where it cannot be kept the answer was given all the same."""
    try:
        private_folder(path.parent)
        os.close(open_private(path, os.O_RDWR))
        with closing(sqlite3.connect(path, timeout=5.0)) as file, file:
            file.execute(_TABLE)
            turn = file.execute("SELECT coalesce(max(turn), 0) + 1 FROM spoken").fetchone()[0]
            file.execute("INSERT OR REPLACE INTO spoken VALUES (?, ?, ?)", [thread, turn, json.dumps(_to_record(state))])
            file.execute("DELETE FROM spoken WHERE turn <= ?", [turn - KEPT_TALKS])
    except (sqlite3.Error, OSError, ConfigError) as error:
        logger.warning("this conversation is not kept in %s: %s", path, error)


def _to_record(state: Dialogue) -> dict[str, Any]:
    record = asdict(state)
    room = MOST_KEPT
    for source in record["sources"]:
        room -= len(json.dumps(source["value"], default=str))
        if room < 0:
            source["value"], source["error"] = None, "it was too long to be kept; ask again to see it"
    return record


def _from_record(record: dict[str, Any]) -> Dialogue:
    rows: dict[str, Any] = {
        name: tuple(record[name]) for name in ("jobs", "nodes", "options", "listed", "approvals", "proposed") if name in record
    }
    sources = tuple(AnswerSource(**source) for source in record["sources"])
    fields: dict[str, Any] = {**record, **rows, "sources": sources}
    return Dialogue(**fields)
