"""From the protocol's stopping rules to the domain's."""

from __future__ import annotations

from dataclasses import replace

from formerd.v1 import generation_pb2 as pb

from export.manifest import DecodingRules, Manifest
from server.conversion.ranges import check_ids
from server.errors import InvalidInput
from server.request import Stopping

DEFAULT_MAX_NEW_TOKENS = 256
_MOST_STOPS = 16
_MOST_STOP_IDS = 1024  # every token is compared with all of them
_MOST_STOP_BYTES = 256


def read_stopping(
    message: pb.Stopping, manifest: Manifest, *, room: int, may_be_empty: bool
) -> Stopping:
    """Checks what is given and fills in what is not.

    `room` is what the prompt leaves of a slot's capacity: longer completions are cut to it.
    `may_be_empty` allows no new tokens at all.

    Raises:
        InvalidInput: a value is out of its range.
    """
    wanted = _max_new_tokens(message, manifest)
    if wanted == 0 and not may_be_empty:
        raise InvalidInput(
            "stopping.max_new_tokens is 0; it must be at least 1 unless output.prompt_logprobs is "
            "set"
        )
    if message.min_new_tokens > wanted:
        raise InvalidInput(
            f"stopping.min_new_tokens is {message.min_new_tokens}; it must be at most "
            f"max_new_tokens, which is {wanted}"
        )
    stop_token_ids = tuple(dict.fromkeys(message.stop_token_ids))
    if len(stop_token_ids) > _MOST_STOP_IDS:
        raise InvalidInput(
            f"stopping.stop_token_ids has {len(stop_token_ids)} ids; it must have at most "
            f"{_MOST_STOP_IDS}"
        )
    check_ids("stopping.stop_token_ids", stop_token_ids, manifest.vocabulary_size)
    return Stopping(
        max_new_tokens=min(wanted, room),
        min_new_tokens=message.min_new_tokens,
        stop=_read_stops(message),
        stop_token_ids=stop_token_ids,
        eos_ids=() if message.ignore_eos else manifest.special_ids.eos,
        include_stop=message.include_stop,
    )


def read_rules(message: pb.Stopping, rules: DecodingRules) -> DecodingRules:
    """The checkpoint's rules, but for its `min_new_tokens` where the request has its own."""
    return replace(rules, min_new_tokens=0) if message.HasField("min_new_tokens") else rules


def _max_new_tokens(message: pb.Stopping, manifest: Manifest) -> int:
    if message.HasField("max_new_tokens"):
        return message.max_new_tokens
    return manifest.generation.max_new_tokens or DEFAULT_MAX_NEW_TOKENS


def _read_stops(message: pb.Stopping) -> tuple[str, ...]:
    if len(message.stop) > _MOST_STOPS:
        raise InvalidInput(
            f"stopping.stop has {len(message.stop)} strings; it must have at most {_MOST_STOPS}"
        )
    for index, stop in enumerate(message.stop):
        if not 1 <= (size := len(stop.encode())) <= _MOST_STOP_BYTES:
            raise InvalidInput(
                f"stopping.stop[{index}] has {size} bytes; it must have 1 to {_MOST_STOP_BYTES}"
            )
    return tuple(message.stop)
