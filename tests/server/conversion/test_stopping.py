"""When a completion ends: the limits of each rule and the room that is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from formerd.v1 import generation_pb2 as pb

from export.manifest import GenerationDefaults, Manifest, SpecialIds
from server.conversion.stopping import read_stopping
from server.errors import InvalidInput
from server.request import Stopping
from tests.server.manifests import decoder_manifest

MANIFEST = replace(decoder_manifest(vocabulary_size=100), special_ids=SpecialIds(eos=(2, 5)))


def read(
    message: pb.Stopping, manifest: Manifest = MANIFEST, *, room: int = 1000, empty: bool = False
) -> Stopping:
    return read_stopping(message, manifest, room=room, may_be_empty=empty)


def test_unset_is_256_tokens_and_the_models_end_tokens() -> None:
    assert read(pb.Stopping()) == Stopping(max_new_tokens=256, eos_ids=(2, 5))


def test_unset_is_what_the_checkpoint_says() -> None:
    manifest = replace(MANIFEST, generation=GenerationDefaults(max_new_tokens=20))
    assert read(pb.Stopping(), manifest).max_new_tokens == 20


@pytest.mark.parametrize("wanted", [1, 999, 1000, 1001, 2**31 - 1])
def test_completions_are_cut_to_the_room_that_is_left(wanted: int) -> None:
    assert read(pb.Stopping(max_new_tokens=wanted)).max_new_tokens == min(wanted, 1000)


def test_no_new_tokens_are_refused_unless_the_prompt_is_what_is_asked_about() -> None:
    with pytest.raises(InvalidInput, match=r"^stopping\.max_new_tokens is 0"):
        read(pb.Stopping(max_new_tokens=0))
    assert read(pb.Stopping(max_new_tokens=0), empty=True).max_new_tokens == 0


def test_more_tokens_at_least_than_at_most_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^stopping\.min_new_tokens is 5; .*which is 4"):
        read(pb.Stopping(min_new_tokens=5, max_new_tokens=4))
    assert read(pb.Stopping(min_new_tokens=4, max_new_tokens=4)).min_new_tokens == 4


def test_end_tokens_can_be_ignored() -> None:
    assert read(pb.Stopping(ignore_eos=True)).eos_ids == ()


def test_stops_are_kept_in_order() -> None:
    found = read(pb.Stopping(stop=["b", "a"], stop_token_ids=[7, 3, 7], include_stop=True))
    assert (found.stop, found.stop_token_ids, found.include_stop) == (("b", "a"), (7, 3), True)


@pytest.mark.parametrize("stop", ["", "x" * 257, "é" * 129, "x" * 100_000])
def test_a_stop_string_has_1_to_256_bytes(stop: str) -> None:
    with pytest.raises(InvalidInput, match=r"^stopping\.stop\[1\] has "):
        read(pb.Stopping(stop=["x" * 256, stop]))


def test_there_are_at_most_16_stop_strings() -> None:
    assert len(read(pb.Stopping(stop=["x"] * 16)).stop) == 16
    with pytest.raises(InvalidInput, match=r"^stopping\.stop has 1000 strings"):
        read(pb.Stopping(stop=["x"] * 1000))


def test_a_stop_token_must_be_in_the_vocabulary() -> None:
    with pytest.raises(InvalidInput, match=r"^stopping\.stop_token_ids\[1\] is 100;"):
        read(pb.Stopping(stop_token_ids=[99, 100]))


def test_there_are_at_most_1024_stop_tokens() -> None:
    """A token that is named twice counts once."""
    with pytest.raises(InvalidInput, match=r"^stopping\.stop_token_ids has 1025 ids"):
        read(pb.Stopping(stop_token_ids=range(1025)))
    assert read(pb.Stopping(stop_token_ids=[7] * 2000)).stop_token_ids == (7,)
