"""Jobs that a question describes: by their owner, by a part of their name, never by a word that may mean something else."""

from __future__ import annotations

import pytest

from assistant.agent.descriptions import take_description

NAMES = {
    "4790": "llm-7b",
    "4812": "tokenise",
    "4815": "ablation-3",
    "4821": "llm-7b",
    "4822": "sft-chat",
    "4830": "llm-13b",
    "4831": "eval-suite",
}
OWNERS = {"4790": "alice", "4812": "dave", "4815": "carol", "4821": "alice", "4822": "carol", "4830": "alice", "4831": "dave"}


@pytest.mark.parametrize(
    ("question", "text", "jobs"),
    [
        ("hows the 13b job doing", "hows {job} doing", ("4830",)),
        ("restart alices 7b from step 400", "restart {job} from step 400", ("4821", "4790")),
        ("why did carol's run die", "why did {job} die", ("4822", "4815")),
        ("loss of carol\u2019s sft?", "loss of {job} ?", ("4822",)),
        ("kill the eval job", "kill {job}", ("4831",)),
        ("is the 7B stuck", "is {job} stuck", ("4821", "4790")),
        ("start the eval of 4821", "start the eval of 4821", ()),  # a word of its own
        ("alice's jobs", "alice's jobs", ()),  # all of them
        ("can i chat with you", "can i chat with you", ()),
        ("how many jobs has dave", "how many jobs has dave", ()),
        ("carol's 7b", "carol's 7b", ()),  # she has none
        ("what about llm-13b", "what about llm-13b", ()),  # its whole name is read as a name
    ],
)
def test_a_description_stands_for_the_jobs_that_fit_it(question: str, text: str, jobs: tuple[str, ...]) -> None:
    reading = take_description(question, NAMES, OWNERS)
    assert (" ".join(reading.text.split()), reading.jobs) == (text, jobs)


def test_nothing_is_described_where_there_are_no_jobs() -> None:
    assert take_description("why did alice's run die", {}, {}) == ("why did alice's run die", ())


def test_names_are_no_patterns() -> None:
    assert take_description("is the a+(b job ok", {"1": "x.a+(b"}, {"1": "r(.*)"}).jobs in ((), ("1",))
