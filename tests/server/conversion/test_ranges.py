"""Which numbers are in a range, and how one outside is named."""

from __future__ import annotations

import math

import pytest

from server.conversion.ranges import Range, check_ids
from server.errors import InvalidInput


def test_the_ends_are_inside_unless_the_least_is_excluded() -> None:
    assert 0 in Range(0, 1)
    assert 1 in Range(0, 1)
    assert 0 not in Range(0, 1, above=True)
    assert 1 in Range(0, 1, above=True)


@pytest.mark.parametrize("wanted", [Range(0, 1), Range(0, 1, above=True), Range(0, math.inf)])
def test_nan_is_in_no_range(wanted: Range) -> None:
    assert math.nan not in wanted


@pytest.mark.parametrize(
    ("bounds", "value", "message"),
    [
        (Range(0, 1), 2, "x is 2; it must be from 0 to 1"),
        (Range(0, 1, above=True), 0, "x is 0; it must be above 0 and at most 1"),
        (Range(0, math.inf), -1, "x is -1; it must be at least 0"),
        (Range(1, 16), 4294967295, "x is 4294967295; it must be from 1 to 16"),
        (Range(0, 7654321), 7654322, "x is 7654322; it must be from 0 to 7654321"),
        (Range(-2, 2), 2.5, "x is 2.5; it must be from -2 to 2"),
    ],
)
def test_a_value_outside_is_named_with_the_bounds(
    bounds: Range, value: float, message: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        bounds.check("x", value)
    assert str(raised.value) == message


def test_the_first_id_beyond_the_vocabulary_is_named() -> None:
    check_ids("ids", [], 5)
    check_ids("ids", [0, 4], 5)
    with pytest.raises(InvalidInput, match=r"^ids\[1\] is 5; the vocabulary ends at 4$"):
        check_ids("ids", [0, 5, 6], 5)
