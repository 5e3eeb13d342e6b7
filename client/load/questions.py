"""Questions that a server can answer: real English of mixed lengths, within its limits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pydoc_data import topics

from client.aio import AsyncClient
from client.load.profile import Kind, LoadError, Profile
from client.load.question import EmbedQuestion, GenerateQuestion, Question
from client.results import Model

_EMBED_QUESTIONS = 40
_GENERATE_QUESTIONS = 20  # their references take most of the time before a load
_MOST_TEXTS = 8
_MEDIAN_WORDS = 20
_SPREAD = 0.9  # of the logarithm: one text in six is longer than 49 words
_MOST_WORDS = 300
_NEW_TOKENS = (4, 48)
_SAMPLED = 0.5  # the share of prompts that is not continued greedily
_TEMPERATURE = 0.8
_MARGIN = 8  # tokens: special ones, and what a text that is cut may be tokenised differently by


class NoSuchModel(LoadError):
    """No model is loaded for what the load asks."""


async def draw_questions(
    client: AsyncClient,
    profile: Profile,
    draw: random.Random,
    *,
    embedder: str | None = None,
    generator: str | None = None,
) -> list[Question]:
    """Different questions for each task that the profile needs.

    `embedder` and `generator` name models; None takes the first that does it.

    Raises:
        NoSuchModel: none does, or the one that is named does not.
        CallFailed: the server cannot say.
    """
    models = await client.models()
    questions: list[Question] = []
    if Kind.EMBED in profile.kinds:
        model = _choose(models, "embed", embedder)
        questions += [await _embed(client, model, draw) for _ in range(_EMBED_QUESTIONS)]
    if profile.kinds.keys() & {Kind.GENERATE, Kind.STREAM}:
        model = _choose(models, "generate", generator)
        questions += [await _generate(client, model, draw) for _ in range(_GENERATE_QUESTIONS)]
    return questions


def _choose(models: Sequence[Model], task: str, name: str | None) -> Model:
    able = [model for model in models if task in model.tasks]
    for model in able:
        if name in (None, model.name):
            return model
    loaded = ", ".join(model.name for model in able) or "none"
    wanted = "a model" if name is None else name
    raise NoSuchModel(f"{wanted} is not loaded to {task}; those that do: {loaded}")


async def _embed(client: AsyncClient, model: Model, draw: random.Random) -> EmbedQuestion:
    room = model.max_input_tokens - _MARGIN
    count = draw.randint(1, min(_MOST_TEXTS, model.max_inputs))
    texts = [await _fit(client, model, _text(draw), room) for _ in range(count)]
    return EmbedQuestion(model.name, tuple(texts))


async def _generate(client: AsyncClient, model: Model, draw: random.Random) -> GenerateQuestion:
    new_tokens = draw.randint(*_NEW_TOKENS)
    room = model.max_input_tokens - _MARGIN
    if model.kind == "decoder":  # its prompt shares the slot with what is generated
        room = min(room, model.capacity - new_tokens - _MARGIN)
    return GenerateQuestion(
        model=model.name,
        prompt=await _fit(client, model, _text(draw), room),
        max_new_tokens=new_tokens,
        temperature=_TEMPERATURE if draw.random() < _SAMPLED else 0.0,
        seed=draw.getrandbits(64),
    )


def _text(draw: random.Random) -> str:
    """A part of the documentation that Python carries, of a lognormal length."""
    words = topics.topics[draw.choice(sorted(topics.topics))].split()
    length = round(_MEDIAN_WORDS * draw.lognormvariate(0.0, _SPREAD))
    length = min(max(length, 1), _MOST_WORDS, len(words))
    first = draw.randint(0, len(words) - length)
    return " ".join(words[first : first + length])


async def _fit(client: AsyncClient, model: Model, text: str, most: int) -> str:
    """The text, cut after so many tokens."""
    tokens = await client.tokenize(text, model=model.name, add_special_tokens=False)
    return text if len(tokens) <= most else text[: tokens[most - 1].end]
