"""The results as tables, and the targets beside what was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.engines.catalogue import (
    CTRANSLATE2,
    FORMERD,
    FORMERD_INT8,
    FP32_PEERS,
    LLAMA_CPP,
    NAMES,
    TRANSFORMERS,
)
from bench.results import Results, StepTime
from bench.step_parts import OTHER, PARTS, SAMPLER, TOP_P

ENGINE_SYSTEM = "formerd, engine"
GRPC_SYSTEM = "formerd, gRPC"
INT8_SYSTEM = "formerd int8, engine"


@dataclass(frozen=True)
class Target:
    """What is aimed at: a ratio or a time, and whether more of it is better."""

    what: str
    reached: float
    wanted: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.reached >= self.wanted if self.at_least else self.reached <= self.wanted


def show(results: Results, console: Console) -> None:
    """Every table for which there is something to say."""
    console.print(results.machine)
    for table in (_steps(results), _mixed(results), _open_loop(results), _parts(results)):
        if table.row_count:
            console.print(table)
    if found := list(targets(results)):
        console.print(_targets(found))


def targets(results: Results) -> Iterator[Target]:
    """Those whose figures have been measured."""
    yield from _step_targets(results)
    yield from _mixed_targets(results)
    parts = {each.label: each.milliseconds for each in results.parts}
    if top_p := parts.get(TOP_P):
        share = top_p[SAMPLER] / sum(top_p.values())
        yield Target("sampler with top_p, share of a step at batch 8", share, 0.10, at_least=False)
    if greedy := parts.get("batch 8"):
        yield Target("other Python in a step at batch 8, ms", greedy[OTHER], 1.0, at_least=False)


def _step_targets(results: Results) -> Iterator[Target]:
    alone = results.step(FORMERD, 1, 128)
    if alone and results.memory:
        ceiling = results.memory.milliseconds(FORMERD) / alone.decode_milliseconds
        yield Target("decode at batch 1, share of the memory ceiling", ceiling, 0.75)
    for peer, wanted in ((CTRANSLATE2, 3.0), (TRANSFORMERS, 2.5)):
        ours, theirs = results.step(FORMERD, 8, 1024), results.step(peer, 8, 1024)
        if ours and theirs:
            what = f"decode at batch 8 and 1024 positions, times {peer}"
            yield Target(what, theirs.decode_milliseconds / ours.decode_milliseconds, wanted)
    quantised, llama = results.step(FORMERD_INT8, 1, 128), results.step(LLAMA_CPP, 1, 128)
    if quantised and llama:
        ratio = llama.decode_milliseconds / quantised.decode_milliseconds
        yield Target(f"int8 decode at batch 1, times {LLAMA_CPP}", ratio, 0.85)


def _mixed_targets(results: Results) -> Iterator[Target]:
    engine, grpc = results.throughput(ENGINE_SYSTEM), results.throughput(GRPC_SYSTEM)
    best = max((results.throughput(peer) or 0.0 for peer in FP32_PEERS), default=0.0)
    if engine and best:
        yield Target("mixed workload, times the best fp32 peer", engine / best, 2.5)
    if engine and grpc:
        yield Target("mixed workload over gRPC, times the bare engine", grpc / engine, 0.92)


def _steps(results: Results) -> Table:
    cells = sorted({(step.positions, step.batch) for step in results.steps})
    table = Table(title="SmolLM2-135M: prefill in tokens/s, decode in ms/step")
    table.add_column("engine")
    for positions in sorted({positions for positions, _ in cells}):
        table.add_column(f"prefill\n{positions}", justify="right")
    for positions, batch in cells:
        table.add_column(f"{batch} row{'s' * (batch > 1)}\nat {positions}", justify="right")
    for engine in [name for name in NAMES if any(s.engine == name for s in results.steps)]:
        prefills = [
            _figure(results.step(engine, 1, positions), lambda s: s.prefill_tokens_per_second, 0)
            for positions in sorted({positions for positions, _ in cells})
        ]
        decodes = [
            _figure(results.step(engine, batch, positions), lambda s: s.decode_milliseconds, 1)
            for positions, batch in cells
        ]
        table.add_row(engine, *prefills, *decodes)
    if results.memory and results.steps:
        speed = results.memory.bytes_per_second / 1e9
        floor = results.memory.milliseconds(FORMERD)
        table.caption = f"memory read at {speed:.1f} GB/s: at least {floor:.1f} ms a step in fp32"
    return table


def _figure(step: StepTime | None, value: Callable[[StepTime], float], digits: int) -> str:
    return "-" if step is None else f"{value(step):.{digits}f}"


def _mixed(results: Results) -> Table:
    table = Table(title="Mixed workload, everything ready at once")
    for column in ("system", "at once", "tokens", "seconds", "tokens/s", "ratio to ours"):
        table.add_column(column, justify="left" if column == "system" else "right")
    ours = results.throughput(ENGINE_SYSTEM)
    for each in sorted(results.mixed, key=lambda each: -each.tokens_per_second):
        table.add_row(
            each.system,
            str(each.batch),
            str(each.tokens),
            f"{each.seconds:.1f}",
            f"{each.tokens_per_second:.1f}",
            f"{each.tokens_per_second / ours:.2f}" if ours else "",
        )
    return table


def _open_loop(results: Results) -> Table:
    table = Table(title="formerd over gRPC, open loop")
    for column in ("", "p50", "p99"):
        table.add_column(column, justify="right" if column else "left")
    if latencies := results.open_loop:
        table.caption = (
            f"{latencies.requests} requests, {latencies.requests_per_second:.2f} a second on "
            "average: 0.7 of the capacity"
        )
        for label, times in (
            ("time to first token, ms", latencies.first_token),
            ("between tokens, ms", latencies.between_tokens),
        ):
            table.add_row(label, f"{1e3 * times.p50:.0f}", f"{1e3 * times.p99:.0f}")
    return table


def _parts(results: Results) -> Table:
    table = Table(title="Where a decode step's time goes, in ms")
    table.add_column("")
    for part in (*PARTS, "step"):
        table.add_column(part, justify="right")
    for each in results.parts:
        parts = [each.milliseconds[part] for part in PARTS]
        table.add_row(each.label, *(f"{part:.2f}" for part in (*parts, sum(parts))))
    return table


def _targets(found: list[Target]) -> Table:
    table = Table(title="Targets")
    for column in ("what", "reached", "wanted", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for target in found:
        sign = ">=" if target.at_least else "<="
        verdict = "[green]met[/]" if target.met else "[red]missed[/]"
        table.add_row(target.what, f"{target.reached:.2f}", f"{sign} {target.wanted:.2f}", verdict)
    return table
