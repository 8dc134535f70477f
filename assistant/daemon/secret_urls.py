"""Read files that hold addresses: their URLs carry passwords and tokens, so nobody else may read them."""

from __future__ import annotations

from pathlib import Path

from assistant.content.trusted import read_trusted
from assistant.errors import ConfigError, ContentError

__all__ = ["urls_of"]


def urls_of(path: Path, setting: str) -> list[str]:
    """Return the URLs of a file, one a line; empty lines and those that begin with `#` are left out.

    Args:
        path: The file.
        setting: Its key, for messages.

    Raises:
        ConfigError: It cannot be read, everybody may read it, or it holds none.
    """
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"{setting}: {path} can be read by everybody, and holds secrets; chmod 600 {path}")
        # who may write it chooses where everything is sent
        lines = read_trusted(path).decode("utf-8").splitlines()
    except ContentError as error:
        raise ConfigError(f"{setting}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error}") from error
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise ConfigError(f"{setting}: {path} holds no URL; write one a line")
    return urls
