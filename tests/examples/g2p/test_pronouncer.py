"""Many words at a time, beside the oracle's one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from examples.g2p.pronouncer import Pronouncer
from examples.g2p.publication import as_checkpoint
from examples.g2p.training import Training
from examples.g2p.vocabulary import END_ID, START_ID, phone_tokenizer, spelling_tokenizer
from model.checkpoint import CheckpointError
from model.generate import generate_greedy, remember

pytestmark = pytest.mark.xdist_group("g2p")  # they share one trained model

WORDS = ["bad", "", "kip", "tentenpid", "a", "lend a man", "Bad"]


def test_as_the_oracle_one_by_one(trained: Training) -> None:
    expected = []
    for word in WORDS:
        ids = torch.tensor([spelling_tokenizer().encode(word).ids])
        source = remember(trained.average, ids, torch.tensor([ids.shape[1]]))
        answer = generate_greedy(
            trained.average, [START_ID], 64, eos_ids=[END_ID], source=source, cached=False
        )
        expected.append(tuple(phone_tokenizer().decode(answer).split()))
    assert Pronouncer.of(as_checkpoint(trained.average))(WORDS) == expected
    assert expected[0] == ("B", "AE1", "D")
    assert len(set(expected)) >= 5


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
