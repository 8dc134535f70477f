"""The settings: what they are (`settings`), where they come from and what they mean (`loading`)."""

from __future__ import annotations

from assistant.config.loading import LoadedConfig, config_files, load
from assistant.config.settings import (
    ChatSettings,
    EvaluationSettings,
    ModelSettings,
    Settings,
    SlurmSettings,
    SshSettings,
    WatchSettings,
)

__all__ = [
    "ChatSettings",
    "EvaluationSettings",
    "LoadedConfig",
    "ModelSettings",
    "Settings",
    "SlurmSettings",
    "SshSettings",
    "WatchSettings",
    "config_files",
    "load",
]
