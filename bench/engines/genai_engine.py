"""onnxruntime-genai: ONNX Runtime with a generation loop in C++."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime_genai

from bench.engines.engine import Generated, Ids


class GenAIEngine:
    """A directory that the model builder of onnxruntime-genai wrote."""

    def __init__(self, model: Path, threads: int) -> None:
        config = onnxruntime_genai.Config(str(model))
        options = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = onnxruntime_genai.Model(config)
        described = json.loads((model / "genai_config.json").read_text())
        self._pad = described["model"]["pad_token_id"]

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        began = time.perf_counter()
        longest = max(map(len, prompts))
        length = longest + new_tokens
        parameters = onnxruntime_genai.GeneratorParams(self._model)
        # No end token is chosen before the least length.
        parameters.set_search_options(
            batch_size=len(prompts), max_length=length, min_length=length, do_sample=False
        )
        generator = onnxruntime_genai.Generator(self._model, parameters)
        # On the right: padding on the left changes what these models answer.
        padded = [[*prompt] + [self._pad] * (longest - len(prompt)) for prompt in prompts]
        generator.append_tokens(np.array(padded, np.int32))
        seconds = []
        for _ in range(new_tokens):
            generator.generate_next_token()
            seconds.append(time.perf_counter() - began)
        rows = range(len(prompts))
        ids = [[int(token) for token in generator.get_sequence(row)[longest:]] for row in rows]
        return Generated(ids, seconds)
