"""A server of two encoder-decoders, requests to it, and what should come of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from formerd.v1 import generation_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from model.transformer import Transformer
from tests.artefacts import encoder_decoder_artefact, two_vocabularies_artefact
from tests.checkpoints import TWO_VOCABULARIES, VOCABULARY, tiny_checkpoint
from tests.contract.answers import without_times
from tests.contract.stubs import Stubs, generate_request
from tests.e2e.server_process import MetricsSnapshot, ServerProcess, running_server

MODEL = "tiny-two-vocabularies"  # with rules; PAD_ID begins its targets
OTHER = "tiny-encoder-decoder"
OWN_ID = VOCABULARY  # the first token that only targets have
CAPACITY = 512
Metadata = tuple[tuple[str, str], ...]
SAMPLED = pb.Sampling(temperature=1.5, top_p=0.95, seed=11)


class Runs(NamedTuple):
    """How often a graph has run, with how many sequences in all."""

    times: float
    sequences: float

    def since(self, before: Runs) -> Runs:
        """Those that came later than others."""
        return Runs(self.times - before.times, self.sequences - before.sequences)


@contextmanager
def seq2seq_server() -> Iterator[ServerProcess]:
    """Serves `MODEL` and `OTHER`."""
    flags = ("--slots", "4", "--max-wait-ms", "20", "--threads", "1")
    artefacts = [two_vocabularies_artefact(), encoder_decoder_artefact()]
    with running_server(artefacts, *flags) as server:
        yield server


def source(length: int) -> list[int]:
    """The ids of a source; each length has its own."""
    return random.Random(length).choices(range(4, VOCABULARY), k=length)


def request_for(source: str | Sequence[int], **fields: Any) -> pb.GenerateRequest:
    """A request to the model with rules, which may end as it does."""
    given = {"model": MODEL, "ignore_eos": False, "sampling": pb.Sampling(seed=11)}
    return generate_request(source, **{**given, **fields})


def begun_with(*ids: int) -> pb.DecoderPrompt:
    """What a target begins with."""
    return pb.DecoderPrompt(tokens=TokenIds(ids=ids))


def called_by(name: str) -> Metadata:
    """The metadata of a caller, who shares no encoded sources with callers of other names."""
    return (("authorization", f"Bearer {name}"),) if name else ()


async def ask(stubs: Stubs, request: pb.GenerateRequest, caller: str = "") -> pb.GenerateResponse:
    """An answer, as `without_times` leaves it."""
    return without_times(await stubs.generation.Generate(request, metadata=called_by(caller)))


def runs(snapshot: MetricsSnapshot, phase: str) -> Runs:
    """What `MODEL` has run so far in a phase."""
    labels = {"model": MODEL, "phase": phase}
    names = ("formerd_batch_sequences_count", "formerd_batch_sequences_sum")
    return Runs(*(snapshot.value(name, labels) for name in names))


@cache
def oracle() -> Transformer:
    """`MODEL` in eager PyTorch."""
    return tiny_checkpoint(TWO_VOCABULARIES).build()
