"""Many words at a time, beside the oracle's one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from examples.g2p.dictionary import Pronunciation
from examples.g2p.pronouncer import Pronouncer
from examples.g2p.publication import as_checkpoint
from examples.g2p.training import Training
from examples.g2p.vocabulary import END_ID, START_ID, phone_tokenizer, spelling_tokenizer
from model.checkpoint import CheckpointError
from model.generate import generate_greedy, remember
from model.transformer import Transformer

pytestmark = pytest.mark.xdist_group("g2p")  # they share one trained model

WORDS = ["bad", "", "kip", "tentenpid", "a", "lend a man", "word", "xylophone", "Bad"]


def one_by_one(model: Transformer) -> list[Pronunciation]:
    """The oracle's answers."""
    answers = []
    for word in WORDS:
        ids = torch.tensor([spelling_tokenizer().encode(word).ids])
        source = remember(model, ids, torch.tensor([ids.shape[1]]))
        answer = generate_greedy(
            model, [START_ID], 64, eos_ids=[END_ID], source=source, cached=False
        )
        answers.append(tuple(phone_tokenizer().decode(answer).split()))
    return answers


def test_as_the_oracle_one_by_one(trained: Training) -> None:
    expected = one_by_one(trained.average)
    assert Pronouncer.of(as_checkpoint(trained.average))(WORDS) == expected
    assert expected[0] == ("B", "AE1", "D")


def test_what_is_said_after_an_end_is_not_heard(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that has ended goes on with anything until the others have."""
    phones = phone_tokenizer()
    first, second = (phones.encode(text).ids for text in ("B K D", "AH0 L M N"))
    script = iter(zip([*first[:1], END_ID, *first[1:], 0], [*second, END_ID], strict=True))

    def scripted(*_: object) -> tuple[Tensor, None]:
        scores = torch.zeros(2, 1, phones.get_vocab_size())
        for row, token in enumerate(next(script)):
            scores[row, 0, token] = 1.0
        return scores, None

    monkeypatch.setattr("examples.g2p.pronouncer.logits", scripted)
    answers = Pronouncer.of(as_checkpoint(trained.average))(["b", "aln"])
    assert answers == [("B",), ("AH0", "L", "M", "N")]


def test_a_word_that_never_ends_is_cut(trained: Training) -> None:
    checkpoint = as_checkpoint(trained.average)
    tensors = dict(checkpoint.tensors)
    embedding = tensors["decoder.embedding.tokens.weight"].clone()
    embedding[END_ID] = 0.0  # the head's row too: some other phone is always likelier
    endless = replace(checkpoint, tensors=tensors | {"decoder.embedding.tokens.weight": embedding})
    (answer,) = Pronouncer.of(endless)(["bad"])
    assert len(answer) == checkpoint.config.max_positions - 1


def test_a_checkpoint_without_phones_is_refused(trained: Training) -> None:
    checkpoint = replace(as_checkpoint(trained.average), target_tokenizer_json=None)
    with pytest.raises(CheckpointError, match=r"target_tokenizer\.json"):
        Pronouncer.of(checkpoint)
