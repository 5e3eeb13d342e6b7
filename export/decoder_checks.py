"""The numbers half of the gate for decoders: logits and tokens against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime as ort

from export.decoder_expectations import LONGEST_PROMPT, DecoderExpectations, Ids, Logits
from export.decoder_run import DecoderRun, MoverRun
from export.manifest import GraphSpec
from export.mover_checks import check_moves
from export.parity import Check, Tolerance, compare

_PREFILLS = ((1,), (2,), (17,), (LONGEST_PROMPT,), (5, 1), (3, 29, 12), (2, 1, 9, 4, 16, 7, 3))
_CHUNKED, _CHUNKS = 97, (16, 64)
_PASTS = (0, 1, 7, 15, 40, 64, 96)
_STEPS = 24


class DecoderChecks:
    """The graphs of a decoder beside its model."""

    def __init__(
        self,
        expected: DecoderExpectations,
        decoder: ort.InferenceSession,
        mover: ort.InferenceSession,
        graph: GraphSpec,
        tolerance: Tolerance,
    ) -> None:
        self._expected = expected
        self._decoder = decoder
        self._mover = mover
        self._graph = graph
        self._capacity = expected.capacity
        self._tolerance = tolerance

    def prefill(self) -> Iterator[Check]:
        """First prompts in one go, of several batch sizes, padded on the right."""
        for lengths in _PREFILLS:
            prompts = [
                self._expected.prompt(min(length, self._capacity), i)
                for i, length in enumerate(lengths)
            ]
            batch, longest = len(prompts), max(map(len, prompts))
            padded = np.zeros((batch, longest), dtype=np.int64)
            for padded_row, prompt in zip(padded, prompts, strict=True):
                padded_row[: len(prompt)] = prompt
            found = self._run(batch).step(padded, [0] * batch).reshape(batch, longest, -1)
            for row, prompt in enumerate(prompts):
                shape = f"batch {batch}, row {row} of length {len(prompt)}, past 0"
                yield self._compare(
                    "prefill",
                    shape,
                    found[row, : len(prompt)],
                    self._expected.wanted(len(prompt), row),
                )

    def chunked_prefill(self) -> Iterator[Check]:
        """A prompt in chunks gives the logits that it gives in one go; early chunks need none."""
        prompt = self._expected.prompt(min(_CHUNKED, self._capacity))
        whole = self._run().step(prompt[None], [0])
        for size in _CHUNKS:
            run = self._run()
            starts = range(0, len(prompt), size)
            for start in starts[:-1]:
                run.step(prompt[None, start:][:, :size], [start], logit_positions=())
            last = run.step(prompt[None, starts[-1] :], [starts[-1]])
            shape = f"length {len(prompt)} in chunks of {size}"
            name = "chunked prefill"
            yield self._compare(f"{name} and one go", shape, last, whole[starts[-1] :])
            yield self._compare(name, shape, last, self._expected.wanted(len(prompt))[starts[-1] :])

    def decode(self) -> Iterator[Check]:
        """One new token for rows of several past lengths, together and each alone."""
        pasts = [past for past in _PASTS if past < self._capacity]
        prompts = [self._expected.prompt(past + 1, i) for i, past in enumerate(pasts)]
        run = self._run(len(prompts))
        for slot, (prompt, past) in enumerate(zip(prompts, pasts, strict=True)):
            if past:
                run.step(prompt[None, :past], [0], slot, logit_positions=())
        tokens = np.stack([prompt[-1:] for prompt in prompts])
        together = run.step(tokens, pasts)
        for slot, past in enumerate(pasts):
            shape = f"past {past} in a batch of {len(pasts)}"
            yield self._compare(
                "decode", shape, together[slot], self._expected.wanted(past + 1, slot)[-1]
            )
            alone = run.step(tokens[slot : slot + 1], [past], slot)[0]
            yield compare("decode alone and batched", shape, together[slot], alone, bound=0.0)

    def cached_decode(self) -> Iterator[Check]:
        """Token by token with the cache gives the logits of computing everything at once."""
        prompt = self._expected.prompt(min(9 + _STEPS, self._capacity))
        start = min(9, len(prompt))
        run = self._run()
        run.step(prompt[None, :start], [0], logit_positions=())
        found = [run.step(prompt[None, i : i + 1], [i])[0] for i in range(start, len(prompt))]
        if found:
            shape = f"past {start} to {len(prompt) - 1}"
            yield self._compare(
                "cached decode", shape, np.stack(found), self._expected.wanted(len(prompt))[start:]
            )

    def greedy(self) -> Iterator[Check]:
        """The same tokens as the oracle over many steps."""
        expected, prompt = self._expected, self._expected.greedy_prompt
        wanted = expected.greedy_tokens
        found = self._generate(prompt, len(wanted))
        shape = f"{len(wanted)} tokens after {len(prompt)}"
        yield self._tolerance.compare_tokens(shape, found, wanted, expected.greedy_logits)

    def move(self) -> Iterator[Check]:
        """A moved span is exact, and the row untouched elsewhere."""
        return check_moves(MoverRun(self._mover), self._run(slots=3).caches)

    def _run(self, slots: int = 1) -> DecoderRun:
        return DecoderRun(self._decoder, self._graph, slots, self._capacity)

    def _generate(self, prompt: Ids, steps: int) -> list[int]:
        run = self._run()
        scores = run.step(prompt[None], [0], logit_positions=[len(prompt) - 1])
        tokens = [int(scores[0].argmax())]
        for past in range(len(prompt), len(prompt) + steps - 1):
            scores = run.step(np.array([[tokens[-1]]]), [past])
            tokens.append(int(scores[0].argmax()))
        return tokens[:steps]

    def _compare(self, name: str, shape: str, found: Logits, wanted: Logits) -> Check:
        return self._tolerance.compare(name, shape, found, wanted)
