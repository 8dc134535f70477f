"""Take secrets out of text before it reaches the disk, a model or a screen; hide names, and show them again.

Read `text` first: it collects what the detectors find and replaces it by `[redacted]`. The detectors are `blocks` (keys of several
lines), `assignments` (a value behind a name such as `password`, in any syntax), `tokens` (texts that are secrets by their own form,
and options of programs; all of them data in `knowledge/secrets.toml`) and `urls`. `values` judges names and values. `mask` hides
names of hosts and users, which is another matter.
"""

from assistant.redact.mask import Mask
from assistant.redact.text import MASK, redact, redact_value, secret_spans

__all__ = ["MASK", "Mask", "redact", "redact_value", "secret_spans"]
