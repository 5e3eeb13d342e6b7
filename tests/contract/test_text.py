"""The text of completions, from outside, on a model that says what it is told to.

STR-01, STR-03 and GEN-05 of the case list. A prompt of n tokens is continued with the script from
its token n - 1 on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb
from formerd.v1 import models_pb2
from tokenizers.pre_tokenizers import ByteLevel

from tests.artefacts import decoder_artefact, reseal, scripted_artefact
from tests.checkpoints import END_ID, TURN_END_ID, byte_tokenizer
from tests.contract.answers import gather_stream, without_times
from tests.contract.stubs import Stubs, generate_request
from tests.e2e.server_process import ServerProcess, running_server

TOKENIZER = byte_tokenizer()
VOCABULARY = TOKENIZER.get_vocab()
STOP, LENGTH, EOS = pb.FINISH_REASON_STOP, pb.FINISH_REASON_LENGTH, pb.FINISH_REASON_EOS
FAMILY = "👨\u200d👩\u200d👧\u200d👦"
CHARACTERS = f"a😀{FAMILY}한국어é è üe\u0301🇩🇪🇫🇷z"
WORDS = " alpha beta gamma"


def byte_ids(text: str) -> list[int]:
    """One token for each byte of a text."""
    [(characters, _)] = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [VOCABULARY[character] for character in characters]


SCRIPTS = {
    "characters": byte_ids(CHARACTERS),
    "words": byte_ids(WORDS),
    "tokens": TOKENIZER.encode(" and the and all").ids,
    "ends": [*byte_ids("abc"), END_ID, *byte_ids("def"), TURN_END_ID, *byte_ids("ghi")],
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serves one model for each script, and a random one."""
    home = tmp_path_factory.mktemp("scripts")
    directories = [decoder_artefact()]
    for name, script in SCRIPTS.items():
        directories.append(scripted_artefact(home / name, script))
        reseal(directories[-1], lambda manifest, name=name: replace(manifest, name=name))  # type: ignore[misc]
    with running_server(directories, "--slots", "4", "--threads", "1") as server:
        yield server
        server.wait_until_quiet()


@pytest.fixture
async def stubs(scripted: ServerProcess) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(scripted.target) as channel:
        yield Stubs(channel)


async def say(stubs: Stubs, request: pb.GenerateRequest) -> pb.GenerateResponse:
    """The answer to a request, whole and streamed, which has to be the same."""
    whole, streamed = await asyncio.gather(
        stubs.generation.Generate(request), gather_stream(stubs.generation.GenerateStream(request))
    )
    assert streamed == without_times(whole)
    tokens = sum(len(completion.token_ids) for completion in whole.completions)
    assert whole.usage.completion_tokens == tokens
    return whole


async def recite(
    stubs: Stubs, model: str, tokens: int = 200, start: int = 0, **stopping: Any
) -> pb.Completion:
    """The completion that begins at `start` of a script."""
    request = pb.GenerateRequest(
        model=model,
        sampling=pb.Sampling(seed=1),  # or one is drawn, and told
        stopping=pb.Stopping(max_new_tokens=tokens, **stopping),
    )
    request.tokens.ids.extend([9] * (start + 1))
    [completion] = (await say(stubs, request)).completions
    return completion


# STR-01


@pytest.mark.parametrize("from_the_start", [True, False])
async def test_characters_cut_anywhere_are_one_decode_of_all_ids(
    from_the_start: bool, stubs: Stubs
) -> None:
    """A window of the script that ends at every position, or begins at every position."""
    script, content = SCRIPTS["characters"], CHARACTERS.encode()
    cuts = range(1, len(script))
    windows = [(0, cut) if from_the_start else (cut, len(script)) for cut in cuts]
    completions = await asyncio.gather(
        *(recite(stubs, "characters", end - start, start) for start, end in windows)
    )
    for (start, end), completion in zip(windows, completions, strict=True):
        assert completion.token_ids == script[start:end]
        assert completion.text == TOKENIZER.decode(script[start:end])
        assert completion.text == content[start:end].decode(errors="replace")
        assert completion.finish_reason == LENGTH


async def test_no_part_of_a_character_is_sent(stubs: Stubs) -> None:
    request = pb.GenerateRequest(model="characters")
    request.tokens.ids.append(9)
    request.stopping.max_new_tokens = len(SCRIPTS["characters"])
    events = [event async for event in stubs.generation.GenerateStream(request)]
    pieces = [event.chunk.text for event in events if event.HasField("chunk")]
    assert len(pieces) == len(SCRIPTS["characters"])
    assert [piece for piece in pieces if piece] == list(CHARACTERS)


@pytest.mark.parametrize("seeds", [40, pytest.param(200, marks=pytest.mark.full)])
async def test_random_tokens_are_one_decode_of_all_ids(seeds: int, stubs: Stubs) -> None:
    async def check(seed: int) -> bool:
        sampling = pb.Sampling(temperature=2, seed=seed)
        request = generate_request("x", tokens=40, sampling=sampling, model="tiny-decoder")
        [completion] = (await say(stubs, request)).completions
        decoded = await stubs.models.Detokenize(
            models_pb2.DetokenizeRequest(model="tiny-decoder", ids=completion.token_ids)
        )
        assert completion.text == decoded.text == TOKENIZER.decode(completion.token_ids)
        return "\ufffd" in completion.text

    broken = await asyncio.gather(*(check(seed) for seed in range(seeds)))
    assert any(broken), "random bytes are no characters, as a rule"


# STR-03


@pytest.mark.parametrize(
    ("model", "stops", "text", "stop"),
    [
        ("words", ["ta gam"], " alpha be", "ta gam"),
        ("words", ["alpha beta gamma delta"], WORDS, ""),
        ("words", ["ga", "gamma"], " alpha beta ", "ga"),
        ("words", ["gamma", "ga"], " alpha beta ", "ga"),
        ("words", ["beta g", "pha beta ga"], " alpha ", "beta g"),
        ("words", ["alpha beta gamma", "eta"], " alpha b", "eta"),
        ("words", [" "], "", " "),
        ("words", [WORDS], "", WORDS),
        ("tokens", ["d t"], " an", "d t"),
        ("tokens", ["the an", "he and all!"], " and ", "the an"),
        ("characters", ["\u200d👩"], "a😀👨", "\u200d👩"),
        ("characters", ["\u0301", "🇪"], f"a😀{FAMILY}한국어é è üe", "\u0301"),
    ],
)
async def test_nothing_of_a_stop_string_is_sent_and_nothing_else_is_kept(
    model: str, stops: list[str], text: str, stop: str, stubs: Stubs
) -> None:
    script = SCRIPTS[model]
    completion = await recite(stubs, model, stop=stops)
    assert (completion.text, completion.stop_sequence) == (text, stop)
    assert completion.finish_reason == (STOP if stop else EOS)
    # The ids are those that were generated, up to the one that completed the match.
    assert completion.token_ids == [*script, END_ID][: len(completion.token_ids)]
    said = [TOKENIZER.decode(script[: len(completion.token_ids) - less]) for less in (0, 1)]
    assert [text + stop in each for each in said] == ([True, False] if stop else [True, True])

    included = await recite(stubs, model, stop=stops, include_stop=True)
    assert included.text == text + stop
    assert included.token_ids == completion.token_ids


@pytest.mark.parametrize(
    ("text", "reason", "stopping"),
    [
        (" alpha bet", LENGTH, {"tokens": 10, "stop": ["beta"]}),
        (" alpha beta ", STOP, {"stop": ["beta x"], "stop_token_ids": byte_ids("g")}),
        (WORDS, EOS, {"stop": ["gamma!"]}),
    ],
)
async def test_an_unfinished_stop_string_is_delivered_at_the_end(
    text: str, reason: pb.FinishReason, stopping: dict[str, Any], stubs: Stubs
) -> None:
    completion = await recite(stubs, "words", **stopping)
    assert (completion.text, completion.finish_reason) == (text, reason)
    assert completion.stop_sequence == ""


async def test_stop_strings_wait_for_min_new_tokens(stubs: Stubs) -> None:
    completion = await recite(stubs, "words", stop=["a"], min_new_tokens=8)
    assert (completion.text, completion.stop_sequence) == (" alpha bet", "a")


# GEN-05


@pytest.mark.parametrize(("start", "text", "end"), [(0, "abc", END_ID), (4, "def", TURN_END_ID)])
async def test_either_end_token_ends_without_text(
    start: int, text: str, end: int, stubs: Stubs
) -> None:
    for tokens in (3, 4, 5):
        completion = await recite(stubs, "ends", tokens, start)
        assert completion.text == text
        assert completion.token_ids == [*byte_ids(text), end][:tokens]
        assert completion.finish_reason == (LENGTH if tokens < 4 else EOS)
        assert completion.stop_sequence == ""


async def test_end_tokens_are_ignored_or_wait_where_that_is_asked_for(stubs: Stubs) -> None:
    ignoring = await recite(stubs, "ends", 11, ignore_eos=True)
    assert (ignoring.text, ignoring.finish_reason) == ("abcdefghi", LENGTH)
    assert ignoring.token_ids == SCRIPTS["ends"]
    waiting = await recite(stubs, "ends", min_new_tokens=5)
    assert not {END_ID, TURN_END_ID} & set(waiting.token_ids[:5])
    assert waiting.token_ids[4:] == [*byte_ids("def"), TURN_END_ID]
    assert waiting.finish_reason == EOS


async def test_a_stop_token_is_told_from_an_end_token(stubs: Stubs) -> None:
    completion = await recite(stubs, "ends", stop_token_ids=byte_ids("c"))
    assert (completion.text, completion.finish_reason) == ("ab", STOP)
    assert completion.token_ids == byte_ids("abc")


async def test_each_of_several_completions_ends_and_counts_for_itself(stubs: Stubs) -> None:
    sampling = pb.Sampling(temperature=2, seed=1)
    request = generate_request(
        "x", tokens=60, ignore_eos=False, n=4, sampling=sampling, model="tiny-decoder"
    )
    request.stopping.stop.extend("aeiou")
    completions = (await say(stubs, request)).completions
    assert len({len(each.token_ids) for each in completions}) > 1
    for each in completions:
        assert each.finish_reason == finish_reason(each, request.stopping)


def finish_reason(completion: pb.Completion, stopping: pb.Stopping) -> pb.FinishReason:
    """Why a completion ended, by what it holds."""
    if completion.stop_sequence:
        assert completion.stop_sequence in stopping.stop
        return STOP
    if completion.token_ids[-1] in (END_ID, TURN_END_ID):
        return EOS
    assert len(completion.token_ids) == stopping.max_new_tokens
    return LENGTH
