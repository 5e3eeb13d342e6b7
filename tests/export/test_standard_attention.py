"""A decoder in standard ONNX: nothing else is in it, and ONNX's own evaluator agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from export.build_options import BuildError, BuildOptions
from export.manifest import Precision
from model.generate import logits
from tests.artefacts import encoder_artefact, standard_decoder_artefact
from tests.checkpoints import DECODER, tiny_checkpoint

_CAPACITY = 12
_TOKENS = np.random.default_rng(0).integers(0, DECODER.vocab_size, (2, 9))


def test_every_operator_is_standard() -> None:
    """An encoder's always are."""
    for path in (standard_decoder_artefact() / "decoder.onnx", encoder_artefact() / "encoder.onnx"):
        model = onnx.load(path, load_external_data=False)
        assert [(each.domain, each.version) for each in model.opset_import] == [("", 24)]
        assert {node.domain for node in model.graph.node} == {""}
        onnx.checker.check_model(path, full_check=True)


def test_the_reference_evaluator_agrees() -> None:
    """A prompt, two more tokens of each row at once, and one token for rows of unequal lengths."""
    run = _ReferenceRun()
    model = tiny_checkpoint(DECODER).build()
    wanted = logits(model, torch.from_numpy(_TOKENS))[0].numpy()
    np.testing.assert_allclose(run.step(_TOKENS[:, :5], [0, 0]), wanted[:, :5], atol=1e-5, rtol=0)
    np.testing.assert_allclose(run.step(_TOKENS[:, 5:7], [5, 5]), wanted[:, 5:7], atol=1e-5, rtol=0)
    ragged = np.stack([_TOKENS[0, 7:8], _TOKENS[1, 3:4]])
    found = run.step(ragged, [7, 3])[:, 0]
    np.testing.assert_allclose(found, [wanted[0, 7], wanted[1, 3]], atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.INT4])
def test_other_precisions_are_refused_by_name(precision: Precision) -> None:
    with pytest.raises(BuildError, match=f"--standard-ops with .* --precision {precision}; .*fp32"):
        BuildOptions(
            standard_decoder_artefact().parent / "new",
            "sample",
            precision=precision,
            standard_ops=True,
        )


class _ReferenceRun:
    """The graph of `tiny-standard-decoder` in ONNX's reference evaluator, on two rows."""

    def __init__(self) -> None:
        self._evaluator = ReferenceEvaluator(str(standard_decoder_artefact() / "decoder.onnx"))
        shape = (2, DECODER.kv_heads, _CAPACITY, DECODER.head_dim)
        names = [name for name in self._evaluator.input_names if name.startswith("past.")]
        self._caches = {name: np.full(shape, np.nan, np.float32) for name in names}

    def step(self, input_ids: NDArray[np.int64], past_lengths: list[int]) -> NDArray[np.float32]:
        """Logits `[B, S, vocab]` of new tokens `[B, S]`."""
        batch, sequence = input_ids.shape
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "past_lengths": np.array(past_lengths, np.int32),
            "total_sequence_length": np.array([max(past_lengths) + sequence], np.int32),
            "logit_positions": np.arange(batch * sequence),
        }
        outputs: Any = self._evaluator.run(None, inputs | self._caches)
        found, *present = outputs
        self._caches = dict(zip(self._caches, present, strict=True))
        scores: NDArray[np.float32] = found.reshape(batch, sequence, -1)
        return scores
