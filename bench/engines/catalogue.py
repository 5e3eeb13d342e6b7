"""The engines that are measured, and where each finds its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FORMERD = "formerd"
FORMERD_INT8 = "formerd int8"
TRANSFORMERS = "transformers"
CTRANSLATE2 = "CTranslate2"
CTRANSLATE2_INT8 = "CTranslate2 int8"
GENAI = "onnxruntime-genai"
GENAI_HUGE_PAGES = "onnxruntime-genai, huge pages"
GENAI_INT4 = "onnxruntime-genai int4"
LLAMA_CPP = "llama.cpp Q4_1"

FP32_PEERS = (TRANSFORMERS, CTRANSLATE2, GENAI)
MIXED_PEERS = (*FP32_PEERS, GENAI_HUGE_PAGES)
NAMES = (
    FORMERD,
    *MIXED_PEERS,
    FORMERD_INT8,
    CTRANSLATE2_INT8,
    GENAI_INT4,
    LLAMA_CPP,
)


@dataclass(frozen=True)
class EngineSpec:
    """How to open one engine.

    Attributes:
        name: as the tables show it; without a precision it is fp32.
        engine: `module:Class` in this package.
        python: the interpreter that has what it needs.
        model: the checkpoint in the engine's own form.
        arguments: of its class, after the model and the threads.
        huge_pages: whether it gets the pages that formerd's server asks for. A peer runs as it
            comes, but for the one that shares our runtime, which is shown with them too.
    """

    name: str
    engine: str
    python: Path
    model: Path
    arguments: tuple[str, ...] = ()
    huge_pages: bool = False


@dataclass(frozen=True)
class Checkpoints:
    """The same weights in every form."""

    artefact: Path
    int8_artefact: Path
    gguf: Path
    converted: Path  # what bench.engines.conversion wrote


def catalogue(checkpoints: Checkpoints, python: Path, peers: Path) -> Mapping[str, EngineSpec]:
    """Every engine by its name; `python` is ours, `peers` the one that has the others."""
    converted = checkpoints.converted
    specs = (
        _ours(FORMERD, python, checkpoints.artefact),
        _ours(FORMERD_INT8, python, checkpoints.int8_artefact),
        EngineSpec(TRANSFORMERS, "transformers_engine:TransformersEngine", peers, converted / "hf"),
        EngineSpec(
            CTRANSLATE2,
            "ctranslate2_engine:CTranslate2Engine",
            peers,
            converted / "ct2",
            ("float32",),
        ),
        EngineSpec(
            CTRANSLATE2_INT8,
            "ctranslate2_engine:CTranslate2Engine",
            peers,
            converted / "ct2",
            ("int8",),
        ),
        EngineSpec(GENAI, "genai_engine:GenAIEngine", peers, converted / "genai-fp32"),
        EngineSpec(
            GENAI_HUGE_PAGES,
            "genai_engine:GenAIEngine",
            peers,
            converted / "genai-fp32",
            huge_pages=True,
        ),
        EngineSpec(GENAI_INT4, "genai_engine:GenAIEngine", peers, converted / "genai-int4"),
        EngineSpec(LLAMA_CPP, "llama_cpp_engine:LlamaCppEngine", peers, checkpoints.gguf),
    )
    return {spec.name: spec for spec in specs}


def _ours(name: str, python: Path, artefact: Path) -> EngineSpec:
    return EngineSpec(name, "formerd_engine:FormerdEngine", python, artefact, huge_pages=True)
