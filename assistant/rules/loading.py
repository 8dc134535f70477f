"""Load all that Nightshift looks for in a line: what is shipped, and what a site wrote, which is proven first."""

from __future__ import annotations

from pathlib import Path

from assistant.content.reading import filters
from assistant.content.reasons import reasons
from assistant.rules.learned import prove
from assistant.rules.matching import Entry, Patterns, alarm_words, check_linear, protected_lines


def load_patterns(site: Path | None = None) -> Patterns:
    """Return everything in knowledge/, shipped and the site's, compiled or taken from the cache.

    Raises:
        ContentError: A file is malformed, Hyperscan or RE2 refuses a pattern, or a filter of the site could hide an error.
    """
    known_reasons = reasons(site).values()
    signatures: list[Entry] = [entry for reason in known_reasons for entry in reason.signature]
    herrings: list[Entry] = [entry for reason in known_reasons for entry in reason.herring]
    patterns = Patterns([*signatures, *herrings, *filters(site)], alarm_words(site))
    if site is not None:
        shipped: list[Entry] = [entry for reason in reasons(None).values() for entry in reason.signature]
        shipped += [entry for reason in reasons(None).values() for entry in reason.herring]
        known_patterns = {(entry.id, entry.pattern) for entry in shipped}
        for entry in (*signatures, *herrings):
            if (entry.id, entry.pattern) not in known_patterns:
                check_linear(entry)
    if site_filters := [entry for entry in filters(site) if entry not in filters(None)]:
        prove(site_filters, protected_lines(site), patterns)
    return patterns
