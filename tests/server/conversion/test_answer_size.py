"""Answers that would not fit one response are refused before anything is computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from formerd.v1 import models_pb2 as pb

from server.conversion.answer_size import (
    check_answer_fits,
    check_events_fit,
    check_response_size,
)
from server.errors import OverLimit
from server.request import Beam, GenerationRequest, Output, Sampling, Stopping

MIB = 1 << 20


def wanted(tokens: int, *, n: int = 1, output: Output | None = None) -> GenerationRequest:
    return GenerationRequest((1,), Sampling(), Stopping(tokens), output or Output(), n)


def test_a_long_text_fits() -> None:
    check_answer_fits(wanted(8192, n=16), 4 * MIB)


@pytest.mark.parametrize(
    "request_",
    [wanted(100_000, n=16), wanted(8192, output=Output(logprobs=True, top_logprobs=20))],
)
def test_what_would_not_fit_is_refused_with_the_limit(request_: GenerationRequest) -> None:
    with pytest.raises(OverLimit, match=r"--max-response-bytes\) is 4194304"):
        check_answer_fits(request_, 4 * MIB)


def test_logprobs_of_a_long_prompt_are_refused_whole_and_streamed() -> None:
    output = Output(prompt_logprobs=True, top_logprobs=20)
    request = GenerationRequest((1,) * 8000, Sampling(), Stopping(0), output)
    for check in (check_answer_fits, check_events_fit):
        with pytest.raises(OverLimit, match="of 8000 prompt tokens, with 20 alternatives each"):
            check(request, 4 * MIB)
        check(request, 8 * MIB)


def test_a_stream_is_refused_only_if_a_single_event_is_too_large() -> None:
    request = wanted(8192, output=Output(logprobs=True, top_logprobs=20))
    check_events_fit(request, 4 * MIB)
    with pytest.raises(OverLimit, match="8192 new tokens, with 20 alternatives each"):
        check_events_fit(replace(request, beam=Beam(2)), 4 * MIB)


def test_a_response_that_came_out_too_large_is_refused() -> None:
    response = pb.DetokenizeResponse(text="x" * 100)
    check_response_size(response, response.ByteSize())
    with pytest.raises(OverLimit, match="--max-response-bytes"):
        check_response_size(response, response.ByteSize() - 1)
