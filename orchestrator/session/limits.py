"""Limits of one session that the operator owns; a client can never set them."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.session.outbox import OutboxLimits


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Defaults follow the wire contract.

    :param max_pending_input_bytes: input admitted but not yet taken by the backend, held turns included
    :param max_pending_commits: commits and creations waiting in the mailbox
    :param remembered_operations: completed append operations whose retry stays harmless
    :param journal_bytes: of events sent and not yet acknowledged
    :param journal_ttl_s: seconds an event can be asked for again
    :param history_items: conversation items remembered
    :param playback_ledgers: responses whose playback is remembered, for acks that come late
    """

    max_pending_input_bytes: int = 16 * 1024 * 1024
    max_pending_commits: int = 4
    remembered_operations: int = 256
    journal_bytes: int = 8 * 1024 * 1024
    journal_ttl_s: float = 60.0
    history_items: int = 1024
    playback_ledgers: int = 256
    outbox: OutboxLimits = field(default_factory=OutboxLimits)
