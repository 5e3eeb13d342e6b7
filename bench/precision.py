"""What each precision costs and gives: size, speed and drift, in one run on one machine.

    python -m bench.precision [--model M ...] [--precision P ...] [--json FILE]

all-MiniLM-L6-v2 embeds real texts in bulk, SmolLM2-135M-Instruct decodes at batch 1; the precisions
take turns, so that a slow minute of the machine is everybody's. Drift is what the gate found when
the artefact was built (export/corpus.py has the text). Artefacts are built once and kept in
build/artefacts. The tables are printed in Markdown, for docs/precision.md.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import click

from bench.embed import PACKAGE, PEER, Embed, sentence_transformers, timed
from bench.embedding_engine import embedding_engine
from bench.engines.formerd_engine import FormerdEngine
from bench.generate import SOURCE, WORK
from bench.texts import real_texts
from bench.workload import RealText
from export.corpus import NAME as CORPUS
from export.manifest import PARITY_FILE, Device, Precision, load_manifest
from export.parity import ParityReport
from export.recipe import offered_precisions
from launch.artefact import built_artefact
from model.config import Kind
from server.artefact import load_artefact
from server.huge_pages import use_huge_pages
from server.processors import usable_processors
from server.tokenizer import Tokenizer

MINILM, SMOLLM2 = "minilm", "smollm2"
MODELS = (MINILM, SMOLLM2)
PRECISIONS = [precision.value for precision in Precision]
_SOURCES = {MINILM: f"package:{PACKAGE}", SMOLLM2: SOURCE}
_KINDS = {MINILM: Kind.ENCODER, SMOLLM2: Kind.DECODER}
_TEXTS, _ROUNDS = 600, 3
_PROMPT_TOKENS, _STEPS, _TURNS = 128, 32, 6

# How the table shows what the gate found to be lost, by the name of its check.
_DRIFT: dict[str, Callable[[float], str]] = {
    "cosine at worst": lambda lost: f"{1 - lost:.5f}",
    "cosine on average": lambda lost: f"{1 - lost:.5f}",
    "Spearman of 5000 pairs of 1000 sentences": lambda lost: f"{1 - lost:.5f}",
    "growth of perplexity": lambda growth: f"{growth:+.2%}",
    "part where another token is likeliest": lambda part: f"{part:.1%}",
}


@dataclass(frozen=True)
class Row:
    """One system with one model.

    Attributes:
        system: a precision, or a peer's name.
        megabytes: of the artefact's weights; None for a peer.
        speed: by its unit.
        drift: what the gate found to be lost, by the name of its check.
    """

    model: str
    system: str
    megabytes: float | None
    speed: dict[str, float]
    drift: dict[str, float]


@click.command()
@click.option("--model", "models", multiple=True, type=click.Choice(MODELS), default=MODELS)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(PRECISIONS),
    default=PRECISIONS,
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path),
    default=WORK / "precision.json",
    help="Where the figures are kept.  [default: build/bench/precision.json]",
)
def main(models: Sequence[str], precisions: Sequence[str], json_path: Path) -> None:
    """Measures, keeps the figures of each model once it is done, and prints its table."""
    measure = {MINILM: embedding_rows, SMOLLM2: generation_rows}
    kept: dict[str, list[Row]] = {}
    for model in models:
        offered = offered_precisions(Device.CPU, _KINDS[model])
        artefacts = {
            precision: artefact_of(model, precision)
            for precision in offered
            if precision in precisions
        }
        kept[model] = list(measure[model](artefacts))
        write(json_path, kept)
        click.echo("\n".join(markdown(kept[model])))


def artefact_of(model: str, precision: Precision) -> Path:
    """Built now where it is not there."""
    name = model if precision is Precision.FP32 else f"{model}-{precision}"
    return built_artefact(name, _SOURCES[model], "--precision", precision)


def embedding_rows(artefacts: Mapping[Precision, Path]) -> Iterator[Row]:
    """Texts a second in bulk, in rounds in which every system has its turn."""
    texts = real_texts(_TEXTS)
    with ExitStack() as stack:
        systems: dict[str, Embed] = {PEER: stack.enter_context(sentence_transformers())}
        for precision, artefact in artefacts.items():
            systems[precision] = stack.enter_context(embedding_engine(artefact))
        for embed in systems.values():
            embed(texts[:8])  # the first call pays for what later ones find ready
        seconds = dict.fromkeys(systems, 0.0)
        for _ in range(_ROUNDS):
            for system, embed in systems.items():
                seconds[system] += timed(embed, texts, bulk=True)[1]
    by_name: dict[str, Path] = {str(precision): path for precision, path in artefacts.items()}
    for system, taken in seconds.items():
        yield row(MINILM, system, by_name.get(system), {"texts/s": _ROUNDS * _TEXTS / taken})


def generation_rows(artefacts: Mapping[Precision, Path]) -> Iterator[Row]:
    """One prompt after another, each continued by every precision in turn."""
    any_artefact = next(iter(artefacts.values()))
    text = RealText(Tokenizer(load_artefact(any_artefact).tokenizer))
    engines = {
        precision: FormerdEngine(artefact, usable_processors(), slots=1, length=256)
        for precision, artefact in artefacts.items()
    }
    prefill: dict[str, list[float]] = {precision: [] for precision in engines}
    decode: dict[str, list[float]] = {precision: [] for precision in engines}
    for _ in range(_TURNS):
        prompt = text.prompt(_PROMPT_TOKENS)
        for precision, engine in engines.items():
            seconds = engine.generate([prompt], _STEPS + 1).seconds
            prefill[precision].append(seconds[0])
            decode[precision] += [after - before for before, after in pairwise(seconds)]
    for precision, artefact in artefacts.items():
        speed = {
            "prefill tok/s": _PROMPT_TOKENS / median(prefill[precision]),
            "decode tok/s": 1 / median(decode[precision]),
        }
        yield row(SMOLLM2, precision, artefact, speed)


def row(model: str, system: str, artefact: Path | None, speed: dict[str, float]) -> Row:
    """With the artefact's size, and the drift that its report states."""
    if artefact is None:
        return Row(model, system, None, speed, {})
    manifest = load_manifest(artefact)
    weights = [name for graph in manifest.graphs.values() for name in graph.weights]
    report = ParityReport.from_bytes((artefact / PARITY_FILE).read_bytes())
    drift = {
        check.shape.partition(",")[0]: check.difference
        for check in report.checks
        if check.name == "drift" and check.difference is not None
    }
    size = sum(manifest.files[name].size for name in weights)
    return Row(model, system, size / 1e6, speed, drift)


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A table of one model; speeds with their ratio to fp32."""
    speeds = list(rows[0].speed)
    drifts = [name for name in _DRIFT if any(name in row.drift for row in rows)]
    yield f"| {rows[0].model} | MB | {' | '.join(speeds)} | {' | '.join(drifts)} |"
    yield "|---" * (2 + len(speeds) + len(drifts)) + "|"
    base = next((row.speed for row in rows if row.system == Precision.FP32), {})
    for each in rows:
        size = "" if each.megabytes is None else f"{each.megabytes:.0f}"
        speed = [
            f"{value:.1f}" + (f" ({value / base[unit]:.2f}x)" if base else "")
            for unit, value in each.speed.items()
        ]
        drift = [_DRIFT[name](each.drift[name]) if name in each.drift else "" for name in drifts]
        yield f"| {' | '.join([each.system, size, *speed, *drift])} |"


def write(path: Path, rows: Mapping[str, Sequence[Row]]) -> None:
    """Adds to what the file has of other models."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= {model: [asdict(row) for row in each] for model, each in rows.items()}
    content["corpus"] = CORPUS
    content["machine"] = f"{platform.machine()}, {usable_processors()} threads"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    use_huge_pages()  # for everybody: the peers inherit it
    main()
