"""Which language model there is: what is known about models by their files' names, and the configured one opened."""

from __future__ import annotations

import atexit
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.errors import ConfigError

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel

    from assistant.llm.chat import Inventory
    from assistant.llm.process import ModelProcess
    from assistant.llm.sse import Endpoint
    from assistant.redact import Mask


@dataclass(frozen=True)
class ModelFamily:
    """Models of one kind."""

    name: str
    match: tuple[str, ...]
    """Patterns of the files' names, small letters."""
    context: int
    """Tokens that are taken where the settings name none."""
    opening: str = ""
    note: str = ""


@dataclass(frozen=True)
class Size:
    """What fits into how much memory."""

    memory_gb: float
    parameters: str
    quantisation: str
    note: str


@dataclass(frozen=True)
class ModelCatalogue:
    """All that is known about models before one is opened."""

    architectures: tuple[str, ...]
    """Those that hold a conversation."""
    family: tuple[ModelFamily, ...]
    size: tuple[Size, ...]

    def of(self, file_name: str) -> ModelFamily:
        """Return the family of a file by its name."""
        name = file_name.casefold()
        return next(family for family in self.family if any(fnmatchcase(name, pattern) for pattern in family.match))

    def fitting(self, free_bytes: int) -> Size | None:
        """Return the largest size that fits; None when none does."""
        return max(
            (size for size in self.size if size.memory_gb * 1e9 <= free_bytes), key=lambda size: size.memory_gb, default=None
        )


class ModelTerms(Protocol):
    """The settings of the model; `config.ModelSettings` has them."""

    @property
    def path(self) -> Path | None:
        """The GGUF file; None for none."""
        ...

    @property
    def sha256(self) -> str:
        """That the file must have; empty for any."""
        ...

    @property
    def url(self) -> str:
        """The endpoint; empty for none."""
        ...

    @property
    def name(self) -> str:
        """What the endpoint calls the model."""
        ...

    @property
    def key_file(self) -> Path | None:
        """File of the endpoint's key."""
        ...

    @property
    def context(self) -> int:
        """Tokens of one conversation; 0 for what suits the model."""
        ...

    @property
    def threads(self) -> int:
        """Of a file's process; 0 for half of the processors."""
        ...

    @property
    def timeout_s(self) -> float:
        """Seconds that one answer may take."""
        ...


@cache
def model_catalogue(site: Path | None = None) -> ModelCatalogue:
    """Return what is known: the site's `knowledge/models.toml` as a whole, else the shipped one.

    Raises:
        ContentError: The file is malformed.
    """
    path = knowledge_file("models.toml", site)
    return build(ModelCatalogue, read_toml(path), path)


def is_set(terms: ModelTerms) -> bool:
    """Tell whether a language model is configured; nothing is opened.

    Raises:
        ConfigError: Two are, or an endpoint without the model's name.
    """
    if terms.path is not None and terms.url:
        raise ConfigError("model: both path and url are set; a model is either a file or behind an endpoint: take one out")
    if terms.url and not terms.name:
        raise ConfigError(f"model.name: must say which model of {terms.url} is meant; nightshift model info lists them")
    return terms.path is not None or bool(terms.url)


def identity(terms: ModelTerms) -> str:
    """Return what a model's results are kept under: the sha256 of its file, or of its place and name; empty without a model."""
    from assistant.llm.gguf import digest_of

    if not is_set(terms):
        return ""
    if terms.path is not None:
        return digest_of(terms.path)
    return hashlib.sha256(f"{terms.url.rstrip('/')}|{terms.name}".encode()).hexdigest()


def open_chat(
    terms: ModelTerms,
    *,
    inventory: Callable[[], Inventory] | None = None,
    site: Path | None = None,
    mask: Callable[[], Mask] | None = None,
) -> BaseChatModel | None:
    """Return the configured model; None where there is none. A file is checked and loaded with the first question.

    Args:
        terms: The settings.
        inventory: Tells what exists, by name of an argument; asked in every turn.
        site: The site's content folder.
        mask: Gives what hides names from an endpoint; None hides none. A file never leaves this machine, so it sees all.

    Raises:
        ConfigError: The settings contradict one another, or the key cannot be read.
    """
    if not is_set(terms):
        return None
    from assistant.llm.chat import ChatLocalModel, nothing_known
    from assistant.llm.endpoint import ChatEndpoint

    exists = inventory or nothing_known
    if terms.path is None:
        at = endpoint_of(terms)
        return ChatEndpoint(endpoint=at, name_there=terms.name, context=terms.context, inventory=exists, mask=mask)
    family = model_catalogue(site).of(terms.path.name)
    return ChatLocalModel(process=process_of(terms, site), opening=family.opening, inventory=exists)


def room_of(terms: ModelTerms, site: Path | None = None) -> int:
    """Return the tokens of one conversation by the settings or the name of the file; 0 for an endpoint that is not known."""
    return terms.context or (model_catalogue(site).of(terms.path.name).context if terms.path is not None else 0)


_PROCESSES: dict[tuple[object, ...], ModelProcess] = {}
_ENDPOINTS: dict[tuple[object, ...], Endpoint] = {}
_LOCK = threading.Lock()


def process_of(terms: ModelTerms, site: Path | None = None) -> ModelProcess:
    """Return the process of the configured file: one for the same file, however often it is asked for."""
    from assistant.llm.process import ModelProcess

    if terms.path is None:
        raise ConfigError("model.path: is not set; nightshift model use FILE")
    context = room_of(terms, site)
    mark = (terms.path, terms.sha256, context, terms.threads, terms.timeout_s)
    with _LOCK:
        if not _PROCESSES:
            atexit.register(close_models)
        if mark not in _PROCESSES:
            _PROCESSES[mark] = ModelProcess(
                terms.path,
                context=context,
                threads=terms.threads,
                timeout_s=terms.timeout_s,
                sha256=terms.sha256,
                architectures=model_catalogue(site).architectures,
            )
        return _PROCESSES[mark]


def endpoint_of(terms: ModelTerms) -> Endpoint:
    """Return the configured endpoint: one for the same settings, which keeps its connections and what was refused there.

    Raises:
        ConfigError: The URL is none, or the key cannot be read.
    """
    from assistant.llm.endpoint import key_of
    from assistant.llm.sse import Endpoint

    key = key_of(terms.key_file)
    mark = (terms.url, key, terms.timeout_s)
    with _LOCK:
        if mark not in _ENDPOINTS:
            _ENDPOINTS[mark] = Endpoint(terms.url, key, timeout_s=terms.timeout_s)
        return _ENDPOINTS[mark]


def close_models() -> None:
    """End the processes and connections of all models; the next question starts them again."""
    with _LOCK:
        while _ENDPOINTS:
            _ENDPOINTS.popitem()[1].close()
        for process in _PROCESSES.values():
            process.close()


def models_folder(data_home: str, home: Path) -> Path:
    """Return where `nightshift model pull` puts files: under $XDG_DATA_HOME."""
    base = Path(data_home) if data_home.startswith("/") else home / ".local" / "share"
    return base / "nightshift" / "models"
