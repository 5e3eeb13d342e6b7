"""Systems that translate many requests: formerd over gRPC, and its peers in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from bench.engines.catalogue import CTRANSLATE2, TRANSFORMERS, EngineSpec
from bench.engines.engine import Translator
from bench.engines.process import EngineFailed, engine_process
from bench.workload import Request
from client.aio import AsyncClient
from launch.daemon import daemon
from server.processors import usable_processors

AT_ONCE = 16
OURS = "formerd, gRPC"
AS_THEY_ARRIVE, SORTED = "as they arrive", "sorted by target length"
PEERS = {
    TRANSFORMERS: "transformers_translator:TransformersTranslator",
    CTRANSLATE2: "ctranslate2_translator:CTranslate2Translator",
}

Translate = Callable[[Sequence[Request]], list[list[int]]]  # all requests -> the ids of each target


@contextmanager
def systems(
    artefact: Path, checkpoint: Path, peers: Path, console: Console
) -> Iterator[dict[str, Translate]]:
    """Every system that can be measured, ready; says which cannot.

    Args:
        artefact: formerd's, of the checkpoint that the peers read.
        peers: the interpreter that has them.
    """
    with ExitStack() as stack:
        opened = {OURS: stack.enter_context(over_grpc(artefact))}
        for name, engine in PEERS.items():
            spec = EngineSpec(name, engine, peers, checkpoint)
            try:
                translator = stack.enter_context(engine_process(spec, usable_processors()))
            except (EngineFailed, FileNotFoundError) as failure:
                console.print(f"[red]{failure}[/]; `make bench-peers` installs the peers")
                continue
            opened[f"{name}, {AS_THEY_ARRIVE}"] = in_batches(translator)
            opened[f"{name}, {SORTED}"] = sorted_by_target(in_batches(translator))
        yield opened


@contextmanager
def over_grpc(artefact: Path) -> Iterator[Translate]:
    """A server in a process of its own, given all requests at once.

    It keeps no encoded sources: the same come in every round.
    """
    with daemon([artefact], "--slots", str(AT_ONCE), "--prefix-cache-bytes", "0") as server:

        async def translate(requests: Sequence[Request]) -> list[list[int]]:
            async with AsyncClient(server.target) as client:
                return await asyncio.gather(*(_translate(client, each) for each in requests))

        yield lambda requests: asyncio.run(translate(requests))


async def _translate(client: AsyncClient, request: Request) -> list[int]:
    result = await client.generate(
        request.prompt, max_new_tokens=request.new_tokens, temperature=0.0, ignore_eos=True
    )
    assert not result.summary.usage.cached_tokens, "a source that is not encoded anew takes no time"
    return list(result.completions[0].token_ids)


def in_batches(translator: Translator) -> Translate:
    """A peer, so many requests at a time, in the order in which they come."""

    def translate(requests: Sequence[Request]) -> list[list[int]]:
        targets = []
        for first in range(0, len(requests), AT_ONCE):
            together = requests[first : first + AT_ONCE]
            sources = [request.prompt for request in together]
            targets += translator.translate(sources, [request.new_tokens for request in together])
        return targets

    return translate


def sorted_by_target(translate: Translate) -> Translate:
    """The same, the longest targets first."""

    def translate_sorted(requests: Sequence[Request]) -> list[list[int]]:
        order = sorted(range(len(requests)), key=lambda index: -requests[index].new_tokens)
        targets = zip(order, translate([requests[index] for index in order]), strict=True)
        return [target for _, target in sorted(targets)]

    return translate_sorted
