"""Words for the states of jobs and nodes, for changes, and for how something is asked, in English, German and Chinese.

They are looked for in a masked sentence in small letters, see `mentions`.
"""

from __future__ import annotations

import re


def _words(latin: str, han: str = r"(?!)") -> re.Pattern[str]:
    """Return a pattern for whole words of English and German, and for Chinese ones anywhere."""
    return re.compile(_WORD_FORM.format(latin=latin, han=han))


_WORD_FORM = r"(?<![\w'-])(?:{latin})(?![\w-])|(?:{han})"

NODE_STATES: dict[str, re.Pattern[str]] = {
    "up": _words(
        r"back(?: up| online| again)?|up|fine|ok|okay|healthy|alive|online|working|works|repaired|fixed|in service|usable"
        r"|good again"
        r"|power[- ]?cycled|resumed|undrained|uncordoned|ready|in order|recovered|(?:all )?good|safe|clean"
        r"|wieder(?: (?:da|oben|online|frei|heil|verfügbar|im (?:betrieb|dienst)|in (?:ordnung|betrieb)))?|in ordnung"
        r"|gesund|repariert"
        r"|heil|einsatzbereit|läuft",
        r"好了|没事|恢复|正常|修好|上线|可用|没问题|能用|回来了",
    ),
    "down": _words(
        r"down|dead|gone|offline|unreachable|not responding|crashed|failed|died|unavailable|lost|ausgefallen|tot|weg"
        r"|nicht erreichbar"
        r"|abgestürzt|abgeraucht|gestorben|unerreichbar|runter",
        r"宕机?|挂了?|掉线|失联|死机|死了",
    ),
    "drained": _words(
        r"drained|cordoned|out of (?:service|scheduling)|taken out|out|isolated|gedraint|rausgenommen|herausgenommen|raus|draußen"
        r"|außer betrieb|gesperrt",
        r"排空|下线|隔离|摘除",
    ),
    "faulty": _words(
        r"broken|faulty|bad|defective|sick|damaged|hosed|broke|fault|to blame|the (?:culprit|problem|cause)|unhealthy|flaky|kaputt"
        r"|defekt|fehlerhaft|schuld|krank|das problem|die ursache|has (?:an? )?(?:errors?|ecc\w*|problems?|faults?)"
        r"|causes? \w+|(?:shows?|throws?|reports?) errors?|fehler (?:hat|zeigt|meldet)|hat fehler|errors? on it",
        r"坏了?|故障|有错|报错|出错|有问题|出问题|有毛病|罪魁",
    ),
    "idle": _words(r"idle|free|unused|frei|leer", r"空闲|空着"),
}
"""States in which a node may be said to be."""
JOB_STATES: dict[str, re.Pattern[str]] = {
    "recovered": _words(
        r"(?:is |are |was )?back(?: up| again| online| on its feet)?|recovered|(?:runs?|running|up|going|works?) (?:again"
        r"|fine again)"
        r"|fixed|wieder (?:da|oben|am laufen)|(?:läuft|rennt|geht)(?: \w+)? wieder|wieder läuft|wiederhergestellt|erholt",
        r"恢复(?:了|正常|过来|好)|已经?恢复|好了|又跑起来|回来了",
    ),
    "restarted": _words(
        r"(?:been )?(?:re-?started|re-?submitted|re-?launched|re-?queued|re-?run)|started again|neu ?gestartet|neugestartet"
        r"|wieder gestartet|neu eingereicht",
        r"(?:重启|重新提交|重跑|重新跑|重新启动|重新运行)(?:了|过|完|成功)|(?:已经?|被|刚)(?:重启|重新提交|重跑|重新跑|重新启动|重新运行)",
    ),
    "failed": _words(
        r"crash(?:ed|es|ing)?|fail(?:ed|s|ing)?|died?|dead|dying|blew up|blown up|broke|abgestürzt|abstürzen|gescheitert"
        r"|fehlgeschlagen"
        r"|abgeraucht|gestorben|abgeschmiert|hingefallen|umgefallen",
        r"崩溃?|失败|挂了?|死了",
    ),
    "cancelled": _words(r"cancel+ed|scancel+ed|killed|aborted|stopped|abgebrochen|gestoppt|beendet", r"被?取消|被?终止|被?杀"),
    "running": _words(
        r"(?:still |now |currently )*(?:running|runs|run|active|alive|going)|läuft|laufen|rennt|aktiv",
        r"在跑|运行|还跑|跑着|在运行",
    ),
    "completed": _words(r"completed?|finished|done|succeeded|through|fertig|durch|abgeschlossen", r"完成|跑完|结束"),
    "pending": _words(r"pending|queued|in the queue|waiting|in der (?:schlange|queue|warteschlange)|wartet", r"排队|等待|在等"),
}
"""States in which a job may be said to be; the first that fits counts."""
CHANGES: dict[str, re.Pattern[str]] = {
    "uncordon": _words(
        r"un-?drain\w*|un-?cordon\w*|resum(?:e|ed|ing)|lift(?:ed|ing)?|reinstat\w+|(?:put|bring|brought|take|get|hol|hole|holen|nimm"
        r"|nehmen) (?:\S+ ){0,3}(?:back|zurück|wieder (?:rein|in betrieb|in dienst))|return(?:ed|ing)?(?: to service)?"
        r"|zurück(?:holen|geholt|nehmen|gegeben|geben)|wieder (?:rein|in betrieb|in dienst)\w*|aufheben",
        r"恢复|上线|解除|放回|取消排空|加回",
    ),
    "cordon": _words(
        r"drain(?:s|ed|ing|en|t)?|gedraint|cordon(?:s|ed|ing)?|isolat\w+|(?:take|takes|taken|taking|took|pull|pulled) (?:\S+ ){0,3}"
        r"(?:out|offline|down|away|aside)|set aside|rausgenommen|herausgenommen|rausnehmen|nimmt? (?:\S+ ){0,2}raus|raus|taken out"
        r"|out of (?:service|scheduling)|offlined",
        r"排空|下线|隔离|摘除|摘掉",
    ),
    "recover": _words(
        r"re-?start\w*|re-?submi\w+|re-?r[au]n\w*|re-?launch\w*|re-?queu\w*|(?:run|start\w*|bring"
        r"|brought) (?:\S+ ){0,3}(?:again|back)"
        r"|start\w* (?:\S+ ){0,4}neu|neu ?start\w*|neu ?gestartet|neu (?:startet|starten|einreichen)|wieder (?:gestartet"
        r"|starten)|run",
        r"重启|重新提交|重跑|重新跑|重新启动|重新运行|再跑",
    ),
    "cancel": _words(
        r"cancel\w*|scancel\w*|kill\w*|abort\w*|stop(?:s|ped|ping|p|pen|pt)?|terminat\w+|abbrech\w*|abgebrochen|abbruch|beend\w*|gestoppt"
        r"|brich\w* (?:\S+ ){0,3}ab|storn\w+",
        r"取消|终止|停掉|杀掉|停止",
    ),
    "repair": _words(
        r"fix(?:ed|es)?|repair\w*|replac\w+|swap\w*|repariert|reparatur|ausgetauscht|getauscht", r"修好|修理|修复|维修|更换|换了"
    ),
}
"""Words by which a change is spoken of, its done forms too; the first that fits counts."""
APPROVES = _words(
    r"approv\w*|allow\w*|grant\w*|sign(?:ed|s)? (?:it |that |this )?off(?: on)?|okay?ed|authori[sz]\w+|consent\w*"
    r"|green[- ]?lit|gave (?:the|a|its|his|her) (?:ok|okay|yes"
    r"|go)|said yes|says? yes|permit\w*|confirmed|genehmig\w*|freigegeben|freigab|erlaubt?|zugestimmt|abgesegnet|abgenickt"
    r"|bestätigt|ja gesagt|zustimm\w*",
    r"批准|审批过?|同意|授权|批了|放行",
)
CARRIED_OUT = _words(
    r"(?:been |got )*(?:carried out|executed|run|ran|done|applied|performed|completed|made|enacted|fulfilled|in effect|taken effect"
    r"|took effect|happen(?:ed)?|go(?:ne)? through|went through|through|work(?:ed)?|succeed(?:ed)?|granted|given|accepted|passed"
    r"|answered|already)|ausgeführt|durch(?:gegangen|geführt|gelaufen)?|gelaufen|passiert|erledigt|umgesetzt|vollzogen|erteilt"
    r"|angenommen",
    r"执行|完成|生效|跑了|通过|做了|成功",
)
SAYS = _words(
    r"says?|said|saying|claims?|claimed|reports?|reported|(?:told|tells) (?:me|us|everyone)|wrote|writes|thinks?|thought|believes?"
    r"|insists?|insisted|mention(?:s|ed)|asked|asks|wants?|wanted|suggests?|suggested|recommends?|recommended|according to"
    r"|apparently"
    r"|supposedly|allegedly|heard|hear|rumou?rs?|handover|hand-over|told|swears|reckons|note says|meint\w*|sagte?|gesagt"
    r"|behaupte\w*|berichte\w*|schrieb"
    r"|schreibt|geschrieben|laut|angeblich|glaubt\w*|denkt|dachte|möchte|empfiehlt|empfahl|bat|erzählt\w*|gehört|wollte"
    r"|will (?=(?:den |die |das |job |knoten )?\{\w+\} \w+en(?!\w))",
    r"说|称|告诉|声称|报告|认为|觉得|让我|叫我|要我|希望|建议|据|听说",
)
WISHES = _words(
    r"wants?|wanted|asked|asks|suggests?|suggested|recommends?|recommended|should|ought|must|needs? to|have to|to|please"
    r"|möchte|wollte"
    r"|empfiehlt|empfahl|bat|soll(?:te|en)?|muss|müssen|whether (?:i|we) (?:could|can|may)|could|can",
    r"要|让|叫|应该|该|希望|建议|得",
)
TRUE = _words(
    r"right|true|correct|is (?:that|this|it) (?:so|right|true|correct|the case)|is (?:he|she) right|really|agreed?"
    r"|can (?:that|this) be"
    r"|accurate|a fact|legit|yes or no|stimmt|richtig|wahr|korrekt|recht|wirklich|tatsächlich|did (?:any(?:one|body)"
    r"|somebody|someone)"
    r"|(?:was|were|did) (?:that|it|he|she|they)|hat (?:er|sie) recht|is (?:that|this|it) so",
    r"对吗|对吧|对不对|真的吗?|是吗|是不是|没错|属实|有没有|对么",
)
SHOULD = _words(
    r"(?:should|shall|may|can|could|must) (?:i|we)|(?:do|would|should) (?:i|we|you)(?: \w+)?|is it (?:ok|okay|safe|fine)"
    r"|was (?:that|it|this) (?:right|wise|ok)"
    r"|(?:what|how) should (?:i|we)|good idea|soll(?:te|en|ten)? (?:ich|wir)|darf ich|kann ich|muss ich|what should i tell",
    r"要不要|该不该|可以吗|行吗|应该吗|这样做|我该|能不能|该吗|照做",
)
NEGATES = _words(
    r"not|never|no longer|nobody|isn't|aren't|wasn't|hasn't|didn't|doesn't|don't|won't|cannot|can't|nicht|nie|kein\w*"
    r"|niemand|shouldn't",
    r"没有?(?!事|问题|错)|不(?!对)|未|别",
)
ASKS_WHO = _words(r"who|whom|whose|which (?:person|user|operator|admin)|wer|wem|wen|wessen", r"谁|哪个人|什么人|哪位")
WHEN = _words(r"when|since when|what time|how long ago|since|wann|seit wann", r"什么时候|何时|几点|多久前|啥时候|从什么时候")
HOW_OFTEN = _words(
    r"how (?:often|many times|frequently)|wie (?:oft|häufig)|wie viele? mal\w*|number of times", r"几次|多少次|多少回|几回"
)
WHY = _words(r"why|how come|what made|for what reason|warum|wieso|weshalb|weswegen", r"为什么|为啥|怎么(?!办|样)|为何|何以")
SINCE = re.compile(
    r"^\W*(?:(?:and|so|ok|okay|well|but|also|na|gut)\b[\s,]*)*(?:since (?!when|\{)|as (?!soon|long|far|for|of|per)"
    r"|now that |because |given that |seeing that |with the fact that "
    r"|after |considering (?:that )?|da |weil |nachdem |jetzt(?: wo|, wo) |wo doch |seit(?:dem)? |if .* already |既然|因为|鉴于"
    r"|由于)|^\W*since (?=\{)"
)
"""Begins a clause that takes something for granted."""
WOULD = _words(
    r"would(?:n't)?|could(?:n't)?|might|what if|if (?:i|we|you|they|somebody|someone|\{\w+\}) (?:had|were|did|was)|had (?:i"
    r"|we|you|they|\{\w+\})|should(?:n't)? (?:we|i|you|they) "
    r"(?:have|not have)|should have|suppose|assuming|hypothetically|hätten?|hättest|wäre(?:n)?|würde(?:n)?|angenommen",
    r"如果|要是|假如|倘若|早点|当时|早知道|本来",
)
SAVES = _words(
    r"saved?|rescued?|help(?:ed)?|surviv\w+|prevent\w*|avoid\w*|spared?|lived|still (?:be )?(?:run(?:ning)?|alive)|made it|kept"
    r"|(?:not|n't) (?:have )?(?:fail\w*|crash\w*|died)|gerettet|retten|geholfen|helfen|verhinder\w*|überleb\w*|vermieden"
    r"|vermeiden|bewahrt|durchgelaufen",
    r"救|避免|没事|不会|活下来|帮|躲过|防止",
)
LATER_IN = _words(
    r"(?:when|until when|how long|till when) (?:will|does|is|can|do)|usable|available|be back|come back|end|ends|expire\w*"
    r"|over|until when|bis wann|wieder|endet|verfügbar|nutzbar",
    r"能用|可用|结束|到期|恢复|回来|好",
)


def change_in(text: str) -> str:
    """Return the change that a masked text speaks of, the first in it; empty where it speaks of none."""
    matches = [(match.start(), place, name) for place, (name, words) in enumerate(CHANGES.items()) if (match := words.search(text))]
    return min(matches)[2] if matches else ""


def state_in(text: str, states: dict[str, re.Pattern[str]]) -> tuple[str, int]:
    """Return the state that a masked text speaks of and where the word stands; the first of the list that fits."""
    for name, words in states.items():
        if (match := words.search(text)) is not None:
            return name, match.start()
    return "", -1
