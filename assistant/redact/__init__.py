"""Take secrets out of text before it reaches the disk, a model or a screen; hide names, and show them again.

Read `text` first: it collects what the detectors find and replaces it by `[redacted]`. It detects keys of several lines and URLs
itself; `syntax` detects a value behind a name such as password, `forms` texts that are secrets by their own form (data in
`knowledge/secrets.toml`). `values` judges names and values.
`text.Mask` hides names of hosts and users, which is another matter.
"""

from assistant.redact.text import MASK, Mask, redact, redact_value, secret_spans

__all__ = ["MASK", "Mask", "redact", "redact_value", "secret_spans"]
