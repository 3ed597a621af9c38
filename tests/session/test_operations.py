"""Append idempotency: known ids are not taken twice, refused ones may come again, memory is bounded."""

from orchestrator.session.operations import OperationLedger, Outcome


def outcome(operation_id: str) -> Outcome:
    return Outcome(operation_id, {"tick": 1}, action="silence")


def test_in_flight_and_completed_ids_are_known() -> None:
    ledger = OperationLedger(4)
    assert ledger.begin("a")
    assert not ledger.begin("a")
    ledger.accept("a")
    assert not ledger.begin("a")
    assert ledger.outcome("a") is None
    ledger.answer(outcome("a"))
    assert ledger.outcome("a") == outcome("a")


def test_a_refused_id_may_be_sent_again() -> None:
    ledger = OperationLedger(4)
    assert ledger.begin("a")
    assert ledger.outstanding("a")
    ledger.refuse("a")
    assert not ledger.outstanding("a")
    assert ledger.begin("a")


def test_only_the_newest_completed_are_remembered() -> None:
    ledger = OperationLedger(2)
    for name in "abc":
        ledger.begin(name)
        ledger.accept(name)
    assert ledger.begin("a")
    assert not ledger.begin("b")
    assert ledger.statistics() == {"in_flight": 1, "remembered": 2}


def test_in_flight_ids_do_not_fall_out() -> None:
    ledger = OperationLedger(1)
    ledger.begin("slow")
    for name in "abc":
        ledger.begin(name)
        ledger.accept(name)
    assert not ledger.begin("slow")


def test_an_answer_to_a_forgotten_operation_is_dropped() -> None:
    ledger = OperationLedger(1)
    ledger.answer(outcome("gone"))
    assert ledger.outcome("gone") is None
    assert ledger.statistics() == {"in_flight": 0, "remembered": 0}
