"""Whatever an engine streams is a delta, nothing, or a typed error; its counts are counts."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.chat_stream import ChatStream
from bridges.engine import EngineError, EngineServerError

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
NAMES = """
choices delta content text token token_ids logprobs top_logprobs logprob finish_reason stop_reason usage
prompt_tokens completion_tokens prompt_tokens_details cached_tokens prompt_token_ids error code message
""".split()  # noqa: SIM905
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["choices", "usage", "error", "prompt_token_ids"]), odd), max_size=4
    )
)
def test_events_of_any_shape(events: list[dict[str, Any]]) -> None:
    stream = ChatStream()
    for event in events:
        with contextlib.suppress(EngineError):
            stream.take(orjson.dumps(event))
    counts = [*(stream.usage or {}).values(), *(stream.prompt_token_ids or ()), stream.cached_tokens or 0]
    assert all(isinstance(count, int) and count >= 0 for count in counts)
    assert isinstance(stream.text, str)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": 5},
        {"choices": [None]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"top_logprobs": [{}]}]}}]},
        {"choices": [{"token_ids": [-1]}]},
        {"usage": "many"},
        {"usage": {"prompt_tokens": -3}},
        {"usage": {"prompt_tokens": 1e300}},
        {"usage": {"prompt_tokens_details": {"cached_tokens": "4"}}},
    ],
)
def test_what_is_no_event_of_an_answer_is_a_fault_of_the_engine(event: dict[str, Any]) -> None:
    with pytest.raises(EngineServerError):
        ChatStream().take(orjson.dumps(event))


def test_counts_are_kept_as_far_as_they_are_told() -> None:
    stream = ChatStream()
    stream.take(orjson.dumps({"usage": USAGE}))
    assert stream.usage == {"prompt_tokens": 7, "completion_tokens": 2, "cached_tokens": 4}
    stream.take(orjson.dumps({"usage": {"completion_tokens": None, "prompt_tokens": 9}}))
    assert stream.usage == {"prompt_tokens": 9} and stream.cached_tokens is None
