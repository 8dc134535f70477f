"""How the line that is typed may go on."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from assistant.doors.chat.slash import Offer
from assistant.doors.chat.widgets.plain import MUTED
from assistant.doors.chat.words import short


class Completion(OptionList):
    """A list above the prompt, which keeps the focus."""

    can_focus = False

    class Taken(Message):
        """The person clicked one."""

        def __init__(self, offer: Offer) -> None:
            super().__init__()
            self.offer = offer

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.offers: list[Offer] = []
        self.moved = False
        """Whether the person went to one of them."""

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose from."""
        return bool(self.offers)

    @property
    def chosen(self) -> Offer | None:
        """What the cursor is on."""
        return self.offers[self.highlighted or 0] if self.offers else None

    def show(self, offers: Sequence[Offer]) -> None:
        """Show these; nothing when there are none."""
        if list(offers) == self.offers:
            return
        self.offers, self.moved = list(offers), False
        self.clear_options()
        width = max((len(one.shown) for one in self.offers), default=0)
        self.add_options([Option(_row(one, min(width, 30))) for one in self.offers])
        self.highlighted = 0 if self.offers else None
        self.set_class(bool(self.offers), "-open")

    def move(self, by: int) -> None:
        """Go up or down, around the ends."""
        if self.offers:
            self.moved = True
            self.highlighted = ((self.highlighted or 0) + by) % len(self.offers)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tell which one was clicked."""
        event.stop()
        self.post_message(self.Taken(self.offers[event.option_index]))


def _row(offer: Offer, width: int) -> Content:
    return Content(f"{short(offer.shown, 30):<{width}}  ") + Content.styled(short(offer.about, 120), MUTED)
