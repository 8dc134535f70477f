"""Find the sentence of a message that says what to do, and join parts of advice into one voice.

Parts come from templates, from the message and from what stands around it, and know nothing of one another: what has to be changed
stands in front, no sentence twice, none that only says so again. Of a message the sentence comes first that names what is typed, a
command, an option, an assignment, and among several the one that names it at once: "use at least 2 processes to use X" only says
why, "pass --num_processes=2" what to type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from assistant.content.reasons import gives_orders
from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.records import Action

_TWO_STOPS = re.compile(r"(?<![./])\.\.(?=\s|$)")
"""A sentence that was quoted with its stop at the end of another one."""
_SENTENCE_ENDS = re.compile(r"(?<=[a-z0-9)`'\"][.!?]) (?=[A-Z`])")
_WORDS = re.compile(r"[a-z0-9_./-]+")
SHORTEST = 4
"""Words from which on a sentence that comes a second time is left out."""
SAME_SHARE = 0.85
"""Share of the words of a sentence that an earlier one has, from which on it says nothing new."""
FEWEST_WORDS = 7
"""Words of a sentence from which on it may be compared by their share."""


_PLAIN_WORD = re.compile(r"[a-z]+(?=[\s,;:.']|$)(?!\.\w)")


def with_capital(sentence: str) -> str:
    """Return a sentence with a capital at its beginning; a path, a name or code with which it begins stays as it is."""
    return f"{sentence[:1].upper()}{sentence[1:]}" if _PLAIN_WORD.match(sentence) else sentence


_OPENERS = {")": "(", "]": "[", "}": "{"}
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def without_unopened(text: str) -> str:
    """Return a text less the closing quotes and brackets at its end that nothing in it opens, as of a sentence cut out of JSON."""
    while text:
        last = text[-1]
        quotes = _APOSTROPHE.sub("", text).count(last) if last in "\"'`" else 0
        opener = _OPENERS.get(last)
        if not (quotes % 2 or (opener is not None and text.count(last) > text.count(opener))):
            return text
        text = text[:-1].rstrip(" ,;:")
    return text


def joined(parts: Sequence[str]) -> str:
    """Return the parts as one text."""
    return " ".join(_new(_change_first(parts)))


def _change_first(parts: Sequence[str]) -> list[str]:
    """Return the parts of advice with what has to be changed in front: that a restart is no help comes last, and short."""
    refusal = DEEDS[Action.FIX_AND_RESUBMIT]
    changes = [part for part in parts if part and part != refusal]
    return [*changes, NO_HELP] if refusal in parts and changes else [*parts]


def _new(parts: Sequence[str]) -> Iterator[str]:
    """Yield the sentences that say something that none before has said, each part ended."""
    before: list[frozenset[str]] = []
    text = ""
    for part in parts:
        if not part or part in text:
            continue
        sentences = []
        for sentence in _SENTENCE_ENDS.split(part):
            words = frozenset(_WORDS.findall(sentence.lower()))
            if len(words) < SHORTEST or not any(_repeats(words, earlier) for earlier in before):
                sentences.append(sentence)
                before.append(words)
        if sentences:
            ended = _TWO_STOPS.sub(".", " ".join(sentences))
            yield ended if ended.endswith((".", "…", "!", "?")) else f"{ended}."
        text += part


def _repeats(words: frozenset[str], earlier: frozenset[str]) -> bool:
    return words <= earlier or (len(words) >= FEWEST_WORDS and len(words & earlier) >= SAME_SHARE * len(words))


SHORTEST_REMEDY, LONGEST_REMEDY = 20, 300
"""Characters of a sentence that is quoted as a remedy."""
REMEDY = re.compile(
    r"(?:^|[.;:!?] +|, |\()(?P<words>(?:(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Mm]ake sure|[Ee]nsure|[Yy]ou (?:can(?!'t|not)|should"
    r"|must|need to|have to|might want to)"
    r"|[Tt]o (?:fix|solve|avoid|resolve|disable|enable|allow|use|load|continue)|Use|Set|Pass|Install|Run|Add|Remove|Specify|"
    r"Increase|Decrease|Reduce|Lower|Raise"
    r"|Upgrade|Update|Downgrade|Enable|Disable|Check (?:that|if|whether|your|the)|Did you mean|Did you forget|Perhaps)\b|"
    r"(?:[Hh]int|HINT|help|note): )"
    r"[^\n]{10,280}?)(?=[.!?](?:\s|$)|$)"
)
NO_REMEDY = re.compile(
    r"CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|Memory Management|HYDRA_FULL_ERROR|elastic/errors|report (?:this|it|the)|open "
    r"an? (?:issue|bug)|file an? (?:issue|bug)"
    r"|submit an? (?:issue|bug)|github\.com/\S+/issues|--help\b|NVTE_|stack ?trace|traceback|asynchronously reported|nohup|"
    r"wandb|W&B|mlflow|documentation at"
    r"|not a problem with pip|suppress|silence|this warning|PYTORCH_(?:CUDA|HIP)_ALLOC_CONF|TORCH_SHOW_CPP|TORCH_LOGS|"
    r"TORCHDYNAMO_VERBOSE|debug(?:ging)? (?:info|mode)"
    r"|destroy_process_group|RAY_DEDUP|check the logs|for more (?:information|details)|read more|error reporting|"
    r"TORCH_DISTRIBUTED_DEBUG|NCCL_DEBUG"
    r"|sqrt\(Complex|return code|Aborting|pip install --upgrade pip|new release of pip|restart your|Please wait"
    r"|back-?trace of when|\binspect\b|exception_verbosity|debug ?print|You should probably TRAIN"
    r"|report_tensor_allocations_upon_oom|\*\*\*|check the \w+$|troubleshoot"
    r"|\bvisit (?:the |https?://)|please contact|sure all processes$",
    re.IGNORECASE,
)
"""Standing words of frameworks that come with any error, or tell how to learn more about it."""
_ASKING = (
    r"(?:(?:[Pp]lease |[Tt]ry:? (?:to )?|[Yy]ou (?:can|should|must|need to|may|might want to) |[Cc]onsider "
    r"|[Tt]o (?:fix|solve|avoid|resolve|disable|enable|allow|use|load|continue|append)[^.;:,\n]{2,80}[,:]? ){1,3})?"
)
_DOING = (
    r"(?:[Ee]ither |first |also |explicitly )?(?:[Uu]se|[Ss]et|[Pp]ass|[Ii]nstall|[Rr]un|[Aa]dd|[Rr]emove|[Ss]pecify"
    r"|[Ii]ncrease|[Dd]ecrease|[Rr]educe|[Ll]ower|[Uu]pgrade|[Uu]pdate|[Dd]owngrade|[Ee]nable|[Dd]isable|[Ee]xport|[Pp]rovide"
    r"|[Dd]efine|[Cc]all|[Rr]einstall|[Mm]ake|[Ss]pecifying|[Ss]etting|[Pp]assing|pip3? install|conda install|[Cc]hange"
    r"|[Rr]eplace|[Ss]witch|[Cc]onvert)\b(?! (?:to|of|for|in|at|on|is|was|failed|from)\b)"
)
_INSTRUCTION = re.compile(
    rf"(?:^|[.;:!?\n)] {{0,3}}|, |\b[Oo]r,? |\b[Tt]hen ){_ASKING}(?P<words>{_DOING}"
    r"(?:`[^`\n]{1,160}`|\.(?=[^\s\d]|\d[^)])|[^.;\n`]){6,260}?)(?=[.;!?](?:\s|$|\d\))|\s*$|\n)"
)
_TYPED = re.compile(
    r"`[^`]{2,160}`|(?<![\w-])--[a-z][\w-]{2,}|\b[A-Za-z_][\w.]{1,60} ?= ?[\w'\"\[(]"
    r"|\b(?:pip3?|conda|apt(?:-get)?|sudo|git|modprobe|sysctl|ulimit|export|module (?:load|add|use|purge)) [A-Za-z-]"
    r"|\b[A-Z][A-Z0-9]{2,}_[A-Z0-9_]{2,}\b"
    r"|(?<![\w-])-[a-z]{2,12}\b|\b[A-Z_]{2,40} environment variable|environment variable [A-Z_]{2,40}\b"
    r"|\b[a-z_]\w{1,40}(?:\.\w{2,40})*\([^)]{0,60}\)|['\"][\w.:/=-]{2,80}['\"]"
)
"""What is typed as it stands: commands, options, assignments, variables, calls."""
_NEXT_FIELD = re.compile(r"\.?['\"], ?['\"]\w{1,40}['\"]: ")
"""Where a message that stands in a printed dict ends."""
SHORTEST_INSTRUCTION, AT_ONCE = 10, 24
"""Characters of an instruction, and of its begin within which what is typed makes it the one that is meant."""
PRINTED = re.compile(r"The log itself says \(([^()]{1,80})\): (.+)\.$", re.DOTALL)
"""A remedy that the log prints, as `printed_remedy` tells it: its line, its words."""


_INSTALLING = re.compile(r"^pip3? install (?:-\S{1,20} )*")
"""Before the package: advice that names a package says itself what to do about it."""


_DESTROYS = re.compile(
    r"(?<![\w-])--?(?:overwrite|force|clean|clear|reset|recreate|purge|wipe|delete|erase|from[-_]scratch)(?:[-_][\w-]{1,40})?(?![\w-])"
    r"|\b(?:overwrite|exist_ok|force)\w{0,20} ?= ?[Tt]rue\b|\brm -\w+|mode ?= ?['\"]?(?:overwrite|w)\b"
)
"""Options that make a program begin over what is there."""


def says_already(instruction: str, advice: str) -> bool:
    """Tell whether all that an instruction has to type stands in advice as well."""
    typed = [_INSTALLING.sub("", match[0].strip("`'\"")) for match in _TYPED.finditer(instruction)]
    return bool(typed) and all(words in advice for words in typed)


def instruction_in(text: str) -> str:
    """Return the sentence of a message that tells what to type, as an instruction; empty where none names a command or setting."""
    ranked: list[tuple[int, int, str]] = []
    for match in _INSTRUCTION.finditer(text[:2000]):
        words = without_unopened(_NEXT_FIELD.split(match["words"], maxsplit=1)[0].strip(" :;,"))
        typed = _TYPED.search(words)
        is_fit = SHORTEST_INSTRUCTION <= len(words) <= LONGEST_REMEDY and not NO_REMEDY.search(words) and not gives_orders(words)
        if typed is not None and is_fit:
            ranked.append((int(typed.start() <= AT_ONCE), -match.start(), words))
    words = max(ranked)[2] if ranked else ""
    return with_capital(f"{words}{_warning(words)}")


def _warning(words: str) -> str:
    """Return that an option which an instruction names destroys what lies there; empty where it names none."""
    match = _DESTROYS.search(words)
    return f"; {match[0]} may delete, or write over, what an earlier run has left there" if match is not None else ""
