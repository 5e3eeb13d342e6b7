"""Runs an artefact as the server does and prints, as JSON, what ONNX Runtime made of it.

`python -m tests.cuda.probe DIRECTORY [INDEX]`, with the GPU's wheel: for each graph the operators
by provider. What a phase of the work asks of CUDA follows its `phase` line in the trace.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from server.artefact import Artefact, load_artefact
from server.decoder_runner import DecoderRunner
from server.encoder_runner import EncoderRunner
from server.limits import DecoderLimits, decoder_limits, encoder_limits
from server.scheduler import Move
from server.seq2seq_runner import Seq2seqRunner
from server.session import open_session
from tests.cuda.probed import CAPACITY, CHUNK, ROWS, SLOTS, TEXTS, Phase


def main(directory: Path, device_index: int = 0) -> None:
    """Opens every graph, then works with them."""
    artefact = load_artefact(directory)
    placed = {role: _placement(artefact, role, device_index) for role in artefact.manifest.graphs}
    work = {"encoder": _encode, "decoder": _generate, "encoder_decoder": _translate}
    work[artefact.manifest.kind](artefact, device_index)
    print(json.dumps(placed))


def _placement(artefact: Artefact, role: str, device_index: int) -> dict[str, dict[str, int]]:
    """Provider -> operator -> how many nodes."""
    session: Any = open_session(artefact, role, device_index=device_index)
    placed: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        types = (node.op_type for node in part.get_nodes())
        placed.setdefault(part.ep_name, Counter()).update(types)
    return {provider: dict(types) for provider, types in placed.items()}


def _encode(artefact: Artefact, device_index: int) -> None:
    runner = EncoderRunner(artefact, encoder_limits(artefact.manifest), device_index=device_index)
    runner.encode(TEXTS)  # allocates
    _begin(Phase.ENCODE)
    runner.encode(TEXTS)
    _begin(Phase.END)


def _generate(artefact: Artefact, device_index: int) -> None:
    limits = _limits(artefact)
    runner = DecoderRunner(artefact, limits, device_index=device_index)
    runner.prefill(0, [1] * CHUNK, 0, logits=1)  # allocates, as do these
    runner.decode([1] * ROWS, [CHUNK] * ROWS)
    runner.move(Move(SLOTS - 1, 1, CHUNK))
    _begin(Phase.PREFILL)
    runner.prefill(0, [1] * CHUNK, CHUNK, logits=1)
    _begin(Phase.DECODE)
    runner.decode([1] * ROWS, [2 * CHUNK] * ROWS)
    _begin(Phase.MOVE)
    runner.move(Move(SLOTS - 1, 1, CHUNK))
    _begin(Phase.END)


def _translate(artefact: Artefact, device_index: int) -> None:
    """Moves a row with its memory."""
    runner = Seq2seqRunner(artefact, _limits(artefact), device_index=device_index)
    move = Move(ROWS - 1, ROWS, CHUNK, memory=True)
    runner.encode(TEXTS)  # allocates, as do these
    for row in range(ROWS):
        runner.place(row, row)
    runner.decode([1] * ROWS, [CHUNK] * ROWS)
    runner.move(move)
    _begin(Phase.ENCODE)
    runner.encode(TEXTS)
    _begin(Phase.DECODE)
    runner.decode([1] * ROWS, [2 * CHUNK] * ROWS)
    _begin(Phase.MOVE)
    runner.move(move)
    _begin(Phase.END)


def _limits(artefact: Artefact) -> DecoderLimits:
    return decoder_limits(
        artefact.manifest, 1 << 30, slots=SLOTS, max_length=CAPACITY, prefill_chunk=CHUNK
    )


def _begin(phase: Phase) -> None:
    with Path(os.environ["RIG_TRACE"]).open("a") as trace:
        trace.write(f"phase {phase}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
