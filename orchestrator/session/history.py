"""The conversation: items in the order the client sees them, and of assistant items only what was heard.

An assistant item has a place from its creation, but it enters history only with a reserved slot: reserved at
its end if something was heard, or by its first ack. One that ended unheard loses its chance when the user
commits later input.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.session.items import ContentPart, Item
from orchestrator.wire.errors import Conflict, NotFound

ROOT = "root"
"""``previous_item_id`` that puts an item at the beginning."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the conversation: what the user asked, or what of a response was heard.

    ``complete``: the whole of it was heard.
    """

    role: str
    item_id: str
    text: str
    complete: bool = True


class History:
    """:param kept: items remembered at a time; older ones live on in memory's own tiers
    :param lines: the conversation of a session that is taken up again
    """

    def __init__(self, kept: int = 1024, lines: Sequence[Line] = ()) -> None:
        self._kept = kept
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._heard: dict[str, tuple[str, bool]] = {}
        self._unheard: set[str] = set()
        self._late: set[str] = set()
        self._outside: set[str] = set()
        self._awaited: set[str] = set()
        for line in lines[-kept:]:
            kind = "output_text" if line.role == "assistant" else "input_text"
            self._items[line.item_id] = Item(line.item_id, line.role, content=(ContentPart(kind, line.text),))
            if line.role == "assistant":
                self._heard[line.item_id] = (line.text, line.complete)

    @property
    def last_item_id(self) -> str | None:
        return next(reversed(self._items), None)

    def add(self, item: Item, previous_item_id: str | None = None) -> str | None:
        """Put an item at the end, or after the one named; returns the item it now follows.

        Raises what ``check_place`` does.
        """
        self.check_place(item.item_id, previous_item_id)
        before = self.last_item_id if previous_item_id is None else previous_item_id
        self._items[item.item_id] = item
        if previous_item_id is not None:
            self._move_behind(item.item_id, previous_item_id)
        if item.role == "user":
            self._late |= self._unheard
            self._unheard.clear()
        while len(self._items) > self._kept:
            self._forget(next(iter(self._items)))
        return None if before == ROOT else before

    def place(self, item: Item, previous_item_id: str | None) -> str | None:
        """``add`` for an item that was promised its place; at the end, if what it was to follow is gone."""
        gone = previous_item_id != ROOT and previous_item_id not in self._items
        return self.add(item, None if gone else previous_item_id)

    def hold(self, item_id: str, previous_item_id: str | None = None) -> None:
        """Keep an id for an item that is not there yet: nothing can follow what nobody has seen. Raises what
        ``check_place`` does."""
        self.check_place(item_id, previous_item_id)
        self._awaited.add(item_id)

    def release(self, item_id: str) -> None:
        self._awaited.discard(item_id)

    def check_free(self, item_id: str) -> None:
        """Raise ``Conflict`` when an item has that id, or will have it."""
        if item_id in self._items or item_id in self._awaited:
            raise Conflict(
                f"there already is an item {item_id}; ids are never reused",
                code="bad_event",
                param="item.id",
            )

    def check_place(self, item_id: str, previous_item_id: str | None) -> None:
        """Raise ``Conflict`` when the id is taken, ``NotFound`` (``item_not_found``) for an unknown
        ``previous_item_id``."""
        self.check_free(item_id)
        if previous_item_id not in (None, ROOT):
            self.retrieve(previous_item_id)

    def update(self, item: Item) -> None:
        """A new snapshot of an item that has its place already; a forgotten or deleted one stays away."""
        if item.item_id in self._items:
            self._items[item.item_id] = item

    def retrieve(self, item_id: str | None) -> Item:
        if item_id is None or item_id not in self._items:
            raise NotFound(f"there is no item {item_id}", code="item_not_found", param="item_id")
        return self._items[item_id]

    def delete(self, item_id: str | None) -> Item:
        item = self.retrieve(item_id)
        self._forget(item.item_id)
        return item

    # --- what was heard ---------------------------------------------------------------------------------

    def keep_out(self, item_id: str) -> None:
        """Nothing of that item enters history, whatever is heard of it."""
        self._outside.add(item_id)

    def reserved(self, item_id: str) -> bool:
        return item_id in self._heard

    def too_late(self, item_id: str) -> bool:
        return item_id in self._late

    def reserve(self, item_id: str) -> None:
        """Give an assistant item its slot. Raises ``playback_ack_too_late``."""
        if item_id in self._late:
            raise Conflict(
                "the user went on before anything of this item was acknowledged; history leaves it out",
                code="playback_ack_too_late",
            )
        if item_id in self._items and item_id not in self._outside:
            self._unheard.discard(item_id)
            self._heard.setdefault(item_id, ("", False))

    def unheard(self, item_id: str) -> None:
        """The item ended and nothing of it was heard yet."""
        if item_id in self._items and item_id not in self._heard:
            self._unheard.add(item_id)

    def hear(self, item_id: str, text: str, *, complete: bool) -> bool:
        """Fill a reserved slot in place; True when that changed something."""
        if self._heard.get(item_id) in (None, (text, complete)):
            return False
        self._heard[item_id] = (text, complete)
        return True

    def entries(self) -> tuple[Line, ...]:
        """History: user and system items whole, assistant items as far as they were heard."""
        out: list[Line] = []
        for item in self._items.values():
            if item.call is not None:
                continue
            if item.role != "assistant":
                out.append(Line(item.role, item.item_id, "".join(p.text for p in item.content)))
            elif (slot := self._heard.get(item.item_id)) is not None and slot[0]:
                out.append(Line(item.role, item.item_id, *slot))
        return tuple(out)

    def _forget(self, item_id: str) -> None:
        del self._items[item_id]
        self._heard.pop(item_id, None)
        self._unheard.discard(item_id)
        self._late.discard(item_id)
        self._outside.discard(item_id)

    def _move_behind(self, item_id: str, previous_item_id: str) -> None:
        order = [name for name in self._items if name != item_id]
        at = 0 if previous_item_id == ROOT else order.index(previous_item_id) + 1
        for name in order[at:]:
            self._items.move_to_end(name)
