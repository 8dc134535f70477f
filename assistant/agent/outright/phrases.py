"""German and Chinese wordings of questions that are answered outright, as the English question; names stand in them as typed.

A wording is a whole sentence or a part of one; what none of them matches goes the way of all sentences, by the tables of words.
"""

from __future__ import annotations

import re

_X = r"(?P<x>(?:node|knoten|job|jobs|incident)?\s?[a-z-]*\d+)"
_NODE = r"(?P<x>(?:node|knoten|maschine)?\s?[a-z-]*\d+)"
_J = r"(?P<j>\d{3,})"
_U = r"(?P<u>[a-zäöüß][\w-]{1,30}?)"
_AND = r"(?:(?:und|aber|also|na|ok|okay|dann|ja|so|jetzt|halt|hm+|sag(?:e|t)?(?: mir| mal| schnell| nur| bloß)*|nur)[\s,]+)*"
_FREE = (
    r"(?:freigeb\w*|freizugeben|hoch ?nehm\w*|zurück ?hol\w*|rein ?nehm\w*|zurück ?geb\w*|undrain\w*"
    r"|wieder ?freigeb\w*|aktivier\w*|in betrieb nehm\w*|zurück ?nehm\w*|hochfahr\w*|reinstell\w*"
    r"|einschalt\w*)"
)
_NOT_YES = (
    r"(?:nein sag\w*|nein sagen|nicht (?:zustimm\w*|freigeb\w*|genehmig\w*|ja sag\w*|bestätig\w*|erlaub\w*"
    r"|antwort\w*|reagier\w*)|ablehn\w*|ablehnen|verweiger\w*)"
)
_GERMAN: tuple[tuple[str, str], ...] = (
    (r"(?:seit wann|wie lang(?:e)?)(?: denn| schon| jetzt| geht das| ist das(?: so)?| läuft das)*", "since when?"),
    (
        (
            r"wer (?:kann|darf|muss|soll|könnte)(?: da| das| dem| denn| jetzt| hier| überhaupt)*(?: (?:mit"
            r" )?ja)?(?: dazu)? ?(?:sagen|zustimmen|freigeben|genehmigen|entscheiden|bestätigen|absegnen|erlauben)"
        ),
        "who can say yes?",
    ),
    (
        (
            r"(?:wo|wohin|auf welche(?:n|m|r)? (?:knoten|nodes?|maschinen?|rechnern?)) (?:würde|wird|läuft|landet"
            r"|liefe|käme|landete|startet|geht)(?: (?:es|er|sie|das|der|dieser|job|neustart))*(?: dann| denn)*(?:"
            r" landen| laufen| starten| hinkommen| hin)?"
        ),
        "where would it land?",
    ),
    (
        (
            r"(?:hat|war|ist|hatte) (?:der|ein|das|dieser|irgendein|sein|ihr) (?:neustart|restart)(?: denn|"
            r" überhaupt| was| etwas| irgendwas| je| schon| auch)* ?(?:geklappt|funktioniert|geholfen|gebracht"
            r"|genützt|genutzt|erfolgreich|durch|gelungen)?(?: gewesen)?"
        ),
        "did the restart work?",
    ),
    (
        (
            r"(?:wessen (?:schuld|fehler|problem)|wer ist (?:daran |dran )?schuld|wer hat schuld)(?: ist das| war"
            r" das| denn| daran| dran)*"
        ),
        "whose fault is it?",
    ),
    (
        (
            r"(?:was|wie) (?:würdest|würdst|tätest) du(?: da| jetzt| denn| hier| selbst)*(?: (?:machen|tun"
            r"|empfehlen|raten|entscheiden|vorgehen))?|was (?:rätst|empfiehlst) du(?: mir)?"
        ),
        "what would you do?",
    ),
    (
        (
            r"(?:was(?: ist| passiert| wäre?| wird)?)?,? ?(?:wenn|falls) (?:ich|wir|man)(?:'?s| es| das)?"
            r" (?:trotzdem|dennoch|doch|einfach) (?:mach\w*|tu\w*|täte\w*)"
        ),
        "what if I do it anyway?",
    ),
    (
        (
            r"(?:was(?: machst du| passiert| ist| wird| geschieht| wäre?| folgt)?(?: denn| dann| eigentlich)*)?,?"
            r" ?(?:wenn|falls) (?:ich|wir|man|keiner|niemand)(?: (?:zu|bei|die|den|das|es|da|dazu))*(?:"
            r" (?:freigabe|approval|anfrage|nummer))?(?: ?(?P<n>\d+))? ?"
        )
        + _NOT_YES,
        "what happens if I say no?",
    ),
    (
        (
            rf"(?:wenn|falls) (?:ich|wir|man) {_NODE}(?: jetzt| wieder| nun)* {_FREE},? (?:landet|läuft|würde|kommt"
            rf"|startet|geht|liefe)(?: der| job)*(?: {_J})(?: dann| wieder| da| dort| drauf| darauf| dahin| landen|"
            r" laufen| starten| drauflaufen)*"
        ),
        "if I undrain {x}, would {j} run on it again?",
    ),
    (
        rf"was (?:passiert|ist|wäre?|geschieht|wird),? (?:wenn|falls) (?:ich|wir|man) {_NODE}(?: jetzt| wieder| nun)* {_FREE}",
        "what happens if I undrain {x}?",
    ),
    (rf"(?:kann|darf|soll|könnte|sollte) (?:ich|man) {_NODE}(?: jetzt| wieder| schon| nun)* {_FREE}", "can I undrain {x}?"),
    (
        (
            r"wie (?:mache?|krieg\w*|bekomm\w*|kann|stell\w*) (?:ich|wir|man)(?: denn| jetzt)*(?: (?:das|den"
            rf"|die))?(?: (?:drain|sperre|sperrung|cordon|ding|sache))?(?: (?:von|auf|bei|für|mit))? ?{_NODE}(?:"
            r" wieder)? (?:rückgängig|zurück)(?: machen)?"
        ),
        "how do I undo the drain of {x}?",
    ),
    (
        (
            r"wie (?:mache?|krieg\w*|bekomm\w*|kann) (?:ich|wir|man)(?: denn| jetzt)* (?:das|es|den|die)(?:"
            r" wieder)? (?:rückgängig|zurück)(?: machen)?"
        ),
        "how do I undo that?",
    ),
    (
        (
            r"wie ?viele? (?:schritte|steps|iterationen) (?:sind|gehen|gingen|hat|muss|müssen|verliert|verlor"
            rf"|verlieren|wären)(?: wir)?(?: bei| in| von| für)?(?: job)? ?{_J}(?: dann| jetzt| nochmal| noch ?mal|"
            r" noch| mal| neu)*(?: (?:futsch|verloren|weg|gegangen|wiederholen|machen|hin|verlorengegangen"
            r"|wiederholt werden))*"
        ),
        "how many steps did {j} lose?",
    ),
    (
        (
            r"(?:wann|wann genau)(?: ungefähr| etwa| circa| ca\.?| denn)*(?: kommt| ist)? (?:der|den|das)"
            r" (?:nächste|nächster)(?: checkpoint| save| speicherstand)?(?: kommt| fällig(?: ist)?| ist| dran(?:"
            r" ist)?)?"
        ),
        "when is the next checkpoint?",
    ),
    (
        (
            r"welcher (?:job|lauf) ist (?:zuletzt|als letzter|als letztes|am letzten) (?:kaputt ?gegangen"
            r"|gescheitert|abgestürzt|gestorben|gecrasht|ausgefallen|fehlgeschlagen)"
        ),
        "which job failed last?",
    ),
    (
        r"(?:wars|war es|war das|lags|lag es|lag das|liegts|liegt es)(?: an der| die| an)? (?:hardware|gpu|maschine)",
        "was it hardware?",
    ),
    (
        (
            rf"wie ?viele? (?:rechen|gpu-?|knoten-?|node-?|maschinen)?stunden (?:hat|haben) {_U}(?: \w+)*?"
            r" (?:verloren|verbraten|verbrannt|verschwendet|vergeudet|verpulvert|verheizt)"
        ),
        "how many node hours did {u} lose on failed jobs?",
    ),
    (
        (
            r"(?:davor\W+)?(?:nur|bloß|lediglich)(?: noch)?(?: (?:die|das|der|den|von|aus|für))* (?:letzte|letzter"
            r"|vergangene|vergangener)(?:r|n)? nacht"
        ),
        "only last night's",
    ),
    (r"(?:nur|bloß|lediglich)?(?: noch)?(?: (?:die|das|der|den|von|aus|für))* ?(?:seit|nach) mitternacht", "only since midnight"),
    (
        (
            rf"hat {_U}(?: gerade| noch| aktuell| irgendwelche| einen| was| überhaupt)*(?: (?:jobs?|was|etwas))?(?:"
            r" (?:laufen|am laufen))"
        ),
        "does {u} have any jobs running?",
    ),
    (rf"hat {_U}(?: gerade| noch| aktuell| irgendwelche| einen| überhaupt)* jobs?", "does {u} have jobs?"),
    (rf"(?:zeig\w*|liste|gib)(?: mir| uns| mal| bitte| alle)* {_U}(?:'?s)? (?:jobs?|läufe)", "show {u}'s jobs"),
    (rf"welche jobs (?:hat|laufen (?:bei|von)) {_U}", "show {u}'s jobs"),
    (
        rf"warum (?:hängt|wartet|startet|läuft|steht) (?:der |dem |denn )*{_U}(?:'?s)?[ -]job(?: noch)?(?: nicht)?(?: an)?",
        "why is {u}'s job pending?",
    ),
    (
        rf"warum (?:hängt|wartet|steht|ist) (?:job )?{_J}(?: immer)?(?: noch)?(?: in der (?:queue|warteschlange)| pending)?",
        "why is {j} still pending?",
    ),
    (
        rf"wie sicher bist du(?: dir)?(?: denn)? (?:bei|mit|wegen|über|dass|was)(?: der| dem| es)? ?{_X}.*",
        "how sure are you about {x}?",
    ),
    (
        (
            r"(?:warst|bist|wars) du (?:das|es|dran|daran)(?: gewesen| schuld)?|(?:hast|warst) du das (?:gemacht"
            r"|verursacht|getan|selbst)?"
        ),
        "was that you?",
    ),
    (
        (
            r"wann (?:geht|kommt|läuft|ist|antwortet|funktioniert) (?:der |das )?(?:slurm|scheduler)(?: wieder|"
            r" endlich| denn| zurück| da| online)*"
        ),
        "when will slurm be back?",
    ),
    (
        (
            r"(?:seit wann|wie lang(?:e)? schon) (?:ist|antwortet|hängt) (?:der |das )?(?:slurm|scheduler)(?:"
            r" schon| denn| nicht| mehr| weg| tot| down| unten| kaputt| aus)*"
        ),
        "since when is slurm down?",
    ),
    (
        (
            r"(?:halt|stopp|stop|nein|ne|doch|ach|moment|falsch)[\s,!.]*(?:(?:halt|stopp|nein|ne|doch|ach|ich"
            r" meinte?)[\s,!.]*)*(?:den|die|das) (?P<s>wartenden?|laufenden?|anderen?|gescheiterten?)(?: job)?"
        ),
        "no, I meant the {s} one",
    ),
    (r"was (?:soll|muss|kann) ich (?:jetzt |nun |da )*(?:tun|machen)|was (?:tun|nun|jetzt)", "what should I do?"),
    (r"warum (?:ist|war) (?:er|sie|es|der|die) (?:draußen|raus|weg|down|unten|gesperrt)", "why is it out?"),
    (
        r"(?:bis wann) (?:ist |bleibt )?(?:er|sie|es|der|die)? ?(?:draußen|raus|weg|gesperrt)(?: ist| bleibt)?",
        "until when is it out?",
    ),
    (rf"(?:bis wann|wie lange noch) (?:ist|bleibt) {_NODE} (?:draußen|raus|weg|gesperrt)", "until when is {x} out?"),
    (rf"(?:und )?(?:die |der |das )?(?:jobs )?(?:von|bei) {_U}", "and {u}?"),
)
_GERMAN_TIMES: tuple[tuple[str, str], ...] = (
    (r"seit (?:mitternacht|null uhr|0 uhr)", "since midnight"),
    (r"zwischen (?P<a>\d{1,2}(?::\d\d)?)(?: uhr)? und (?P<b>\d{1,2}(?::\d\d)?)(?: uhr)?", "between {a} and {b}"),
    (r"(?:seit|nach|ab) (?P<a>\d{1,2}(?::\d\d)?)(?: uhr)?", "since {a}"),
    (r"vor (?P<a>\d{1,2}(?::\d\d)?)(?: uhr)", "before {a}"),
    (r"(?:um|gegen) (?P<a>\d{1,2}(?::\d\d)?)(?: uhr)?", "at {a}"),
    (r"(?:letzte|heute|diese|vergangene|in der(?: letzten)?) nacht", "last night"),
)
_GERMAN_HAPPENED = re.compile(
    r"\bwas\b.*\b(?:passiert|los|geschehen|gewesen|war)\b|\b(?:ist|war) (?:irgend)?(?:was|etwas)\b.*\b(?:passiert|los)\b",
    re.IGNORECASE,
)
_GERMAN_FAILED = re.compile(
    r"\b(?:kaputt\w*|abgestürzt|gescheitert|ausgefallen|gecrasht|gestorben|schief\w*|fehlgeschlagen|krachen|gekracht)\b",
    re.IGNORECASE,
)
_GERMAN_NOT = re.compile(
    r"\b(?:node|knoten|wie ?viele?|warum|wer|wessen|hast|hat|du|drain\w*|starte|brich|cancel)\b|\d{4}|[a-z]\d", re.IGNORECASE
)
_GERMAN_STATES = {"wartend": "waiting", "laufend": "running", "ander": "other", "gescheitert": "failed"}
_HX = r"(?P<x>(?:node|节点)?\s?[A-Za-z-]*\d+)(?:号)?(?:节点|机器)?"
_HJ = r"(?:任务|作业)?(?P<j>\d{3,})"
_HU = r"(?P<u>[A-Za-z][\w-]{1,30})"
_CHINESE: tuple[tuple[str, str], ...] = (
    (r"(?:那)?(?:从|自)?(?:什么时候|啥时候|何时)(?:开始|起)?的?(?:呢)?|(?:已经|都)?(?:多久|多长时间)了?(?:呢)?", "since when?"),
    (r"(?:那)?谁(?:能|可以|来|有权|该|应该)?(?:批准?|审批|同意|点头|说了算|决定|拍板|说可以)(?:呢|这个|它)?", "who can say yes?"),
    (
        r"(?:那)?(?:它)?(?:会|要|将)?(?:落|跑|放|调度|分配|运行)(?:在|到)哪(?:个|些|几个)?(?:节点|机器|里|儿|上)*(?:呢|上)?",
        "where would it land?",
    ),
    (
        rf"{_HJ}(?:的)?(?:重启|重跑|恢复)(?:之后|后)?(?:有用|成功|起作用|管用|有效)(?:了)?(?:吗|没有?|么)",
        "did the restart of {j} work?",
    ),
    (r"(?:那)?(?:重启|重跑|恢复)(?:之后|后)?(?:有用|成功|起作用|管用|有效)(?:了)?(?:吗|没有?|么)", "did the restart work?"),
    (r"(?:那)?(?:这|那|到底)?(?:是)?(?:谁的(?:错|责任|锅|问题|毛病)|怪谁|该怪谁)(?:呢)?", "whose fault is it?"),
    (
        r"(?:那)?(?:换)?(?:你|要是你|如果是你)(?:会|觉得|建议|说)?(?:该)?(?:怎么(?:做|办|选)|批吗|批不批)(?:呢)?",
        "what would you do?",
    ),
    (
        (
            r"(?:那)?(?:我)?(?:要是|如果|假如|万一|若)?(?:我|没人|大家)?(?:要是|如果)?(?:不批准?|拒绝|不同意|说不"
            r"|不点头|没人批)(?:了|它|这个)?(?:的话)?(?:呢|会怎样|会怎么样|会如何|怎么办|会发生什么)?"
        ),
        "what happens if I say no?",
    ),
    (
        r"(?:那)?(?:我)?(?:要是|如果)?(?:我)?(?:非要|硬要|还是|偏要|坚持)(?:这么|这样)?(?:做|干|放|弄)(?:呢|会怎样|会怎么样)",
        "what if I do it anyway?",
    ),
    (
        (
            rf"(?:如果|要是)?(?:我)?(?:把)?{_HX}(?:放回去?|恢复|上线|解除隔离)(?:的话)?(?:，|,)?{_HJ}?(?:会怎么样"
            r"|会怎样|有什么后果|会发生什么|会如何)(?:呢)?"
        ),
        "what happens if I undrain {x}?",
    ),
    (r"(?:那)?(?:这|那)?(?:是不是|是)你(?:干|弄|搞|做|造成)的(?:吗|么|吧)?", "was that you?"),
    (
        (
            r"哪(?:条|一条|行|一行)(?:日志|记录|log)?(?:能|可以)?(?:证明|说明|显示"
            rf"|表明)(?:了)?{_HJ}(?:的)?(?P<t>不是硬件|是代码|是硬件|是程序|不是代码).*"
        ),
        "which line proves that {j} is {t}?",
    ),
    (r"只(?:算|看|要)(?:真正|实际|真的)?(?:丢|损失|浪费|重跑|要重跑|丢掉)(?:了)?的", "only what was really lost"),
    (
        rf"{_HU}(?:的)?失败的?(?:任务|作业)(?:一共|总共|共)?(?:浪费|损失|花|烧|用)(?:了)?多少(?:时间|机时|小时)?",
        "how many node hours did {u} lose on failed jobs?",
    ),
    (
        r"(?:今天)?(?:凌晨|早上|夜里|半夜|晚上)?(?P<a>\d{1,2})点(?:钟)?(?:发生了?什么|出了?什么事|怎么了|发生啥了?)(?:事)?",
        "what happened at {a}:00?",
    ),
    (
        (
            r"(?:从)?(?:半夜|午夜|零点|凌晨零点|0点)(?:到现在|以来|以后|之后|起|开始)?.*?(?:出了?什么(?:问题|事)"
            r"|坏了?什么|什么坏了|失败|挂了|崩了).*"
        ),
        "what failed since midnight?",
    ),
    (
        r"(?:凌晨)?(?P<a>\d{1,2})点?(?:到|至|和|-)(?P<b>\d{1,2})点(?:之间|间)?.*?(?:失败|挂|坏|崩|出.*问题).*",
        "what failed between {a}:00 and {b}:00?",
    ),
    (
        rf"{_HJ}(?:为什么|怎么|为啥|干嘛)(?:还|一直)?(?:在|没)?(?:排队|等待|等|没跑|没开始|不跑|跑|开始)(?:呢|啊)?",
        "why is {j} still pending?",
    ),
    (r"(?:slurm|调度器)(?:什么时候|啥时候|何时|多久)(?:能)?(?:恢复|好|回来|修好)(?:呢)?", "when will slurm be back?"),
    (r"(?:slurm|调度器)(?:挂|断|停|坏|不响应|没响应)(?:了)?(?:多久|多长时间)了?(?:呢)?", "since when is slurm down?"),
    (rf"{_HU}有(?:没有)?(?:什么)?(?:任务|作业)(?:在跑|在运行)(?:吗|么)?", "does {u} have any jobs running?"),
    (rf"{_HU}有(?:没有)?(?:任务|作业)(?:吗|么)?", "does {u} have jobs?"),
    (rf"{_HU}(?:都)?有(?:哪些|什么|啥)(?:任务|作业)", "show {u}'s jobs"),
    (rf"(?:看看|列出|显示)?{_HU}的(?:任务|作业)", "show {u}'s jobs"),
    (rf"(?:那)?{_HU}呢", "and {u}?"),
    (r"(?:这|那)?是谁的(?:任务|作业)", "whose job is it?"),
    (r"(?:只|就)?(?:告诉我|说说)(?:它)?(?:为什么|为啥|怎么)(?:下线|挂|掉线|离线)了?", "why is it out?"),
)
_HAN_TEXTS = {
    "不是硬件": "not hardware",
    "是硬件": "hardware",
    "是代码": "a bug of the code",
    "是程序": "a bug of the code",
    "不是代码": "not the code",
}


def _compiled(rows: tuple[tuple[str, str], ...], lead: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rf"^\W*{lead}(?:{pattern})\W*$", re.IGNORECASE), english) for pattern, english in rows)


_GERMAN_ROWS, _CHINESE_ROWS = _compiled(_GERMAN, _AND), _compiled(_CHINESE, "")
_TIME_ROWS = tuple((re.compile(rf"\b{pattern}(?!\w)", re.IGNORECASE), english) for pattern, english in _GERMAN_TIMES)


def outright_phrase(sentence: str) -> str:
    """Return a German or Chinese question as the English one that it is a wording of; empty where no wording fits."""
    is_han = re.search(r"[\u3400-\u9fff]", sentence) is not None
    for pattern, english in _CHINESE_ROWS if is_han else _GERMAN_ROWS:
        if (match := pattern.match(sentence)) is not None and not _is_common(match.groupdict().get("u") or ""):
            groups = {name: _slot(name, text) for name, text in match.groupdict().items() if text}
            question = english if all(f"{{{name}}}" not in english or name in groups for name in "xjuabst") else ""
            if groups.get("n"):
                question = question.replace("say no?", f"say no to approval {groups['n']}?")
            for name, text in groups.items():
                question = question.replace(f"{{{name}}}", text)
            if question:
                return question
    return "" if is_han else _german_window(sentence)


_COMMON = frozenset(
    """
    der die das den dem ein eine einen es er sie ihr mir mich uns man was wer alle jeder jemand niemand keiner node job slurm
    nightshift
    gpu alles heute gestern nacht laufende letzte meine deine seine ihre welche viele gerade noch schon mal bitte irgendwer wartende
    """.split()
)


def _is_common(word: str) -> bool:
    return word.lower() in _COMMON or word.lower().startswith("node")


def _slot(name: str, text: str) -> str:
    if name == "s":
        return next(english for stem, english in _GERMAN_STATES.items() if text.lower().startswith(stem))
    if name == "t":
        return _HAN_TEXTS[text]
    return re.sub(r"^(?:knoten|maschine|节点)\s*", "node ", text, flags=re.IGNORECASE).strip()


def _german_window(sentence: str) -> str:
    """Return what is asked of a range of time in German: what happened, what failed."""
    if not re.search(
        r"\b(?:was|ist|sind|welche|war|wars|gab|seit|zwischen|heute|letzte)\b", sentence, re.IGNORECASE
    ) or _GERMAN_NOT.search(sentence):
        return ""
    for pattern, english in _TIME_ROWS:
        match = pattern.search(sentence)
        if match is None:
            continue
        phrase = english
        for name, text in match.groupdict().items():
            phrase = phrase.replace(f"{{{name}}}", text or "")
        if _GERMAN_FAILED.search(sentence):
            asks = re.match(r"^\W*(?:ist|war|sind|zwischen|gab|vor)\b", sentence, re.IGNORECASE)
            return f"did anything fail {phrase}?" if asks else f"what failed {phrase}?"
        if _GERMAN_HAPPENED.search(sentence):
            return f"what happened {phrase}?"
    return ""
