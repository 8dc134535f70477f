"""Read tables that tell where ranks, pods and addresses are.

A map that mpirun displays, `kubectl get pods -o wide`, `kubectl describe pod`, a hosts file, DeepSpeed's world, and dictionaries
that programs print.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from assistant.diagnose.places import ADDRESS, Places
from assistant.diagnose.readers.streams import host_like

_MAP_NODE = re.compile(r"^\s*Data for node: ([\w.-]+)")
_MAP_RANK = re.compile(r"\bProcess rank: (\d{1,9})\b")
_HOSTS_FILE = re.compile(r"^(\d{1,3}(?:\.\d{1,3}){3})[ \t]{1,20}([A-Za-z][\w.-]*)(?:[ \t]{1,20}[A-Za-z][\w.-]*)*+[ \t]*$")
_ASSIGNED = re.compile(r"Successfully assigned (?:[\w.-]+/)?([\w.-]+) to ([\w.-]+)")
_DESCRIBED = re.compile(r"^(Name|Node):\s+([\w.-]+)(?:/([\d.]+))?\s*$")
_DICTIONARY = re.compile(r"\{[^{}]{6,20000}\}")
WORLD = "WORLD INFO DICT"
"""DeepSpeed's launcher numbers the ranks of the hosts in the order in which it prints them."""


class Rosters:
    """Reads tables line by line."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._map_node: str | None = None
        self._columns: dict[str, int] = {}
        self._pod: str | None = None

    def read(self, text: str, number: int) -> None:
        """Take what the next line of a log adds."""
        if "node: " in text or "Process rank" in text:
            self._read_map(text, number)
        if text[:1].isdigit() and (match := _HOSTS_FILE.match(text)):
            self._places.also_called(match[1], match[2], number)
        if "assigned" in text and (match := _ASSIGNED.search(text)):
            self._places.also_called(match[1], match[2], number)
            self._places.name(match[2])
        if text.startswith(("Name:", "Node:")) and (match := _DESCRIBED.match(text)):
            self._read_described(match, number)
        if self._columns or text.startswith("NAME "):
            self._read_pods(text, number)
        if "{" in text and ": " in text and ("rank" in text or "Rank" in text or WORLD in text):
            self._read_dictionary(text, number)

    def _read_map(self, text: str, number: int) -> None:
        if match := _MAP_NODE.match(text):
            self._map_node = match[1]
            self._places.name(match[1])
        elif self._map_node and (match := _MAP_RANK.search(text)):
            self._places.place(int(match[1]), self._map_node, number)

    def _read_described(self, match: re.Match[str], number: int) -> None:
        if match[1] == "Name":
            self._pod = match[2]
            return
        self._places.name(match[2])
        for name in (self._pod, match[3]):
            if name:
                self._places.also_called(name, match[2], number)

    def _read_pods(self, text: str, number: int) -> None:
        """Take a row of a table of pods, whose columns stand under their heads."""
        if text.startswith("NAME ") and " NODE" in text:
            self._columns = {}
            for word in re.finditer(r"\S+", text):
                self._columns.setdefault(word.group(0), word.start())  # NOMINATED NODE is another one
            return
        if not self._columns:
            return
        words = {word.start(): word.group(0) for word in re.finditer(r"\S+", text)}
        row = {head: words.get(start) for head, start in self._columns.items()}
        pod, node, address = row.get("NAME"), row.get("NODE"), row.get("IP")
        if not pod or not node or text[:1].isspace():
            self._columns = {}
            return
        self._places.also_called(pod, node, number)
        if address and ADDRESS.match(address):
            self._places.also_called(address, node, number)

    def _read_dictionary(self, text: str, number: int) -> None:
        for match in _DICTIONARY.finditer(text):
            try:
                table = ast.literal_eval(match.group(0))
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(table, dict):
                for rank, host in _ranks_of(table, in_order=WORLD in text):
                    self._places.place(rank, host, number)


def _ranks_of(table: Mapping[object, object], *, in_order: bool) -> Iterator[tuple[int, str]]:
    """Yield the ranks of a table `rank: host` or `host: ranks`; none where two hosts hold the same numbers: these are GPUs."""
    if table and all(_is_rank(key) and isinstance(host, str) and host_like(host) for key, host in table.items()):
        yield from ((int(str(key)), str(host)) for key, host in table.items())
        return
    lists = {str(host): list(ranks) for host, ranks in table.items() if isinstance(ranks, list | tuple) and isinstance(host, str)}
    if len(lists) != len(table) or not all(host_like(host) and all(map(_is_rank, ranks)) for host, ranks in lists.items()):
        return
    every = [int(str(rank)) for ranks in lists.values() for rank in ranks]
    if in_order:
        hosts = [host for host, ranks in lists.items() for _ in ranks]
        yield from enumerate(hosts)
    elif len(set(every)) == len(every):
        yield from ((int(str(rank)), host) for host, ranks in lists.items() for rank in ranks)


def _is_rank(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())
