"""One GGUF file in the forms that the peers read, each made once.

    python -m bench.engines.conversion GGUF DIRECTORY

It writes `hf` (transformers, dequantised to fp32), `ct2`, `genai-fp32` and `genai-int4`, and runs
in the environment of the peers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path


def main(gguf: Path, directory: Path) -> None:
    """Makes what is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    hugging_face = directory / "hf"
    make(hugging_face, partial(dequantise, gguf))
    make(directory / "ct2", partial(to_ctranslate2, hugging_face))
    for precision in ("fp32", "int4"):
        write = partial(to_genai, hugging_face, precision)
        make(directory / f"genai-{precision}", write)


def make(target: Path, write: Callable[[Path], None]) -> None:
    """Writes a directory that appears only when it is whole."""
    if target.exists():
        return
    unfinished = target.with_name(f".{target.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    write(unfinished)
    unfinished.rename(target)


def dequantise(gguf: Path, target: Path) -> None:
    """What transformers reads from a GGUF file counts as quantised; a fresh model is not."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **options)
    config = read.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, **options).save_pretrained(target)


def to_ctranslate2(source: Path, target: Path) -> None:
    """In fp32; CTranslate2 quantises when it loads."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(source)).convert(str(target))


def to_genai(source: Path, precision: str, target: Path) -> None:
    """As the model builder's defaults are.

    Its option `prune_lm_head`, which saves logits that nobody asks for, gives wrong tokens where
    prompts of several lengths share a batch.
    """
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", str(source)]
    command += ["-i", str(source), "-o", str(target), "-p", precision, "-e", "cpu"]
    command += ["-c", str(target / "cache")]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
