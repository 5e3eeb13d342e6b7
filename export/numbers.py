"""The numbers half of the gate, by the kind of the model: what is compared, stored and replayed.

PyTorch is asked before a graph is opened, so that the model and the runtime's copy of its weights
are never in memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from export.artefact import Artefact
from export.decoder_checks import DecoderChecks
from export.decoder_expectations import expect_of_decoder
from export.embedding_drift import embedding_drift
from export.encoder_checks import EncoderChecks, expect_of_encoder
from export.generation_drift import generation_drift
from export.manifest import Manifest
from export.parity import Check, Tolerance
from export.recipe import DriftBounds
from export.reference import (
    Arrays,
    decoder_reference,
    encoder_decoder_reference,
    encoder_reference,
    replay_decoder,
    replay_encoder,
    replay_encoder_decoder,
)
from export.source_checks import SourceChecks, expect_of_sources
from export.target_checks import TargetChecks
from export.target_drift import target_drift
from export.target_expectations import expect_of_targets
from model.config import Kind, Pooling, PoolingMode
from model.transformer import Transformer

NumberChecks = dict[str, Callable[[], Iterator[Check]]]  # by what is said while they run
Compare = Callable[[Tolerance], NumberChecks]  # opens the graphs


class Numbers(Protocol):
    """What an artefact computes, beside what its model does."""

    def expect(self, model: Transformer) -> Compare:
        """Asks PyTorch; what comes back holds the answers, and the model no longer."""

    def drift(self, model: Transformer, bounds: DriftBounds) -> Iterator[Check]:
        """How far graphs of less precision are from the model in fp32."""

    def reference(self, model: Transformer) -> Arrays:
        """The content of reference.npz."""

    def replay(self, reference: Arrays, tolerance: Tolerance) -> Iterator[Check]:
        """Runs the graphs on what `reference` holds.

        Raises:
            LookupError, RuntimeError, ValueError: it does not fit the graphs.
        """


def numbers_of(artefact: Artefact) -> Numbers:
    """The numbers of an artefact's kind."""
    return _KINDS[Kind(artefact.manifest.kind)](artefact)


def pooling_of(manifest: Manifest) -> Pooling:
    """The pooling that the manifest of whatever embeds states."""
    assert manifest.pooling is not None
    return Pooling(PoolingMode(manifest.pooling.mode), manifest.pooling.normalize)


def start_of(manifest: Manifest) -> int:
    """What every target of an encoder-decoder begins with."""
    assert manifest.special_ids.decoder_start is not None
    return manifest.special_ids.decoder_start


@dataclass(frozen=True)
class EncoderNumbers:
    """The embeddings of an encoder."""

    artefact: Artefact

    def expect(self, model: Transformer) -> Compare:
        manifest = self.artefact.manifest
        expected = expect_of_encoder(model, pooling_of(manifest), manifest.limits.max_input)

        def compare(tolerance: Tolerance) -> NumberChecks:
            checks = EncoderChecks(expected, self.artefact.session("encoder"), tolerance)
            return {
                "embeddings": checks.embeddings,
                "embeddings alone and batched": checks.alone_and_batched,
            }

        return compare

    def drift(self, model: Transformer, bounds: DriftBounds) -> Iterator[Check]:
        artefact, manifest = self.artefact, self.artefact.manifest
        embeddings = embedding_drift(
            model,
            pooling_of(manifest),
            artefact.session("encoder"),
            artefact.tokenizer,
            manifest.limits.max_input,
        )
        return embeddings.checks(bounds.embeddings)

    def reference(self, model: Transformer) -> Arrays:
        manifest = self.artefact.manifest
        return encoder_reference(model, pooling_of(manifest), manifest.limits.max_input)

    def replay(self, reference: Arrays, tolerance: Tolerance) -> Iterator[Check]:
        return replay_encoder(reference, self.artefact.session("encoder"), tolerance)


@dataclass(frozen=True)
class DecoderNumbers:
    """The logits and tokens of a decoder."""

    artefact: Artefact

    def expect(self, model: Transformer) -> Compare:
        artefact, manifest = self.artefact, self.artefact.manifest
        expected = expect_of_decoder(model, artefact.tokenizer, manifest.limits.max_positions)

        def compare(tolerance: Tolerance) -> NumberChecks:
            sessions = {role: artefact.session(role) for role in manifest.graphs}
            checks = DecoderChecks(
                expected,
                sessions["decoder"],
                sessions["mover"],
                manifest.graphs["decoder"],
                tolerance,
            )
            return {
                "prefill": checks.prefill,
                "chunked prefill": checks.chunked_prefill,
                "batched decode": checks.decode,
                "cached decode": checks.cached_decode,
                "greedy tokens": checks.greedy,
                "moved rows": checks.move,
            }

        return compare

    def drift(self, model: Transformer, bounds: DriftBounds) -> Iterator[Check]:
        artefact, manifest = self.artefact, self.artefact.manifest
        assert bounds.generation is not None  # the recipe is for decoders
        generation = generation_drift(
            model,
            artefact.session("decoder"),
            manifest.graphs["decoder"],
            artefact.tokenizer,
            manifest.limits.max_positions,
        )
        return generation.checks(bounds.generation)

    def reference(self, model: Transformer) -> Arrays:
        limits = self.artefact.manifest.limits
        return decoder_reference(model, self.artefact.tokenizer, limits.max_positions)

    def replay(self, reference: Arrays, tolerance: Tolerance) -> Iterator[Check]:
        artefact = self.artefact
        return replay_decoder(
            reference, artefact.session("decoder"), artefact.manifest.graphs["decoder"], tolerance
        )


@dataclass(frozen=True)
class EncoderDecoderNumbers:
    """The embeddings of an encoder-decoder, what is read of its sources, and its targets."""

    artefact: Artefact

    def expect(self, model: Transformer) -> Compare:
        artefact, manifest = self.artefact, self.artefact.manifest
        limits = manifest.limits
        embed = EncoderNumbers(artefact).expect(model)
        sources = expect_of_sources(model, artefact.tokenizer, limits.max_input)
        targets = expect_of_targets(
            model, artefact.tokenizer, artefact.target_tokenizer, start_of(manifest), limits
        )

        def compare(tolerance: Tolerance) -> NumberChecks:
            sessions = {role: artefact.session(role) for role in manifest.graphs}
            source = SourceChecks(sources, sessions["encoder"], tolerance)
            target = TargetChecks(
                targets,
                sessions["encoder"],
                sessions["decoder"],
                sessions["mover"],
                manifest.graphs["decoder"],
                tolerance,
            )
            return {
                **embed(tolerance),
                "embeddings without sources": source.embeddings_without_sources,
                "what is read of sources": source.memory,
                "sources alone and batched": source.alone_and_batched,
                "cached decode": target.cached_decode,
                "batched decode": target.decode,
                "decode in larger slots": target.capacity,
                "greedy tokens": target.greedy,
                "moved rows": target.move,
            }

        return compare

    def drift(self, model: Transformer, bounds: DriftBounds) -> Iterator[Check]:
        artefact, manifest = self.artefact, self.artefact.manifest
        yield from EncoderNumbers(artefact).drift(model, bounds)
        assert bounds.generation is not None  # the recipe is for decoders
        targets = target_drift(
            model,
            artefact.session("encoder"),
            artefact.session("decoder"),
            manifest.graphs["decoder"],
            artefact.tokenizer,
            manifest.limits,
            start_of(manifest),
            manifest.special_ids.eos,
        )
        yield from targets.checks(bounds.generation)

    def reference(self, model: Transformer) -> Arrays:
        artefact, manifest = self.artefact, self.artefact.manifest
        return encoder_decoder_reference(
            model,
            pooling_of(manifest),
            artefact.tokenizer,
            artefact.target_tokenizer,
            start_of(manifest),
            manifest.limits,
        )

    def replay(self, reference: Arrays, tolerance: Tolerance) -> Iterator[Check]:
        artefact = self.artefact
        return replay_encoder_decoder(
            reference,
            artefact.session("encoder"),
            artefact.session("decoder"),
            artefact.manifest.graphs["decoder"],
            tolerance,
        )


_KINDS: dict[Kind, Callable[[Artefact], Numbers]] = {
    Kind.ENCODER: EncoderNumbers,
    Kind.DECODER: DecoderNumbers,
    Kind.ENCODER_DECODER: EncoderDecoderNumbers,
}
