"""An embedder for tests that says what it was told to: nearness is chosen, not computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.llm.hashing import vector_of


class ScriptedEmbedder:
    """An `Embedder` whose vectors stand in a table; a text that holds a key gets the key's vector, others are hashed."""

    def __init__(self, script: Mapping[str, Sequence[float]], *, name: str = "scripted-1", dims: int = 4) -> None:
        self.script, self.name, self.dims = dict(script), name, dims
        self.asked: list[str] = []
        """Every text so far."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vector of the first key that stands in each text; of other texts the hashed one, cut to the dimensions."""
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        for key, vector in self.script.items():
            if key in text:
                return _unit(vector)
        return _unit(vector_of(text)[: self.dims])


def _unit(vector: Sequence[float]) -> list[float]:
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector] if length else list(vector)
