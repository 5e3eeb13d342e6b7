"""Requests to generate with everything that a request can ask for, drawn at random."""

from __future__ import annotations

import random

from formerd.v1 import generation_pb2 as pb

from tests.checkpoints import TURN_END, VOCABULARY

SLOTS = 6  # what a request may need at once
_WORDS = (
    "the",
    "and",
    "in",
    "all",
    "naïve",
    "東京",
    "👨\u200d👩\u200d👧",
    "x",
    TURN_END,
    "\n",
    "that",
)
_STOPS = ("a", "e", "th", " and", "\n", "é", "\ufffd", "in", "and the")
_SHARED = tuple([4 + (start + 7 * i) % 260 for i in range(200)] for start in range(3))
_MOST_TOKENS = 80


def random_request(draw: random.Random) -> pb.GenerateRequest:
    """A request that can be served; no answer to it depends on chance, if its seed is known."""
    request = pb.GenerateRequest(stopping=_stopping(draw), output=_output(draw))
    _set_input(request, draw)
    if draw.random() < 0.15:
        _set_beam(request, draw)
        return request
    if draw.random() < 0.2:
        request.n = draw.randint(2, 4)
    if draw.random() < 0.35:
        request.sampling.CopyFrom(_edits(draw))  # greedy
        return request
    request.sampling.CopyFrom(_sampling(draw))
    if draw.random() < 0.8:
        request.sampling.seed = draw.getrandbits(64)
    return request


def spoil(request: pb.GenerateRequest, draw: random.Random) -> None:
    """Makes a request one that is refused."""
    match draw.randrange(4):
        case 0:
            request.sampling.top_p = 0
        case 1:
            request.stopping.max_new_tokens = 0
            request.output.prompt_logprobs = False
        case 2:
            request.n = SLOTS + 1
        case _:
            request.tokens.ids[:] = [VOCABULARY]


def _set_input(request: pb.GenerateRequest, draw: random.Random) -> None:
    match draw.randrange(4):
        case 0:
            request.prompt = _text(draw)
        case 1:
            for role in ("system", "user", "assistant", "user")[draw.randrange(4) :]:
                request.chat.messages.add(role=role, content=_text(draw))
        case 2:
            request.tokens.ids.extend(_ids(draw))
        case _:
            shared = draw.choice(_SHARED)
            request.tokens.ids.extend([*shared[: draw.choice((64, 128, 200))], *_ids(draw)])


def _text(draw: random.Random) -> str:
    return " ".join(draw.choices(_WORDS, k=draw.randint(1, 20)))


def _ids(draw: random.Random) -> list[int]:
    length = draw.choice((1, 2, 5, 30, 63, 64, 65, 150))
    return [draw.randrange(VOCABULARY) for _ in range(length)]


def _set_beam(request: pb.GenerateRequest, draw: random.Random) -> None:
    width = draw.randint(2, 4)
    request.beam.width = width
    request.n = draw.randint(1, width)
    if draw.random() < 0.5:
        request.beam.length_penalty = draw.choice((0.0, 0.5, 1.0, 2.0))


def _edits(draw: random.Random) -> pb.Sampling:
    """What changes the scores of tokens: penalties and biases."""
    sampling = pb.Sampling()
    if draw.random() < 0.3:
        sampling.repetition_penalty = draw.uniform(0.6, 2)
    if draw.random() < 0.3:
        sampling.presence_penalty = draw.uniform(-2, 2)
    if draw.random() < 0.3:
        sampling.frequency_penalty = draw.uniform(-2, 2)
    if draw.random() < 0.2:
        for _ in range(5):
            sampling.logit_bias[draw.randrange(VOCABULARY)] = draw.uniform(-5, 5)
    return sampling


def _sampling(draw: random.Random) -> pb.Sampling:
    sampling = _edits(draw)
    sampling.temperature = draw.uniform(0.2, 3)
    if draw.random() < 0.4:
        sampling.top_k = draw.randint(0, VOCABULARY + 5)
    if draw.random() < 0.4:
        sampling.top_p = draw.uniform(0.05, 1)
    if draw.random() < 0.3:
        sampling.min_p = draw.uniform(0, 0.3)
    return sampling


def _stopping(draw: random.Random) -> pb.Stopping:
    stopping = pb.Stopping(max_new_tokens=draw.randint(1, _MOST_TOKENS))
    stopping.ignore_eos = draw.random() < 0.7
    if draw.random() < 0.3:
        stopping.min_new_tokens = draw.randint(0, stopping.max_new_tokens)
    if draw.random() < 0.4:
        stopping.stop.extend(draw.sample(_STOPS, draw.randint(1, 3)))
        stopping.include_stop = draw.random() < 0.5
    if draw.random() < 0.3:
        stopping.stop_token_ids.extend(draw.sample(range(VOCABULARY), 3))
    return stopping


def _output(draw: random.Random) -> pb.Output:
    output = pb.Output(logprobs=draw.random() < 0.3, prompt_logprobs=draw.random() < 0.1)
    if output.logprobs or output.prompt_logprobs:
        output.top_logprobs = draw.randint(0, 5)
    return output
