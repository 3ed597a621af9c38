"""Where each known fault of orchestrators of this design is shown to be absent.

Numbers are those that the tests' own names and docstrings use. 1 to 15 would break the promise of a cheap,
right replay; 16 to 25 the quality of its decisions.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MEMORY, BACKEND = "memory/test_flaws.py", "backends/replay"

SHOWN: dict[tuple[int, str], tuple[str, ...]] = {
    (1, "a summary that lands rewrites the head in the middle of a chunk"): (
        f"{MEMORY}::test_a_summary_that_lands_does_not_touch_the_live_window",
        f"{MEMORY}::test_a_boundary_tick_costs_no_more_than_its_neighbours",
    ),
    (2, "amnesia at each boundary"): (
        f"{MEMORY}::test_no_amnesia_at_a_boundary",
        f"{MEMORY}::test_the_new_window_starts_with_the_overlap_and_each_second_is_told_once",
    ),
    (3, "a delegated answer is invisible until the next chunk"): (
        f"{MEMORY}::test_a_delegated_answer_is_shown_on_the_next_tick",
        f"{BACKEND}/test_delegation.py::test_flaw_3_a_result_reaches_client_and_model_at_once",
    ),
    (4, "a failed step corrupts the chunk"): (
        f"{MEMORY}::test_a_failed_tick_leaves_no_scar",
        f"{MEMORY}::test_a_tick_in_flight_at_a_crash_has_failed",
        f"{BACKEND}/test_engine_faults.py::test_flaw_4_a_failed_tick_leaves_no_scar",
    ),
    (5, "a session that passed a limit is locked out"): (
        f"{MEMORY}::test_overflow_never_locks_a_session_out",
        f"{MEMORY}::test_an_overflow_that_nobody_foresaw_is_not_repeated",
        f"{BACKEND}/test_engine_faults.py::test_bug_10_and_flaw_5_an_image_limit_is_learned_once",
    ),
    (6, "the bound on pixels is not applied"): (
        f"{BACKEND}/test_frames_in.py::test_flaw_6_frames_are_bounded_before_they_are_sent",
        f"{BACKEND}/test_settings_change.py::test_pictures_of_another_size_come_with_an_early_handover",
    ),
    (7, "questions and answers pile up without bound"): (
        f"{MEMORY}::test_questions_and_answers_are_bounded",
        f"{MEMORY}::test_a_standing_query_adds_no_entry_per_chunk",
    ),
    (8, "time is a frame counter"): (
        f"{MEMORY}::test_time_is_media_time",
        f"{BACKEND}/test_ticks.py::test_flaw_8_and_9_slow_engine_keeps_true_times_and_bounded_lag",
    ),
    (9, "no backpressure"): (
        f"{MEMORY}::test_retries_keep_the_newest_and_count_what_they_thin",
        f"{BACKEND}/test_ticks.py::test_flaw_8_and_9_slow_engine_keeps_true_times_and_bounded_lag",
    ),
    (10, "what is queued behind a reset runs on a detached session"): (
        "runtime/test_race_reset.py::test_queued_work_never_reaches_the_fresh_session",
        "runtime/test_race_reset.py::test_a_cancelled_reset_still_ends_the_session",
        "api/test_routes_sessions.py::test_work_behind_a_reset_never_touches_the_new_session",
    ),
    (11, "a failed summary is a hole for ever, an empty block eats its inputs"): (
        f"{MEMORY}::test_a_failed_summary_is_a_gap_that_is_mended_at_its_true_time",
        f"{MEMORY}::test_an_empty_summary_or_block_is_a_failure",
        f"{BACKEND}/test_background.py::test_flaw_11_a_failed_summary_is_tried_again_and_a_bad_one_is_no_summary",
    ),
    (12, "a change of the query rewrites the head"): (
        f"{MEMORY}::test_a_new_query_does_not_touch_the_head",
        f"{MEMORY}::test_memory_is_present_without_a_query",
        f"{BACKEND}/test_race_query.py::test_flaw_12_a_query_change_never_rewrites_what_was_shown",
    ),
    (13, "the first query finds a cold window"): (
        f"{MEMORY}::test_the_first_query_finds_a_warm_window",
        f"{BACKEND}/test_modes.py::test_flaw_13_the_first_query_finds_a_warm_window",
    ),
    (14, "dedup hides live alerts, and two lines that swing defeat it"): (
        f"{BACKEND}/test_repeats.py::test_flaw_14_a_second_alarm_is_never_swallowed",
        f"{BACKEND}/test_repeats.py::test_flaw_14_two_lines_that_swing_are_repeats",
        f"{BACKEND}/test_modes.py::test_flaw_14_a_repeat_is_speakable_again_after_a_minute",
    ),
    (15, "a storm of delegations"): (f"{BACKEND}/test_delegation.py::test_flaw_15_no_delegation_storm",),
    (16, "the same question again is dropped, and none can be withdrawn"): (
        f"{MEMORY}::test_the_same_question_can_be_asked_again",
        f"{MEMORY}::test_a_withdrawn_query_is_said_in_the_tail_and_forgotten_by_the_next_head",
        f"{BACKEND}/test_modes.py::test_flaw_16_the_same_question_is_asked_again_and_queries_can_be_cleared",
    ),
    (17, "the parser loses alerts and delegations, or speaks tags"): (
        f"{BACKEND}/test_answer.py::test_flaw_17_no_alert_lost_no_tag_spoken",
        f"{BACKEND}/test_answer.py::test_no_tag_and_no_control_token_is_ever_visible",
    ),
    (18, "keywords of a question decide where it is sent"): (
        "bridges/test_solver.py::test_who_is_asked_rests_on_what_is_declared_and_on_the_order",
    ),
    (19, "history that a client sends along is taken for new frames and a new query"): (
        "api/test_routes_chat.py::test_only_the_newest_user_message_is_new_input",
        "api/test_routes_chat.py::test_equal_text_repeats_until_a_request_without_text_or_a_header",
    ),
    (20, "summaries compete with live ticks and have no target length"): (
        f"{BACKEND}/test_background.py::test_ticks_go_before_what_waits_for_nobody_but_not_for_ever",
        f"{BACKEND}/test_background.py::test_ticks_go_on_while_a_summary_hangs",
        "memory/test_render.py::test_a_summary_request_has_the_query_and_frames_after_their_times",
    ),
    (21, "decisions can be neither tuned nor repeated"): (
        f"{BACKEND}/test_ticks.py::test_flaw_21_threshold_is_a_bias_in_the_same_request_or_refused_at_start",
        f"{BACKEND}/test_ticks.py::test_flaw_21_a_seeded_session_sends_a_seed_of_its_own_per_tick",
    ),
    (22, "of several delegated results one arrives, and no failure does"): (
        f"{BACKEND}/test_delegation.py::test_flaw_22_results_of_the_same_moment_all_arrive_and_errors_reach_both",
        f"{BACKEND}/test_delegation.py::test_flaw_22_the_solver_sees_recent_frames_across_a_handover",
    ),
    (23, "roll-ups and the sliding of long-term memory rewrite the head all the time"): (
        f"{MEMORY}::test_long_sessions_rewrite_the_head_rarely",
    ),
    (24, "a change of persona voids the cache, is half applied and lost; silent ones still delegate"): (
        f"{MEMORY}::test_a_changed_persona_shows_soon_and_everywhere",
        f"{MEMORY}::test_an_unknown_persona_changes_nothing",
        f"{BACKEND}/test_modes.py::test_flaw_24_persona_change_is_one_fact_and_unknown_ones_change_nothing",
        f"{BACKEND}/test_modes.py::test_flaw_24_a_persona_that_was_not_told_of_delegation_does_not_delegate",
        "api/test_routes_sessions.py::test_an_unknown_persona_opens_no_session",
    ),
    (25, "no barge-in, and memory holds what nobody heard"): (
        f"{BACKEND}/test_race_cancel.py::test_cancel_aborts_and_what_was_shown_stands_as_said",
        f"{BACKEND}/test_race_cancel.py::test_interrupted_speech_is_told_to_the_model_on_the_next_turn",
        "memory/test_fold.py::test_only_what_was_heard_is_remembered_and_the_next_turn_says_so",
    ),
}


@pytest.mark.parametrize(("number", "flaw"), SHOWN)
def test_each_is_shown_by_tests_that_are_there(number: int, flaw: str) -> None:
    named = SHOWN[(number, flaw)]
    assert named, flaw
    for each in named:
        path, _, name = each.partition("::")
        tree = ast.parse((Path(__file__).parent / path).read_text())
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        there = {node.name for node in tree.body if isinstance(node, functions)}
        assert name in there, each


def test_none_is_left_out() -> None:
    assert [number for number, _ in SHOWN] == list(range(1, 26))
