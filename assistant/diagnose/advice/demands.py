"""Say what a message wants changed where no template knows it: by its grammar, by remedies that the log prints, by its keys.

Programs complain in few forms ("X does not support Y", "X must be Y, got Z", "use Y instead of X"), whatever they complain
about, and often print the remedy a line before or behind, or the usage of the command. Nothing is concluded that the words do not
say.

Where a model refuses a checkpoint, the two lists of keys say which of the two has to change. Three things look alike in the
message: the same keys behind another prefix (a wrapper), a model with fewer or more layers, and another model altogether. Only
the first is mended by renaming.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from assistant.content.reasons import gives_orders
from assistant.diagnose.advice.complaint_forms import FORMS
from assistant.diagnose.advice.sentences import LONGEST_REMEDY, NO_REMEDY, REMEDY, SHORTEST_REMEDY, instruction_in
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of, raised_at
from assistant.records import Citation

LINES_BEHIND, LINES_BEFORE = 12, 3
"""Lines of the same stream behind and before the message among which a remedy is looked for."""
SAME_WORDS = 0.6
"""Share of the words of a remedy that are said already, from which on it is not said again."""
USAGE_LINES = 200
"""Lines above a refused option among which the usage text is looked for."""
SHARED_WORDS = 3
"""Long words that a line before the message shares with it, from which on it is of the same matter."""
LONG_WORD = 5
"""Letters of a word above which it tells of what a line is about."""
SLIP = 0.85
"""Likeness of two names, 0 to 1, that differ by a letter or a hyphen."""
ALIKE_PARTS = 0.5
"""Share of the parts of the names of two options that are the same, from which on one may be meant by the other."""
_WORD = re.compile(r"[\w.-]{3,}")
_VERB = re.compile(
    r"\b(?:which|that|who|contains?|is|are|was|were|has|have|had|will|would|does|did|should|must|cannot|because|while)\b"
)
"""Words of a clause, of which no thing is the name."""
_NO_THING = re.compile(
    r"(?:you|it|this|that|these|which|we|they|there|and|but|or|if|when|your|my|our|their|his|its)\b",
    re.IGNORECASE,
)
"""Words by which a complaint names nothing."""
_OF_RECORD = re.compile(r"['\"]\s*:\s")
"""Behind the key of a JSON object or a dictionary."""
_COMPARES = re.compile(r" (?:[=!<>]=|[<>]) ")
"""What C++ checks print as expected: a condition, of which no side can be brought to the other by its words."""
_RELATION = re.compile(
    r"(?:(?P<a>[\w.()\[\]]{1,40}) = )?(?<![\w.])(?P<x>-?\d[\d.]{0,14}) (?P<sign>>=?|!=|vs\.?|is not equal to|does not match|"
    r"doesn't match)"
    r" (?:(?P<b>[\w.()\[\]]{1,40}) = )?(?P<y>-?\d[\d.]{0,14})(?![\w.]*[:/])"
)
"""Two numbers that a message compares."""
_DATA = re.compile(
    r"(?<![\w/])(/[\w.@+~=/-]{1,240}\.(?:jpe?g|png|tiff?|bmp|webp|wav|flac|mp[34]|npy|npz|jsonl?|csv|tsv|txt|parquet|arrow|"
    r"tar|gz|zip|pkl|h5|hdf5|bin|idx"
    r"|pt|pth|ckpt|safetensors|ya?ml|toml|nii|mat|tfrecords?))\b(?![:./-]\w)",
    re.IGNORECASE,
)
_INSTALLS, _PIP = re.compile(r"\bInstall ([A-Za-z][\w-]*)"), re.compile(r"pip3? install (?:-[\w-]+ )*['\"]?([A-Za-z][\w-]*)")
_WARNS = re.compile(r"\w+Warning\b|\bWARN(?:ING)?\b|\b[Ww]arnings?:")
_FRAME = re.compile(r'\s*File "|Traceback \(most|\s*[\^~]+\s*$|\s{4,}\S')
_CLASS = re.compile(r"^(?:[A-Za-z_][\w.]{0,100}(?:Error|Exception|Warning|Exit)|AssertionError|Error)\b:?\s*")
_STATUS = re.compile(
    r"^(?:[A-Z]{4,}(?:_[A-Z]{2,}){0,3}): |^-{2,3}> FOAM FATAL (?:IO )?ERROR: ?(?:\([\w-]{1,40}\))? ?|^Error in "
    r"routine \w{1,60} \(-?\d{1,9}\): ?|^Fatal error: ?|^(?:\w{1,30} ){0,3}(?:pipeline|workflow|analysis|stage"
    r"|step|run) failed: "
)
"""The status by which XLA and gRPC begin a message, such as `UNIMPLEMENTED: `, and the step that a program says failed."""
_GERUND = re.compile(r"([A-Za-z])[a-z]{2,20}ing ")
_FACTOR = re.compile(r"([A-Za-z_]\w{0,40}) ?[(=] ?(\d{1,9})\)?")
_PRODUCT = re.compile(
    r"(?P<factors>(?:[A-Za-z_]\w{0,40} ?[(=] ?\d{1,9}\)? ?[*x] ?){1,8}[A-Za-z_]\w{0,40} ?[(=] ?\d{1,9}\)?) ?"
    r"(?:!=|is not equal to|does(?:n't| not) (?:equal|match)) ?(?P<name>[A-Za-z_]\w{0,40}) ?[(=] ?(?P<value>\d{1,9})"
)
"""A product of sizes, each with its number behind it, and what it should be."""
_CALL = re.compile(r"^(?:[Hh]int|HINT|help|note): ")
_OPTION = re.compile(r"--[A-Za-z][\w.-]{1,60}")
_FRAMED = 'File "'
_AT = re.compile(r"\s+at [\w.$<>]+\(")
"""A frame of Java or Groovy."""
_COMMANDS = re.compile(r"\{([\w-]{1,40}(?:,[\w-]{1,40}){1,40})\}\s*\.\.\.")


def demand_of(cited: Citation, facts: Facts) -> str:
    """Return what a message asks for by the form of its words, without a full stop; empty where they have none of the forms."""
    message = message_of(cited, facts)[:4]
    if len(message) == 1 and cited.file == "job.log":
        lines_after = [line.text for line in facts.between(cited.line + 1, cited.line + 2)]
        message += [text.strip() for text in lines_after if text[:1].isspace() and _FRAMED not in text and not _AT.match(text)]
    text = _STATUS.sub("", _CLASS.sub("", " ".join(message).strip()))
    if instruction := instruction_in(text):
        return instruction
    for pattern, words in FORMS:
        match = pattern.search(text[:600])
        if match is None:
            continue
        groups = {name: _bare(value) for name, value in match.groupdict(default="").items()}
        if any(map(gives_orders, groups.values())):
            continue
        groups |= {name: groups[name].rpartition(": ")[2].strip() for name in ("what", "first") if name in groups}
        groups["pair"] = _pair(groups)
        if not all(groups[name] for name in re.findall(r"\{(\w+)\}", words)):
            continue
        if re.match(r"[,;:)]|\.(?!/)", groups.get("what", "")) or _OF_RECORD.search(groups.get("what", "")):
            continue  # it begins within a quotation, or is the key of a record
        if _NO_THING.match(groups.get("what") or groups.get("part", "")) or _COMPARES.search(groups.get("what", "")):
            continue
        if any(_VERB.search(groups.get(name, "")) for name in ("what", "part", "first", "second")):
            continue  # it was cut out of a longer clause
        have = groups.get("have", "")
        groups["want"] = cut(groups.get("want", ""), LONGEST_REMEDY)
        sentence = words.format(**groups)
        if (verb := groups.get("verb", "be")) != "be":
            sentence = f"Correct {groups['what']}, which must {verb} {groups['want']}"
        if sentence.startswith("Leave ") and (gerund := _GERUND.match(groups.get("part", ""))) is not None:
            sentence = f"Do without {gerund[1].lower()}{groups['part'][1:]}: it is not allowed"
        near = _nearest(have, match["want"]) if "kind" in groups else ""
        subject = groups.get("what", "") if "{what}" not in words and "{pair}" not in words else ""
        it_is = f"; it is {have}" if have and "{have}" not in words else ""
        return f"{sentence}{f' by {subject}' if subject else ''}{it_is}{f', nearest is {near}' if near else ''}"
    if product := _product(text[:600]):
        return product
    if match := _RELATION.search(text[:600]):
        first, second = (
            f"{match[name]} = {match[number]}" if match[name] else match[number] for name, number in (("a", "x"), ("b", "y"))
        )
        if match["sign"].startswith(">"):
            return f"Bring {first} to at most {second} (shorten or lower what comes in), or raise that limit where it is set"
        return f"Make the two agree that are compared, {first} and {second}"
    requests = (match for match in REMEDY.finditer(text[:600]) if not NO_REMEDY.search(match["words"]))
    request = next((match for match in requests if not gives_orders(match["words"])), None)
    if request is not None:
        request_words = _CALL.sub("", request["words"].strip())
        if request_words.startswith(("Did you", "Perhaps")):
            return f"See whether it is what the message asks: {request_words[:1].lower()}{request_words[1:]}"
        return f"Do what the message asks: {request_words}"
    data_match = _DATA.search(text[:2000])
    return (
        f"Look at the file that it names, {data_match[1]}: repair it, replace it or leave it out" if data_match is not None else ""
    )


def _product(text: str) -> str:
    """Return what a product of named sizes amounts to, and what it has to be; empty where a message compares none."""
    match = _PRODUCT.search(text)
    if match is None:
        return ""
    factors = _FACTOR.findall(match["factors"])
    names = " x ".join(name for name, _ in factors)
    amount = math.prod(int(number) for _, number in factors)
    return f"Choose sizes whose product is {match['value']} ({match['name']}): {names} is {amount}"


def _bare(value: str) -> str:
    """Return a value without quotation marks that stand around all of it, or have no fellow."""
    value = value.strip(" :")
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"`" and value[0] not in value[1:-1]:
        return value[1:-1].strip()
    for mark in "'\"`":
        if value.count(mark) % 2:
            value = value.strip(mark)
    return value.strip(" :")


def _nearest(name: str, choices: str) -> str:
    """Return the choice of a printed list that a refused name is most like; empty where none is alike."""
    listed = [choice for choice in _WORD.findall(choices) if choice.lower() not in ("and", "one")]
    part = [choice for choice in listed if name and (name.lower() in choice.lower() or choice.lower() in name.lower())]
    return next(iter(part if len(part) == 1 else difflib.get_close_matches(name, listed, 1, SLIP - 0.1)), "")


def _pair(groups: Mapping[str, str]) -> str:
    """Return the two things that a complaint names; empty where it does not name both."""
    first, second = groups.get("what") or groups.get("first", ""), groups.get("part") or groups.get("second", "")
    return f"{first} and {second}" if first and second else ""


def printed_remedy(cited: Citation, advice: str, facts: Facts, *, message: bool) -> str:
    """Return the remedy that the log itself prints near a message, with its line; empty where it prints none that is not said.

    Args:
        cited: Where the message begins.
        advice: What is advised so far.
        facts: Of the case.
        message: Whether the message itself is looked at, too; not where a template knows what it means.
    """
    installed = _INSTALLS.search(advice)
    words_of_advice = {word.lower() for word in _WORD.findall(advice)}
    long_words = {word.lower() for word in _WORD.findall(cited.text) if len(word) > LONG_WORD}
    for number, text in _around(cited, facts, message=message):
        shared = len(long_words & {word.lower() for word in _WORD.findall(text)})
        if _WARNS.search(text) or (number < cited.line and shared < SHARED_WORDS):
            continue
        for match in REMEDY.finditer(text[:2000]):
            words = match["words"].strip()
            mine = {word.lower() for word in _WORD.findall(words)}
            pip_install = _PIP.search(words)
            if installed is not None and pip_install is not None and installed[1].lower() != pip_install[1].lower():
                continue  # of another package than the one that is wanted
            if not SHORTEST_REMEDY <= len(words) <= LONGEST_REMEDY or NO_REMEDY.search(words) or not mine:
                continue
            if len(mine & words_of_advice) < SAME_WORDS * len(mine):
                return f"The log itself says ({cited.file}:{number}): {words}."
    return ""


def _around(cited: Citation, facts: Facts, *, message: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines in which a remedy may stand: the message, those behind it, those before it."""
    raised = raised_at(cited, facts)
    if message:
        yield cited.line, facts.streams.body(cited.text).text
    if raised is not None and message:
        yield from ((number, facts.streams.body(text).text) for number, text in raised[1].more)
    if cited.file != "job.log":
        return
    last = raised[1].more[-1][0] if raised is not None and raised[1].more else cited.line
    first = raised[0].first if raised is not None else cited.line
    stream = facts.streams.body(cited.text).stream
    lines_after = facts.between(last + 1, last + LINES_BEHIND)
    for line in (*lines_after, *reversed(facts.between(max(1, first - LINES_BEFORE), first - 1))):
        body = facts.streams.body(line.text)
        if line.number > last and "Traceback (most" in body.text:
            continue
        if body.stream == stream and not _FRAME.match(body.text):
            yield line.number, body.text.strip()


def nearest_option(cited: Citation, refused: Sequence[str], facts: Facts) -> str:
    """Return which options or commands the usage text above a refused one has, nearest first; empty where none is printed.

    Args:
        cited: The line that refuses.
        refused: Options that it names, such as `--learning-rate`.
        facts: Of the case.
    """
    if cited.file != "job.log":
        return ""
    stream = facts.streams.body(cited.text).stream
    lines: list[str] = []
    for line in reversed(facts.between(max(1, cited.line - USAGE_LINES), cited.line - 1)):
        body = facts.streams.body(line.text)
        if body.stream == stream:
            lines.append(body.text)
            if re.match(r"\s*usage:", body.text, re.IGNORECASE):
                break
    else:
        return ""
    usage = " ".join(reversed(lines))
    options = list(dict.fromkeys(_OPTION.findall(usage)))
    for name in refused:
        if near := [option for option in options if option != name and _alike(option, name)][:2]:
            return f"Its usage text (above job.log:{cited.line}) has {' and '.join(near)} instead of {name}."
    if commands := _COMMANDS.search(usage):
        return f"Its usage text shows the commands {commands[1].replace(',', ', ')}: an option of one of them goes behind its name."
    if 0 < len(options) <= 12:
        return f"Its usage text knows only {', '.join(options)}."
    return "Its usage text has no option like it." if options else ""


def _alike(option: str, name: str) -> bool:
    """Tell whether two options differ by a slip of the pen, or share most parts of their names."""
    if difflib.SequenceMatcher(None, option.replace("_", "-"), name.replace("_", "-")).ratio() >= SLIP:
        return True
    first, second = ({part.rstrip("s") for part in re.split(r"[-_.]", text.lower()) if part} for text in (option, name))
    return len(first & second) > ALIKE_PARTS * len(first | second)


_LISTED = re.compile(r"(?P<which>Missing|Unexpected) key\(s\) in state_dict: (?P<keys>.+)")
_KEY = re.compile(r"[\"']([\w.\-/]{1,200})[\"']")
WRAPPERS = (
    *(
        "module.",
        "_orig_mod.",
        "model.",
        "base_model.model.",
        "model.module.",
        "net.",
        "encoder.",
        "backbone.",
        "student.",
        "teacher.",
    ),
)
"""Prefixes that DDP, torch.compile, Lightning, PEFT and teachers leave."""
CONTAINERS = (
    "state_dict", "model_state_dict", "model_state", "model", "state", "net", "network", "module", "weights", "params",
    "net_state_dict", "ema", "model_ema", "ema_state_dict", "generator", "encoder", "backbone",
)  # fmt: skip
"""Keys under which training programs put the weights, the usual ones first."""
KEYS_SHOWN, MOST_CONTAINERS = 4, 12
_BUFFER = re.compile(
    r"(?:^|\.)(?:position_ids|token_type_ids|num_batches_tracked|inv_freq|masked_bias|attn\.bias|attention\.bias|relative_position_index"
    r"|relative_coords_table|attn_mask|causal_mask|cos_cached|sin_cached)$"
)
"""Keys of what a model computes by itself when it is built, which one version of a library stores and another does not."""
_OTHER_SIZE = re.compile(
    r"size mismatch for (?P<name>[\w.]{1,160}): copying a param with shape torch\.Size\(\[(?P<saved>[\d, ]{1,60})\]\) "
    r"from checkpoint, the shape in current model is torch\.Size\(\[(?P<built>[\d, ]{1,60})\]\)"
)


def keys_account(message: Sequence[str], place: str) -> str:
    """Return what to change by the keys that a message lists; empty where it lists none.

    Args:
        message: Lines of the message.
        place: Where it is loaded, `file:line`, or empty.
    """
    lists: dict[str, list[str]] = {}
    for line in message:
        if match := _LISTED.search(line):
            lists.setdefault(match["which"], []).extend(_KEY.findall(match["keys"]))
    missing, surplus = lists.get("Missing", []), lists.get("Unexpected", [])
    if not missing and not surplus:
        return ""
    at = f" It is loaded at {place}." if place else ""
    if sizes := _sizes_account(message):
        return f"{sizes}{at}"
    if all(_BUFFER.search(key) for key in (*missing, *surplus)):
        keys = [*dict.fromkeys((*missing, *surplus))]
        more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
        return (
            f"Nothing of what was learnt differs, only {', '.join(keys[:KEYS_SHOWN])}{more}: buffers that one version of the "
            f"library stores and another does not. Load it with strict=False as long as no other key is named, or install the "
            f"version of the library by which it was trained.{at}"
        )
    if missing and surplus:
        return f"{_both(missing, surplus)}{at}"
    if surplus:
        return (
            f"The checkpoint has {_key_list(surplus)}, which the model built here has not, and lacks nothing: the model is built "
            f"smaller than the saved one (fewer layers, or without a part). Give it the settings of the training.{at}"
        )
    return (
        f"The model built here has {_key_list(missing)}, which the checkpoint lacks, and the checkpoint has nothing besides: it "
        f"was saved without that part (fewer layers, no head). Load the file that has it, or build the model without it.{at}"
    )


def _sizes_account(message: Sequence[str]) -> str:
    """Return that a model of another size was saved, where a message lists sizes beside its keys; empty where it lists none."""
    sizes = [match for line in message if (match := _OTHER_SIZE.search(line)) is not None]
    if not sizes:
        return ""
    count = f"{len(sizes)} of its parameters have" if len(sizes) > 1 else "a parameter of it has"
    name, saved, built = (sizes[0][group] for group in ("name", "saved", "built"))
    return (
        f"The checkpoint is of a model of another size: besides the keys that differ {count} another shape, {name} [{saved}] in "
        f"the checkpoint and [{built}] here. Build the model with the settings of the saved one, or let the new model begin in a "
        "folder of its own."
    )


def _both(missing: Sequence[str], surplus: Sequence[str]) -> str:
    if (outer := _containers(missing, surplus)) and (names := [name for name in CONTAINERS if name in surplus]):
        return (
            f"The file holds a whole state of training ({outer}), and the weights lie under one of its keys, most likely "
            f"'{names[0]}': hand that to load_state_dict (state_dict['{names[0]}']), and see there whether its keys are those of "
            "the model."
        )
    for prefix in WRAPPERS:
        if _share(_without(prefix, surplus), missing):
            return (
                f'The keys of the checkpoint begin with "{prefix}", those of the model do not: take that off before it is loaded.'
            )
        if _share(_without(prefix, missing), surplus):
            return f'The keys of the model begin with "{prefix}", those of the checkpoint do not: load it into the part inside.'
    words = f"Expected are {_key_list(missing)}; the checkpoint has {_key_list(surplus)} instead"
    ends = {_end(key) for key in missing}
    if 2 * sum(_end(key) in ends for key in surplus) >= len(surplus):
        return f"{words}: like layers under other names, so another version of the model's code saved it. Use that, or rename them."
    return f"{words}: it was saved from another architecture. Build that one, or load another file; renaming does not help."


def _containers(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """Return the keys of a file that holds more than weights: few of one name each, where the model wants names of its parts."""
    flat = all("." not in key for key in surplus) and len(surplus) <= MOST_CONTAINERS
    nested = 2 * sum("." in key for key in missing) >= len(missing)
    return ", ".join(surplus) if flat and nested and len(missing) > len(surplus) else ""


def _without(prefix: str, keys: Sequence[str]) -> list[str]:
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def _end(key: str) -> str:
    """Return the last two names of a key."""
    return ".".join(key.split(".")[-2:])


def _share(stripped: Sequence[str], keys: Sequence[str]) -> bool:
    """Tell whether at least half of the keys, without their prefix, are those of the other side."""
    common = len(set(stripped) & set(keys))
    return common > 0 and 2 * common >= min(len(stripped), len(keys))


def _key_list(keys: Sequence[str]) -> str:
    """Return the first parts that keys are of, such as `stage0.1`, and how many more there are."""
    parts = list(dict.fromkeys(_part(key) for key in keys))
    more = f" and {len(parts) - KEYS_SHOWN} more" if len(parts) > KEYS_SHOWN else ""
    return f"{', '.join(parts[:KEYS_SHOWN])}{more}"


def _part(key: str) -> str:
    """Return the layer of a key: up to its last number, or without its last name."""
    names = key.split(".")
    numbers = [place for place, name in enumerate(names) if name.isdigit()]
    return ".".join(names[: numbers[-1] + 1]) if numbers else ".".join(names[:-1]) or key
