"""What was read for the screen of an incident."""

from __future__ import annotations

from textual.message import Message

from assistant.doors.chat.about_incident import IncidentSeen
from assistant.doors.chat.about_recovery import RecoverySeen
from assistant.doors.chat.about_undo import SeenUndo
from assistant.doors.chat.curves import CurvesSeen
from assistant.doors.chat.messages import Latest
from assistant.doors.chat.places import Place


class Read(Latest):
    """The incident was read."""

    def __init__(self, seen: IncidentSeen) -> None:
        super().__init__()
        self.seen = seen


class CurvesRead(Latest):
    """The metrics were read."""

    def __init__(self, curves: CurvesSeen) -> None:
        super().__init__()
        self.curves = curves


class PlaceFound(Message):
    """What the person wants to read lies there."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


class ReportMade(Message):
    """The report is written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class UndoSeen(Message):
    """It is known what an undo would do."""

    def __init__(self, seen: SeenUndo) -> None:
        super().__init__()
        self.seen = seen


class RecoveryPlanned(Message):
    """It is known what going on would do."""

    def __init__(self, seen: RecoverySeen) -> None:
        super().__init__()
        self.seen = seen
