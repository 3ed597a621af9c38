"""Limits of one session that the operator owns; a client can never set them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Defaults follow the wire contract.

    :param max_pending_input_bytes: input admitted but not yet taken by the backend
    :param max_pending_commits: commits and creations waiting in the mailbox
    :param remembered_operations: completed append operations whose retry stays harmless
    """

    max_pending_input_bytes: int = 16 * 1024 * 1024
    max_pending_commits: int = 4
    remembered_operations: int = 256
