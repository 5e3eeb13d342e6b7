"""Answers that would not fit one response are refused before anything is computed."""

from __future__ import annotations

import pytest
from formerd.v1 import models_pb2 as pb

from server.conversion.answer_size import check_answer_fits, check_response_size
from server.errors import OverLimit
from server.request import GenerationRequest, Output, Sampling, Stopping

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


def test_a_response_that_came_out_too_large_is_refused() -> None:
    response = pb.DetokenizeResponse(text="x" * 100)
    check_response_size(response, response.ByteSize())
    with pytest.raises(OverLimit, match="--max-response-bytes"):
        check_response_size(response, response.ByteSize() - 1)
