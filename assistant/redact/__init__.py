"""Take secrets out of text before it reaches the disk, a model or a screen; hide names, and show them again.

Read `text` first: it collects what the detectors find and replaces it by `[redacted]`. It detects keys of several lines and URLs
itself; `syntax` detects a value behind a name such as password, `literals` values of more than one text (constructors, lists, XML),
`prompts` what was typed where a program asked, `forms` texts that are secrets by their own form (`knowledge/secrets.toml`),
`neighbours` what only the text around it tells, `shell` what is given to a program or kept in files, `tables` cells of
columns and values of SQL. `disguises` shows a text without colours, wide signs and escaped letters. `values` judges names and
values. `cuts` takes pieces of a text, `command_words` the secrets out of commands, so that no word hides another.
`text.Mask` hides names of hosts and users, which is another matter.
"""

from assistant.redact.cuts import ends_of, head_of, line_texts, piece_of, tail_of
from assistant.redact.text import MASK, Mask, redact, redact_lines, redact_value, secret_spans

__all__ = [
    "MASK",
    "Mask",
    "ends_of",
    "head_of",
    "line_texts",
    "piece_of",
    "redact",
    "redact_lines",
    "redact_value",
    "secret_spans",
    "tail_of",
]
