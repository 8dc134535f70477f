"""Which nodes show why a job may be slow on them: GPUs that are held back, links that are not as they should be."""

from __future__ import annotations

from collections.abc import Mapping

from assistant.probing import Health
from assistant.tools.probes._check import NodeHealth

HOLD_BACK = frozenset({"gpu_clocks", "gpu_temperature", "amd"})
"""Probes whose critical findings are of now and make a node slow by themselves."""
LINKS = frozenset({"gpu_pcie", "nvlink", "infiniband"})
"""Probes of what may have been so before: a job that was fast there is not slow for it."""
MOST_WORDS = 400


def held_back(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what holds nodes back now, by node, for people; a node without a critical finding of that kind is left out.

    Args:
        checked: What the probes said, by node.
    """
    return _words(checked, HOLD_BACK)


def bad_links(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what is wrong with the links of nodes, by node, for people; since when is not known.

    Args:
        checked: What the probes said, by node.
    """
    return _words(checked, LINKS)


def _words(checked: Mapping[str, NodeHealth], names: frozenset[str]) -> dict[str, str]:
    texts_by_node = {
        node: [finding.text for probe, finding in answer.findings if probe.name in names and finding.status is Health.CRITICAL]
        for node, answer in checked.items()
    }
    return {node: ", ".join(dict.fromkeys(texts))[:MOST_WORDS] for node, texts in texts_by_node.items() if texts}
