"""Checks: what passes, what does not, and how it reads."""

from __future__ import annotations

import json

import numpy as np
import pytest

from export.parity import Check, ParityReport, Tolerance, compare


def test_the_worst_difference_decides() -> None:
    wanted = np.array([1.0, 2.0, 3.0])
    check = compare("logits", "batch 1", wanted + np.array([0, 2e-4, -3e-4]), wanted, 1e-4)
    assert check.difference == pytest.approx(3e-4)
    assert not check.passed
    assert compare("logits", "batch 1", wanted + 1e-4, wanted, 1.1e-4).passed
    assert str(check) == "logits (batch 1): worst difference 0.0003, bound 0.0001"


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails_on_either_side_and_on_both(wild: float) -> None:
    good, bad = np.array([1.0]), np.array([wild])
    for found, wanted, sides in (
        (bad, good, "the graph"),
        (good, bad, "the reference"),
        (bad, bad, "the graph and the reference"),
    ):
        check = compare("logits", "batch 1", found, wanted, np.inf)
        assert not check.passed
        assert check.note == f"NaN or infinity in {sides}"


def test_another_shape_fails() -> None:
    check = compare("logits", "batch 1", np.zeros((1, 2)), np.zeros((2, 1)), 1.0)
    assert not check.passed
    assert check.note == "shape [1, 2] instead of [2, 1]"


def test_nothing_to_compare_is_equal() -> None:
    assert compare("logits", "no rows", np.zeros((0, 4)), np.zeros((0, 4)), 0.0).passed


def test_tokens_may_differ_only_after_a_tie() -> None:
    scores = np.array([[0.0, 1.0, 0.5], [0.0, 0.99, 1.0], [1.0, 0.0, 0.5]])
    wanted = (1, 2, 0)
    strict, loose = Tolerance(1e-4), Tolerance(0.01)
    assert strict.compare_tokens("3 tokens", wanted, wanted, scores).passed
    tied = (1, 1, 2)
    assert not strict.compare_tokens("3 tokens", tied, wanted, scores).passed
    check = loose.compare_tokens("3 tokens", tied, wanted, scores)
    assert check.passed
    assert check.note == "a tie at token 1, where the comparison ends"
    check = loose.compare_tokens("3 tokens", (0, 2, 0), wanted, scores)
    assert (check.difference, check.note) == (1.0, "the first at token 0")


def test_a_report_sums_up_and_becomes_json() -> None:
    good, bad = Check("a", "1", 1e-5, 1e-4), Check("b", "2", None, 1e-4, "NaN")
    report = ParityReport(1e-4, (good, bad), traced={"g.onnx": {"w": ("s",)}})
    assert report.failures == (bad,)
    assert (report.summary().checks, report.summary().worst_difference) == (2, 1e-5)
    values = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [check["passed"] for check in values["checks"]] == [True, False]
    assert values["traced"] == {"g.onnx": {"w": ["s"]}}
