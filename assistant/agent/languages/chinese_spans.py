"""Spans of a Chinese sentence that are English in one piece: exceptions, contrasts, times of day, steps, counts of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable

from assistant.agent.languages.glosses import SentenceUnit, WordTag

_ID = r"[A-Za-z0-9][A-Za-z0-9_.\[\]-]*(?:,\d[\d,\[\]-]*)?"
_IDS = rf"{_ID}(?:\s*(?:、|和|跟|与|及)\s*{_ID})*"
_DIGITS = {"二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10, "十一": 11, "十二": 12}
_HOUR = r"(\d{1,2}|十[一二]?|[二两三四五六七八九])"
_LATE = frozenset({"下午", "晚上", "今晚", "明晚", "夜里", "傍晚"})

REWRITES: tuple[tuple[re.Pattern[str], str], ...] = (
    # 4830以外的任务 -> 除了4830 所有任务
    (
        re.compile(
            rf"(?<![除了掉开A-Za-z0-9_.\[-])({_IDS})\s*(?:以外|之外)的?(?:所有|其他|全部)?的?(节点|任务|作业|机器)?(?:都|全)?"
        ),
        r"除了\1 所有\2",
    ),
    # 除了X以外，其他都 -> 除了X 所有: one clause, and the exception is nothing more than its names
    (re.compile(r"除(?:了|开|掉|去)?([^，。？！]{1,30}?)(?:以外|之外|外)(?:的(?=节点|任务|作业|机器|都|全))?[，,]?"), r"除了\1 "),
    (re.compile(r"(除了[^，。？！]{1,30}?)\s*(节点|任务|作业|机器)(?:全部|全都|都|全)"), r"\1所有\2"),
    (re.compile(rf"(?:保持|维持)\s*({_ID})\s*的?(?:现状|原样|不变|状态)"), r"别动\1"),
    (re.compile(r"(?:改成|改为|换成)(?=从|用|在)"), ""),
    (re.compile(rf"是?你(?:下线|隔离|停用|drain)的?还是{_ID}(?:下线|隔离|停用|drain)?的?"), "是谁下线的"),
    (re.compile(rf"(?:刚才)?谁(?:把)?(?:下线|隔离|停用)了\s*({_ID})"), r"\1是谁下线的"),
    (re.compile(r"(除了[^，。？！]{1,30})[，,]\s*(?=其他|其它|其余|剩下|别的|所有|全|都)"), r"\1"),
    (re.compile(r"(除了[^，。？！]*?)(?:其他|其它|其余|剩下|别)的?(节点|任务|作业|机器)?的?(?:全部|全都|都|全)"), r"\1所有\2"),
    (
        re.compile(rf"(?:其他|其它|其余|剩下|别)的?(节点|任务|作业|机器)?的?(?:全部|全都|都|全)([^，。？！]*?)(除了{_IDS})"),
        r"\3所有\1\2",
    ),
    (
        re.compile(r"(?:打|说|写|搞|弄|记|讲|点)错了[，,\s]*(?:应该)?(?:是|我说的是|我指的是|我要的是)?(?=\s*[A-Za-z0-9])"),
        "不是，我指的是",
    ),
    (re.compile(r"(?<=[了过])没有?(?=[呀啊呢]?(?:[，。？！,?]|$))"), "吗"),
    (
        re.compile(
            r"(?:如果|要是|假如|若|万一)([^，。？！]{1,40}?)了?(?:的话)?[，,]?\s*(?:那)?(?:会|将)?(?:怎么样|怎样|如何|发生什么事?|出什么事|有什么(?:后果|影响|问题))"
            r"[呢呀啊]?(?=[？?。]|$)"
        ),
        r"会怎样如果\1？",
    ),
    (re.compile(r"(?<=会怎样如果)(我?)(?:把|将)"), r"\1"),
    (re.compile(r"^那么?(?=[它他她我你这现就谁为怎什还有要把先再别不今昨明哪得])(?!就)"), ""),
    # 等alice确认一下, 等我看完再说: what is waited for is no order
    (
        re.compile(
            r"(?:先)?等(?:一下|等)?(?:我|他|她|我们|[A-Za-z]\w*)[^，。？！再就]{0,12}?(?:再说|再看|再定|再决定)|等[^，。？！]{1,16}再(?:说|看|定|决定)"
        ),
        "等等",
    ),
    (
        re.compile(
            r"(?:先)?等(?:我|他|她|我们|[A-Za-z]\w*)(?:先|来|去)?(?:确认|同意|批准|批|检查|看|查|回复|回来|说)(?:一下|完|好|过|了)*(?=[，。！,]|$)"
        ),
        "等等",
    ),
    (re.compile(r"(?:别|不要|不用|甭)(?:去)?(?:听|理)(?:从)?(?:她|他|它|[A-Za-z]\w*)的?(?:话)?"), "别听"),
)


def _clock(match: re.Match[str]) -> SentenceUnit:
    part, hour_text, half, side = match[1] or "", match[2], match[3] or "", match[4] or ""
    hour = int(hour_text) if hour_text.isdecimal() else _DIGITS[hour_text]
    hour += 12 if part in _LATE and hour < 12 else 0
    minute = 30 if half == "半" else int(re.sub(r"\D", "", half) or 0)
    lead = "before" if side in ("前", "之前", "以前") else "after" if side in ("后", "之后", "以后") else "at"
    lead = "until" if match[0].startswith(("到", "直到")) else lead
    day = {"今晚": " tonight", "明晚": " tomorrow", "明天": " tomorrow"}.get(part, "")
    return SentenceUnit(f"{lead} {hour:02d}:{minute:02d}{day}", WordTag.TIME, match[0])


def _joined(names: str) -> str:
    return re.sub(r"\s*(?:、|和|跟|与|及)\s*", " and ", names)


SPANS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], SentenceUnit]], ...] = (
    (
        re.compile(
            rf"(?:到|直到)?(下午|晚上|今晚|明晚|夜里|傍晚|早上|上午|凌晨|中午|明天)?{_HOUR}点(?!儿|点)(?:钟|整)?(半|\d{{1,2}}分)?(之前|以前|前|之后|以后|后)?"
        ),
        _clock,
    ),
    (
        re.compile(rf"除了\s*({_IDS})(?![A-Za-z0-9_.\[-])(?!\s*[的那])"),
        lambda match: SentenceUnit(f"except {_joined(match[1])}", WordTag.ADVERB, match[0]),
    ),
    (
        re.compile(rf"(?:不想|不希望|不愿意?|不要|别|不能)让\s*({_ID})\s*再?(?:跑)?在\s*({_ID})\s*上?面?再?(?:跑|运行|重启|启动)?"),
        lambda match: SentenceUnit(f"do not run {match[1]} on {match[2]}", WordTag.PHRASE, match[0]),
    ),
    (
        re.compile(rf"不是\s*({_ID})\s*[，,]?\s*(?:而)?是\s*({_ID})"),
        lambda match: SentenceUnit(f"not {match[1]} but {match[2]}", WordTag.NAME, match[0]),
    ),
    (
        re.compile(r"(?:用|在)\s*(\d+|[二两三四五六七八十])\s*(?:个|台)\s*(?:节点|机器|结点)上?"),
        lambda match: SentenceUnit(f"on {_DIGITS.get(match[1], match[1])} nodes", WordTag.ADVERB, match[0]),
    ),
    (
        re.compile(r"(?:从|自|用|在)\s*(?:第\s*)?(\d+)\s*步(?:的?(?:检查点|存档|checkpoint|ckpt))?(?:开始|起)?"),
        lambda match: SentenceUnit(f"from step {match[1]}", WordTag.ADVERB, match[0]),
    ),
    (
        re.compile(r"(?:从|自)\s*(\d+00|\d{1,3})\s*(?=重启|重跑|恢复|续跑|开始|重新)"),
        lambda match: SentenceUnit(f"from step {match[1]}", WordTag.ADVERB, match[0]),
    ),
)
"""What each span is in English, as one unit."""

CONDITIONAL = re.compile(r"^(?:如果|要是|假如|若|万一|一旦|只要|等)")
CONSEQUENCE = re.compile(r"(?<=.)(?=那?就(?!绪|是|这)|便(?=取消|重启|停|下线))")
"""Where an order begins that hangs on a condition."""
REPORTING = re.compile(
    r"^([A-Za-z][A-Za-z_]*|他|她|老板|同事|有人|领导|主管)(?:刚才|刚刚|昨天|今天)?(?:说|让|叫|要求|告诉|希望|想|觉得|建议)(?!明)"
)
"""The begin of a clause that tells what somebody else wants."""
