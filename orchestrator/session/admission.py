"""Admission: what is checked and charged before a command may wait in the mailbox."""

from __future__ import annotations

from orchestrator.session import commands as cmd
from orchestrator.session.history import History
from orchestrator.session.input_ledger import InputAccounts
from orchestrator.session.shared import Shared
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted

SEALING = (cmd.CommitInput, cmd.CreateResponse)


class Admission:
    def __init__(self, shared: Shared, accounts: InputAccounts, history: History) -> None:
        self._shared = shared
        self._accounts = accounts
        self._history = history
        self.pending_commits = 0

    def admit(self, command: cmd.AnyCommand) -> bool:
        """Reserve what a command needs before it is queued. False: known already, do not queue it.

        Raises ``ResourceExhausted`` (``input_backpressure``), ``InvalidRequest``, ``Conflict``
        (``session_closed``, an id that is taken) or ``NotFound``; nothing is retained then.
        """
        if not self._shared.state.is_open and isinstance(command, cmd.Close | cmd.AckEvents):
            return False
        self._shared.require_open()
        if isinstance(command, cmd.AppendInput):
            self._check(command.unit)
            size = command.unit.size
            return self._accounts.reserve(command.operation_id, size, repeatable=command.repeatable)
        if isinstance(command, cmd.AskQuery):
            if not command.text.strip():
                raise InvalidRequest("the query is empty; send some text", code="bad_event")
            return self._accounts.reserve(command.operation_id, len(command.text.encode()))
        if isinstance(command, cmd.CommitInput) and command.item_id is not None:
            # Before any of a spoken message is taken: it is refused as a whole, and once.
            self._history.check_place(command.item_id, command.previous_item_id)
        if isinstance(command, SEALING):
            if self.pending_commits >= self._shared.limits.max_pending_commits:
                raise ResourceExhausted(
                    f"{self.pending_commits} commits are waiting; wait for their answers",
                    code="input_backpressure",
                )
            self.pending_commits += 1
        size = _size(command)
        if size:
            self._accounts.bytes.queue(size)
        if isinstance(command, cmd.CreateItem):
            try:
                self._reserve_pictures(command)
            except (InvalidRequest, ResourceExhausted):
                self._accounts.bytes.unqueue(size)
                raise
        return True

    def dequeued(self, command: cmd.AnyCommand) -> None:
        """The command leaves the mailbox; what it needed only while it waited is free."""
        if isinstance(command, SEALING):
            self.pending_commits -= 1
        if size := _size(command):
            self._accounts.bytes.unqueue(size)

    def _reserve_pictures(self, command: cmd.CreateItem) -> None:
        """Charge every picture of a message, or none."""
        reserved: list[str] = []
        try:
            for append in command.pictures:
                self._check(append.unit)
                self._accounts.reserve(append.operation_id, append.unit.size, repeatable=append.repeatable)
                reserved.append(append.operation_id)
        except (InvalidRequest, ResourceExhausted):
            for operation_id in reserved:
                self._accounts.settle(operation_id, taken=False)
            raise

    def _check(self, unit: InputUnit) -> None:
        capabilities = self._shared.capabilities
        carried = {name for name, there in (("video", unit.frames), ("audio", unit.pcm)) if there}
        required = set(capabilities.required_input_modalities)
        allowed = required | set(capabilities.optional_input_modalities)
        if not carried:
            raise InvalidRequest("the append carries nothing", code="bad_event")
        if len(unit.frames) > capabilities.max_frames_per_append:
            raise InvalidRequest(
                f"at most {capabilities.max_frames_per_append} frames per append; send several appends",
                code="invalid_video_frames",
            )
        if not required <= carried or not carried <= allowed:
            raise InvalidRequest(
                f"this model takes {sorted(allowed)} and needs {sorted(required)}; "
                f"the append carries {sorted(carried)}",
                code="invalid_input_modality",
            )


def _size(command: cmd.AnyCommand) -> int:
    """Bytes that a command which is no operation holds while it is queued."""
    match command:
        case cmd.AppendText(text=text):
            return len(text.encode())
        case cmd.CreateItem(item=item):
            return sum(len(part.text.encode()) for part in item.content)
        case cmd.ReturnOutput(output=output):
            return len(output.encode())
        case _:
            return 0
