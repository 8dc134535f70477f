"""Small talk: a greeting, thanks, a farewell in three languages is answered with a word of the same kind and with what is open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from assistant.agent.dialogue import QuestionTurn


class TalkKind(StrEnum):
    """What a sentence without a question is."""

    GREETING = "greeting"
    THANKS = "thanks"
    FAREWELL = "farewell"
    REGRET = "regret"


_PHRASES: Mapping[tuple[TalkKind, str], str] = {
    (TalkKind.GREETING, "en"): (
        r"hi(?: there)?|hiya|hello(?: there)?|hey(?: there)?|howdy|yo|greetings|welcome back|(?:good )?(?:morning"
        r"|afternoon|evening)"
        r"|good day|how are you(?: doing| today| feeling)?|how do you do|nice to meet you|are you there"
        r"|(?:you|u) (?:there|awake|up)|any(?:body|one) (?:there|home)|long time no see"
    ),
    (TalkKind.GREETING, "de"): (
        r"hallo(?:chen)?|moin(?: moin)?|servus|grüß (?:dich|gott)|gruess dich|grüezi|guten (?:morgen|tag|abend)|tach|tag auch|na du"
        r"|wie geht(?:'?s| es)(?: dir)?|schönen guten morgen"
    ),
    (
        TalkKind.GREETING,
        "zh",
    ): r"你好|您好|大家好|早(?:上好|安)?|上午好|中午好|下午好|晚上好|嗨|哈喽|哈罗|你好吗|在吗|在不在|好久不见",
    (TalkKind.THANKS, "en"): (
        r"thanks|thank you|thank u|thx|thnx|tnx|ty|tysm|cheers|much appreciated|(?:i )?appreciate (?:it|that)|kudos|bravo"
        r"|(?:good|nice|great|excellent|amazing|awesome|fantastic) (?:job|work|one|stuff|catch)|well done|you(?: ?a"
        r"|')re (?:great|awesome"
        r"|the best|a star|a lifesaver)|you rock|love it|that (?:helps|helped)|very helpful|that was (?:helpful|great|useful)"
    ),
    (TalkKind.THANKS, "de"): (
        r"danke(?:schön| schön| dir| euch)?|dankeschoen|vielen dank|besten dank|herzlichen dank|merci|gut gemacht|gute arbeit"
        r"|saubere arbeit|toll gemacht|super gemacht|klasse arbeit|sehr hilfreich|hast du gut gemacht|(?:guter|starker) job"
    ),
    (
        TalkKind.THANKS,
        "zh",
    ): r"谢谢(?:你|您|啦|了)?|"
    r"多谢|谢(?:了|啦)|感谢|辛苦(?:了|啦|你了|您了)?|干得(?:好|不错|漂亮)|做得(?:好|不错)|真棒|厉害|太好了|帮大忙了",
    (TalkKind.FAREWELL, "en"): (
        r"good ?night|night(?: night)?|nite|bye(?: bye)?|goodbye|see (?:you|ya)|cya|ciao|take care|farewell"
        r"|have a (?:good|nice|great) "
        r"(?:one|day|night|evening|weekend)|talk to you|(?:i'?m|i am) (?:off(?: to bed)?|out|done(?: for)?"
        r"|going to bed|heading home)"
        r"|off to bed|signing off|time for bed|that(?:'s| is| was| will be|'ll be) all"
    ),
    (TalkKind.FAREWELL, "de"): (
        r"gute nacht|nacht|tschüss?i?|tschau|ciao|servus|auf wiedersehen|bis (?:morgen|später|dann|bald|montag|nachher)|mach'?s gut"
        r"|(?:schönen )?feierabend|schönen (?:abend|tag)(?: noch)?|schönes wochenende|ich bin (?:weg|raus)|das wars|das war'?s"
    ),
    (
        TalkKind.FAREWELL,
        "zh",
    ): r"晚安|再见|拜拜|明天见|回头见|回见|下班(?:了|啦)|我(?:先)?走(?:了|啦)|我先撤了|周末愉快|就这些(?:了)?",
    (TalkKind.REGRET, "en"): r"sorry|oops|whoops|my bad|my mistake|pardon(?: me)?|excuse me|apologies",
    (TalkKind.REGRET, "de"): r"sorry|entschuldigung|'?tschuldigung|tut mir leid|verzeihung|mein fehler",
    (TalkKind.REGRET, "zh"): r"不好意思|抱歉|对不起",
}
_PADDING: Mapping[str, str] = {
    "en": (
        r"nightshift|mate|buddy|man|pal|dude|friend|bot|everyone|everybody|folks|team|again|then|so much|a (?:lot|ton"
        r"|bunch|million)"
        r"|very much|many|for (?:your|the|all(?: your)?)? ?(?:help|work|info|now|today|tonight|that|this|everything"
        r"|the night)|and|to (?:you|all)"
        r"|you|all|ok|okay|alright|right|great|perfect|cool|nice|awesome|wow|super|oh|ah|well|so|just|tomorrow|later|soon|around"
        r"|today|tonight|now|too"
        r"|as always|really|anyway|is|no problem|with|my|dear|lol|haha|this"
    ),
    "de": (
        r"nightshift|dir|euch|ihnen|schön|sehr|auch|noch|mal|dann|erstmal|erst mal|für (?:die|deine|heute|alles|das"
        r"|jetzt)(?: hilfe| arbeit)?"
        r"|zusammen|alle|alles|und|ok|okay|super|prima|klasse|toll|perfekt|na|so|ja|kollege|kumpel|wieder|heut(?:e)?|morgen|nacht|abend|diese"
        r"|für heute|das war'?s"
    ),
    "zh": r"你|您|你们|大家|"
    r"啦|了|哦|呀|啊|哈|呢|吧|的|好|好的|行|嗯|今天|今晚|明天|先|真|太|非常|很|夜班|助手|同学|兄弟|老师|们|帮忙|这些",
}
_REPLIES: Mapping[tuple[TalkKind, str], str] = {
    (TalkKind.GREETING, "en"): "Hello.",
    (TalkKind.GREETING, "de"): "Hallo.",
    (TalkKind.GREETING, "zh"): "你好。",
    (TalkKind.THANKS, "en"): "You are welcome.",
    (TalkKind.THANKS, "de"): "Gern geschehen.",
    (TalkKind.THANKS, "zh"): "不客气，应该的。",
    (TalkKind.FAREWELL, "en"): "Good night, and see you.",
    (TalkKind.FAREWELL, "de"): "Bis dann, eine ruhige Nacht.",
    (TalkKind.FAREWELL, "zh"): "再见，好好休息。",
    (TalkKind.REGRET, "en"): "No harm done.",
    (TalkKind.REGRET, "de"): "Nichts passiert.",
    (TalkKind.REGRET, "zh"): "没关系。",
}


class _OpenWords(NamedTuple):
    """How it is told what is open."""

    open: str
    approval: str
    incident: str
    nothing: str
    unknown: str
    join: str
    stop: str


_OPEN = {
    "en": _OpenWords(
        "Open: {}",
        "approval {} waits for a yes or no",
        "incident {} ({}) needs a person",
        "Nothing waits for a person",
        "What is open is not known now: {}",
        ", ",
        ".",
    ),
    "de": _OpenWords(
        "Offen: {}",
        "Freigabe {} wartet auf ein Ja oder Nein",
        "Vorfall {} ({}) braucht einen Menschen",
        "Auf einen Menschen wartet nichts",
        "Was offen ist, ist jetzt nicht bekannt: {}",
        ", ",
        ".",
    ),
    "zh": _OpenWords(
        "待处理：{}",
        "审批 {} 等待批准或拒绝",
        "事件 {}（{}）需要人处理",
        "目前没有需要人处理的事",
        "目前不知道有什么待处理：{}",
        "，",
        "。",
    ),
}
MOST_OPEN = 4


class SmallTalk(NamedTuple):
    """Small talk that was recognised."""

    kind: TalkKind
    language: str


def _part(words: str, language: str) -> str:
    return rf"(?:{words})" if language == "zh" else rf"(?<!\w)(?:{words})(?!\w)"


_PARTS = {row: re.compile(_part(words, row[1]), re.IGNORECASE) for row, words in _PHRASES.items()}
_PADS = {language: re.compile(_part(words, language), re.IGNORECASE) for language, words in _PADDING.items()}
MOST_CHARACTERS = 80


def small_talk(sentence: str) -> SmallTalk | None:
    """Return what a sentence is that holds nothing but small talk; None where it asks or orders anything.

    Args:
        sentence: As from `question_of`, in any of the languages.
    """
    if len(sentence) > MOST_CHARACTERS:
        return None
    text = sentence.replace("\u2019", "'")
    for language, padding in _PADS.items():
        remainder, kinds = text, []
        for (kind, of_language), pattern in _PARTS.items():
            if of_language == language and pattern.search(remainder):
                kinds.append(kind)
                remainder = pattern.sub(" ", remainder)
        if kinds and not re.search(r"\w", padding.sub(" ", remainder)):
            # thanks with a good night are a farewell; a greeting with thanks is thanks
            order = (TalkKind.FAREWELL, TalkKind.THANKS, TalkKind.REGRET, TalkKind.GREETING)
            return SmallTalk(next(kind for kind in order if kind in kinds), language)
    return None


def talk_told(turn: QuestionTurn, talk: SmallTalk) -> str:
    """Return a word in reply, and what is open."""
    words = _OPEN[talk.language]
    waiting, escalated = turn.look("list_approvals"), turn.look("list_incidents", unacknowledged=True, limit=MOST_OPEN)
    reply = _REPLIES[talk]
    error = waiting.error or escalated.error
    if error:
        return f"{reply} {words.unknown.format(error)}{words.stop}"
    parts = [f"{words.approval.format(row['approval'])} [{waiting.number}]" for row in waiting.value[:MOST_OPEN]]
    parts += [
        f"{words.incident.format(row['incident'], row['job'] or row['node'])} [{escalated.number}]"
        for row in escalated.value[:MOST_OPEN]
    ]
    open_text = words.open.format(words.join.join(parts)) if parts else words.nothing
    return f"{reply} {open_text}{words.stop}"
