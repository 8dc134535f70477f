"""Dialogs that lead to a change: only a deliberate act answers them.

An answer counts when it stands alone: a pause after the dialog was drawn, a pause before the key and a pause after it. Ordinary
typing, bursts, pastes, held keys and double clicks have no such pauses. Enter answers nothing. What cannot be undone asks, after
the yes, for the name of what is changed, typed by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widgets import Button, Input

from assistant.display import line
from assistant.gate.consent import AFTER_S, BEFORE_S, BY_HAND_S, is_by_hand

if TYPE_CHECKING:
    from textual.widget import Widget

    from assistant.ports import Clock
    from assistant.tui.snapshot import KillSwitchSnapshot


Result = TypeVar("Result")

TYPING_S = 2.0
"""Seconds before an answer after a letter that means nothing here, and after each key that follows it sooner than that: whoever
types a sentence is not answering, also where `n` and `y` are among its letters."""
TICK_S = 0.05
"""Seconds between two looks whether an answer has stood alone long enough."""
LEFT_BUTTON = 1
LEAST_SIZE = (40, 12)
"""Columns and rows of a terminal in which a command can be read beside the buttons."""


class InputKind(Enum):
    """What a person did, as far as a dialog cares."""

    ANSWER = auto()
    """A key or a click that answers."""
    NAVIGATION = auto()
    """A key that moves or scrolls, or does nothing and is no letter."""
    TEXT = auto()
    """A letter that means nothing here, or a paste."""


class AnswerGuard:
    """Tells from the times of keys and clicks whether an answer was deliberate. Times are those of `Clock.ticks`, in seconds."""

    def __init__(self) -> None:
        self._drawn_at = math.inf
        self._last_at, self._typed_at = -math.inf, -math.inf
        self._pending: str | None = None
        self._pending_at, self._quiet_looks = 0.0, 0

    @property
    def pending(self) -> str | None:
        """The answer that was given and does not count yet."""
        return self._pending

    @property
    def is_drawn(self) -> bool:
        """Whether the dialog was drawn as it is now."""
        return self._drawn_at < math.inf

    def hide(self) -> None:
        """Note that the dialog cannot be seen as it is now; nothing is answered until it is drawn."""
        self._drawn_at, self._pending = math.inf, None

    def draw(self, at: float) -> None:
        """Note that the dialog was drawn anew: the pause begins again."""
        self._drawn_at, self._pending = at, None

    def stands_alone(self, at: float, kind: InputKind) -> bool:
        """Take a key or a click, and tell whether the pauses before it were long enough; an answer that is pending is withdrawn."""
        types = at - self._typed_at < TYPING_S
        alone = self._pending is None and not types and at - self._drawn_at >= BEFORE_S and at - self._last_at >= BEFORE_S
        if types or kind is InputKind.TEXT:
            self._typed_at = max(at, self._typed_at)
        self._last_at, self._pending = max(at, self._last_at), None
        return alone

    def begin(self, answer: str, at: float) -> None:
        """Let an answer wait for the pause after it."""
        self._pending, self._pending_at, self._quiet_looks = answer, at, 0

    def due(self, at: float) -> str | None:
        """Return the answer that counts now, once; to be called every `TICK_S`.

        The second look in a row decides: after a stall of the program, keys that were typed meanwhile come before it.
        """
        if self._pending is None or at - self._pending_at < AFTER_S:
            return None
        self._quiet_looks += 1
        if self._quiet_looks < 2:
            return None
        answer, self._pending = self._pending, None
        return answer


ROWS_AROUND = 8
"""Rows of a dialog around its text: border, padding, and the buttons or the field for a name."""
LEAST_TEXT_ROWS = 3


class AnswerButton(Button, can_focus=False):
    """A button for the mouse: it never has the focus, so that Enter and Space press nothing."""


class NameField(Input):
    """Takes a name that is typed; nothing is pasted into it, not from the application's own clipboard either."""

    def action_paste(self) -> None:
        """Ignore a paste: it is no deliberate answer."""


class ConsentScreen(ModalScreen[Result]):
    """Asks a person whether something may be changed; see the text of this file.

    The application hands it every key and paste first (`admit`). A subclass lays out its text in `compose`, then the widgets
    of `answer_widgets`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Allow"),
        Binding("n", "answer('no')", "Leave it"),
        Binding("escape", "leave", "Later"),
    ]
    ANSWER_KEYS: ClassVar[frozenset[str]] = frozenset({"y", "n"})
    """Keys that answer or end the dialog, and therefore have to stand alone. Escape always leaves."""
    YES: ClassVar[str] = "Allow"
    NO: ClassVar[str] = ""
    """Label of the button of a no; empty where leaving is the only no."""
    LATER: ClassVar[str] = "Later"
    DOES: ClassVar[str] = "allows"
    """What `y` does, as a verb."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = AnswerGuard()
        self._stood_alone = False
        """Whether the last key or click may answer."""
        self._pressed = False
        """Whether the mouse button went down in time; its release belongs to it."""
        self._field = ""
        """Id of the input that the person types in; empty while keys answer."""
        self._typed: list[float] = []
        """When each character of the name was typed, from the last time on that the field was empty."""
        self._looks: Timer | None = None
        self.hinted = ""
        """What was said last at the lower edge; empty for what the keys do."""

    # --- what a dialog says about itself

    def agreed(self) -> Result:
        """Return the result of a yes."""
        raise NotImplementedError

    def unanswered(self) -> Result:
        """Return the result of leaving the dialog unanswered."""
        raise NotImplementedError

    @property
    def target_name(self) -> str:
        """What the person types before a change that cannot be undone; empty where `y` is enough."""
        return ""

    @property
    def obstacle(self) -> str:
        """Why nobody can say yes now; empty when one can."""
        size = self.app.size
        if size.width < LEAST_SIZE[0] or size.height < LEAST_SIZE[1]:
            return f"{size.width}x{size.height} is too small to read it: {LEAST_SIZE[0]}x{LEAST_SIZE[1]} at least"
        switch: KillSwitchSnapshot | None = self.app.kill_switch  # type: ignore[attr-defined]
        return "" if switch is None else f"stopped by {switch.path}: nothing is changed; /stop --lift"

    def answer_widgets(self) -> Iterator[Widget]:
        """Yield the field for the name and the buttons."""
        yield NameField(id="consent-name", classes="consent-field")
        with Horizontal(classes="asks-buttons"):
            yield AnswerButton(f"{self.YES} [dim]y[/]", variant="warning", id="yes", disabled=bool(self.obstacle))
            if self.NO:
                yield AnswerButton(f"{self.NO} [dim]n[/]", id="no")
            yield AnswerButton(f"{self.LATER} [dim]esc[/]", id="leave")

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        raise NotImplementedError

    # --- being seen

    def on_mount(self) -> None:
        """Begin the pause again whenever something else is seen."""
        self.watch(self.app, "kill_switch", self._obstacle_changed, init=False)
        self.watch(self.app, "app_focus", self.show_anew, init=False)

    def on_screen_resume(self) -> None:
        """Begin the pause when the dialog comes to the top."""
        self.show_anew()

    def on_resize(self) -> None:
        """Leave room for the buttons below a text of any length, and begin the pause again: the buttons stand elsewhere."""
        for text in self.query(".consent-text"):
            text.styles.max_height = max(LEAST_TEXT_ROWS, self.size.height * 9 // 10 - ROWS_AROUND)
        self._obstacle_changed()

    def show_anew(self) -> None:
        """Ignore answers until the dialog was drawn and looked at."""
        self.guard.hide()
        self.hint()
        self.call_after_refresh(lambda: self.guard.draw(self._clock.ticks()))

    def _obstacle_changed(self) -> None:
        for button in self.query("#yes").results(Button):
            button.disabled = bool(self.obstacle)
        self.show_anew()

    def hint(self, text: str = "") -> None:
        """Say something at the lower edge, where it moves nothing; without a text, what the keys do."""
        self.hinted = text
        for box in self.query(".consent"):
            box.border_subtitle = Content(line(text or self.obstacle or f"y {self.DOES}, alone; Enter answers nothing"))
            box.set_class(bool(text), "-hinting")

    # --- what the person does

    @property
    def _clock(self) -> Clock:
        clock: Clock = self.app.backend.clock  # type: ignore[attr-defined]
        return clock

    def admit(self, event: events.Event) -> bool:
        """Take notice of a key, a click or a paste, and return whether it goes on to the dialog."""
        # what was typed while the program was busy counts for the moment when it was typed
        at = self._clock.ticks() - max(0.0, Message().time - event.time)
        if isinstance(event, events.Paste):
            return self._admit_paste(at)
        if isinstance(event, events.MouseDown):
            # Textual presses a button with any button of the mouse; the right and middle ones open menus and paste in terminals
            answers = event.button == LEFT_BUTTON
            alone = self._alone(at, InputKind.ANSWER if answers else InputKind.NAVIGATION)
            self._pressed = self._stood_alone = alone and answers
            return self._pressed
        if isinstance(event, (events.MouseUp, events.Click)):
            return self._pressed
        if isinstance(event, events.Key):
            return self._admit_key(event, at)
        return True

    def _forward_event(self, event: events.Event) -> None:
        # every click of the mouse comes this way; keys go to what has the focus, so the application asks `admit` about them
        if isinstance(event, events.MouseEvent) and not event.is_forwarded and not self.admit(event):
            return
        super()._forward_event(event)

    def _admit_paste(self, at: float) -> bool:
        self._alone(at, InputKind.TEXT)
        self._stood_alone = False
        if self._field in ("", "consent-name"):
            self.hint("A paste answers nothing.")
            return False
        return True

    def _admit_key(self, event: events.Key, at: float) -> bool:
        if event.key == "escape":
            # at once, so that the next key already goes to the screen below, also while the program is busy
            self.action_leave()
            return False
        if self._field:
            if not self.query_one(f"#{self._field}", Input).value and at - (self._typed or [at])[-1] >= BY_HAND_S:
                self._typed = []
            if event.is_printable:
                self._typed.append(at)
            self._stood_alone = self._alone(at, InputKind.TEXT)
            return True
        answers = event.key in self.ANSWER_KEYS
        has_binding = event.key in self._bindings.key_to_bindings
        text = event.is_printable and not answers and not has_binding
        kind = InputKind.ANSWER if answers else InputKind.TEXT if text else InputKind.NAVIGATION
        self._stood_alone = self._alone(at, kind)
        if text:
            self.hint(f"Letters go nowhere here: y {self.DOES}, Esc leaves.")
        return self._stood_alone or not (answers or event.key == "enter")

    def _alone(self, at: float, kind: InputKind) -> bool:
        pending = self.guard.pending
        alone = self.guard.stands_alone(at, kind)
        if pending is not None:
            self.hint("Another key or click came: nothing was answered. Press it once, alone.")
        elif kind is InputKind.ANSWER and not alone:
            self.hint("Too soon after the last key: nothing was answered. Wait, then press it alone.")
        return alone

    def action_answer(self, answer: str) -> None:
        """Begin to answer: `yes`, `no` or what a subclass knows. It counts after a pause."""
        alone, self._stood_alone = self._stood_alone, False
        if not alone:
            return
        if answer == "yes" and self.obstacle:
            self.hint(self.obstacle)
            return
        self._begin(answer, {"yes": f"{self.YES}: any key stops it", "no": "No: any key stops it"}.get(answer, "…"))

    def _begin(self, answer: str, text: str) -> None:
        self.guard.begin(answer, self._clock.ticks())
        self.hint(text)
        if self._looks is None:
            self._looks = self.set_interval(TICK_S, self._look)

    def _look(self) -> None:
        answer = self.guard.due(self._clock.ticks())
        if self._looks is not None and self.guard.pending is None:
            self._looks.stop()
            self._looks = None
        if answer is not None:
            self.hint()
            self.deliver(answer)

    def deliver(self, answer: str) -> None:
        """Do what a deliberate answer says."""
        if answer == "no":
            self.dismiss(self.unanswered())
        elif self.obstacle:
            self.hint(self.obstacle)
        elif answer == "yes" and self.target_name:
            self._ask_name()
        elif answer in ("yes", "name"):
            self.dismiss(self.agreed())

    def action_leave(self) -> None:
        """Close the dialog without an answer."""
        self.dismiss(self.unanswered())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what a click on a button says."""
        event.stop()
        if event.button.id == "leave":
            self.action_leave()
        else:
            self.action_answer(event.button.id or "")

    # --- what cannot be undone

    def open_field(self, field: str, title: str) -> None:
        """Let the person type into an input of the dialog, in place of the buttons."""
        self._field, self._typed = field, []
        self.query(".asks-buttons").add_class("-hidden")
        inputs = self.query_one(f"#{field}", Input)
        inputs.border_title = Content(line(title))
        inputs.add_class("-asked")
        inputs.focus()

    def _ask_name(self) -> None:
        self.open_field("consent-name", f"This cannot be undone. Type {self.target_name} and Enter")
        self.hint("Esc leaves")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the name that was typed by hand."""
        event.stop()
        if event.input.id == "consent-name":
            self._name_typed(event.input)

    def _name_typed(self, field: Input) -> None:
        name, target = field.value.strip(), self.target_name
        if name != target:
            self.hint(f"That is not {target}: nothing was answered.")
        elif not is_by_hand(self._typed, len(target)):  # not until Enter: who pastes may well wait before it
            self.hint("That was pasted or typed by a program: type it by hand.")
        else:
            self._begin("name", f"{self.YES}: any key stops it")
            return
        field.value = ""


def ask_on_screen(screen: Screen[Any], question: ConsentScreen[bool], answered: Callable[[bool | None], None]) -> bool:
    """Put a question on the screen that it belongs to; tell whether that could be done.

    Not where the person went on to another screen meanwhile: a question that jumps under their hands is answered by accident.
    """
    if screen.app.screen is not screen:
        return False
    screen.app.push_screen(question, answered)
    return True
