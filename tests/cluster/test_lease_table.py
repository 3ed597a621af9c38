"""Several processes, their clocks and their database, without I/O: who may think what of a lease.

Whatever is lost, late or asleep: a process is told of every lease that it lost and of none that it has, and
none that is ``sure`` has lost one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orchestrator.lease_table import LeaseTable

LIFE_S = 2.0
SESSIONS = st.sampled_from(["a", "b", "c"])
WHO = st.sampled_from([0, 1, 2])


@dataclass
class Beat:
    """A heartbeat on its way: what the database said, once it got there."""

    sent_at: float
    held: dict[str, int] | None = None


@dataclass
class Node:
    table: LeaseTable
    until: float = LIFE_S
    believed: dict[str, int] = field(default_factory=dict)
    told: list[tuple[str, int]] = field(default_factory=list)
    beat: Beat | None = None


class Leasing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.nodes = [Node(LeaseTable(LIFE_S, 0.0)) for _ in range(3)]
        self.owners: dict[str, tuple[int | None, int]] = {}

    @rule(seconds=st.floats(0.01, 3.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=WHO)
    def sends_a_heartbeat(self, who: int) -> None:
        self.nodes[who].beat = Beat(self.now)

    @rule(who=WHO)
    def the_database_takes_it(self, who: int) -> None:
        node = self.nodes[who]
        if node.beat is not None and node.beat.held is None:
            node.until = self.now + LIFE_S
            node.beat.held = {s: fence for s, (owner, fence) in self.owners.items() if owner == who}

    @rule(who=WHO)
    def it_is_answered(self, who: int) -> None:
        node = self.nodes[who]
        if node.beat is None or node.beat.held is None:
            return
        for session in node.table.answered(node.beat.sent_at, node.beat.held):
            node.told.append((session, node.believed.pop(session)))
        node.beat = None

    @rule(who=WHO)
    def its_answer_is_lost(self, who: int) -> None:
        self.nodes[who].beat = None

    @rule(who=WHO, session=SESSIONS)
    def claims(self, who: int, session: str) -> None:
        node = self.nodes[who]
        owner, fence = self.owners.get(session, (None, 0))
        if owner == who or session in node.believed:
            return  # what it has, or has yet to be told that it lost, it does not open again
        if owner is not None and self.nodes[owner].until > self.now:
            return
        self.owners[session] = (who, fence + 1)
        node.until = self.now + LIFE_S
        node.believed[session] = fence + 1
        node.table.took(session, fence + 1, self.now)

    @rule(who=WHO, session=SESSIONS)
    def releases(self, who: int, session: str) -> None:
        node = self.nodes[who]
        fence = node.believed.pop(session, None)
        if fence is None:
            return
        node.table.let_go(session)
        if self.owners[session] == (who, fence):
            self.owners[session] = (None, fence)

    @invariant()
    def nobody_is_told_of_a_loss_that_did_not_happen(self) -> None:
        for who, node in enumerate(self.nodes):
            for session, fence in node.told:
                assert self.owners[session] != (who, fence)

    @invariant()
    def who_is_sure_has_lost_nothing(self) -> None:
        for who, node in enumerate(self.nodes):
            if node.table.sure(self.now):
                for session, fence in node.believed.items():
                    assert self.owners[session] == (who, fence)

    def teardown(self) -> None:
        """One heartbeat that comes through tells everything."""
        self.now += 0.01
        for who, node in enumerate(self.nodes):
            self.sends_a_heartbeat(who)
            self.the_database_takes_it(who)
            self.it_is_answered(who)
            assert node.believed == {s: f for s, (owner, f) in self.owners.items() if owner == who}
            assert len(node.table) == len(node.believed)
        self.nobody_is_told_of_a_loss_that_did_not_happen()


TestLeasing = Leasing.TestCase
TestLeasing.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_leases_that_are_doubted_are_told_once() -> None:
    table = LeaseTable(LIFE_S, 0.0)
    table.took("a", 1, 0.0)
    table.took("b", 1, 0.0)
    assert set(table.doubted()) == {"a", "b"} and not table.doubted()
    assert "a" not in table and table.answered(1.0, {}) == ()
