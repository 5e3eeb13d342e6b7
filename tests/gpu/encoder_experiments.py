"""What must hold of embeddings on a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from server.artefact import load_artefact
from server.decoder_runner import DecoderRunner
from server.encoder_runner import EncoderRunner
from server.limits import DecoderLimits, encoder_limits
from tests.gpu.experiment import Experiment, Findings, Rows, Setting, compare_embeddings

_BATCH = 512
_ROUNDS = 200


def placement(setting: Setting, findings: Findings) -> None:
    """Both models load, which the server refuses where a node that matters is elsewhere."""
    for name, runner in (("encoder", _encoder(setting)), ("decoder", _decoder(setting))):
        findings.measured[f"{name}: provider"] = runner.provider
        findings.criteria[f"{name} on CUDA"] = runner.provider == "CUDAExecutionProvider"
        runner.warm_up()  # replays what was stored at build


def embeddings(setting: Setting, findings: Findings) -> None:
    """Texts of many lengths, batched and each alone."""
    runner = _encoder(setting)
    texts = _texts(setting, "texts")
    together = runner.encode(texts)
    compare_embeddings(findings, "against fp32", together, setting.references["texts.embeddings"])
    alone = np.concatenate([runner.encode([text]) for text in texts])
    compare_embeddings(findings, "batched against alone", together, alone)


def every_token(setting: Setting, findings: Findings) -> None:
    """GPU-04: each token of the vocabulary as a text."""
    runner = _encoder(setting)
    texts = _texts(setting, "words")
    found = np.concatenate(
        [runner.encode(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
    )
    compare_embeddings(findings, "every token", found, setting.references["words.embeddings"])


def side_by_side(setting: Setting, findings: Findings) -> None:
    """Both models at work at the same time give what each gives alone, bit by bit."""
    encoder, decoder = _encoder(setting), _decoder(setting)
    texts = _texts(setting, "texts")
    prompt = setting.references["short.tokens"].tolist()

    def embed() -> Rows:
        return encoder.encode(texts)

    def generate() -> Rows:
        return decoder.prefill(0, prompt, 0, logits=1).copy()

    wanted = embed(), generate()
    with ThreadPoolExecutor(2) as threads:
        found = list(
            threads.map(
                lambda work: [work() for _ in range(_ROUNDS)],
                (embed, generate),
            )
        )
    for name, results, expected in zip(("embedding", "generating"), found, wanted, strict=True):
        same = sum(bool((result == expected).all()) for result in results)
        findings.measured[f"{name}: equal"] = f"{same} of {_ROUNDS}"
        findings.criteria[f"{name} is not disturbed"] = same == _ROUNDS


ENCODER_EXPERIMENTS: dict[str, Experiment] = {
    "placement": placement,
    "embeddings": embeddings,
    "every token embedded": every_token,
    "side by side": side_by_side,
}


def _encoder(setting: Setting) -> EncoderRunner:
    artefact = load_artefact(setting.encoder)
    return EncoderRunner(artefact, encoder_limits(artefact.manifest))


def _decoder(setting: Setting) -> DecoderRunner:
    return DecoderRunner(load_artefact(setting.decoder), DecoderLimits(2, 512, 512, 1, 1, 600.0))


def _texts(setting: Setting, name: str) -> list[list[int]]:
    """Stored as one axis of ids and the lengths of the texts."""
    ids, lengths = setting.references[f"{name}.ids"], setting.references[f"{name}.lengths"]
    return [text.tolist() for text in np.split(ids, np.cumsum(lengths)[:-1])]
