"""What diagnosis knows: reasons, XIDs and the compiled patterns, loaded together once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assistant.content.reasons import Reason, Xid, reasons, xids
from assistant.rules.matching import Patterns, load_patterns


@dataclass(frozen=True)
class Knowledge:
    """The shipped content with the site's over it."""

    reasons: Mapping[str, Reason]
    xids: Mapping[int, Xid]
    patterns: Patterns

    @classmethod
    def load(cls, site: Path | None = None) -> Knowledge:
        """Read and compile everything.

        Raises:
            ContentError: A file is malformed; the message names file, line and key.
        """
        return cls(reasons(site), xids(site), load_patterns(site))
