"""How ONNX Runtime opens a graph: plain data, the same for the parity gate and the server.

Imports the standard library and the manifest alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from export.manifest import Device

_CPUINFO = Path("/proc/cpuinfo")
# Either suffices, in the words of Linux: what ONNX Runtime looks for before it takes the kernel.
_VNNI = (
    frozenset(("avx2", "avx_vnni")),
    frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")),
)


@dataclass(frozen=True)
class SessionSettings:
    """How ONNX Runtime opens a graph: the same for the parity gate and the server."""

    config_entries: dict[str, str]
    enable_mem_pattern: bool
    enable_cpu_mem_arena: bool
    graph_optimization_level: str  # name of an onnxruntime.GraphOptimizationLevel
    provider: str
    provider_options: dict[str, str]


def session_settings(device: Device, device_index: int = 0) -> SessionSettings:
    """The settings for a device; the provider options of CUDA are explained in docs/."""
    if device is Device.CPU:
        return SessionSettings(
            # Threads spin while a run lasts, which spares a step hundreds of wake-ups, and sleep
            # between runs, when the event loop and other models want the processors.
            config_entries={
                "session.intra_op.allow_spinning": "1",
                "session.force_spinning_stop": "1",
                "session.x64quantprecision": "0" if has_vnni() else "1",
            },
            enable_mem_pattern=False,
            enable_cpu_mem_arena=True,
            graph_optimization_level="ORT_ENABLE_ALL",
            provider="CPUExecutionProvider",
            provider_options={},
        )
    return SessionSettings(
        config_entries={
            "session.use_device_allocator_for_initializers": "1",
            "session.record_ep_graph_assignment_info": "1",
        },
        enable_mem_pattern=False,
        enable_cpu_mem_arena=True,
        graph_optimization_level="ORT_ENABLE_ALL",
        provider="CUDAExecutionProvider",
        provider_options={
            "device_id": str(device_index),
            "arena_extend_strategy": "kSameAsRequested",
            "sdpa_kernel": "3",
            "enable_cudnn": "0",
            "use_tf32": "0",
        },
    )


def has_vnni(cpuinfo: Path = _CPUINFO) -> bool:
    """Whether the processor multiplies int8 and adds in 32 bits with one instruction.

    Without it, products of unsigned activations and signed weights are added in 16 bits first,
    which overflow, unless ONNX Runtime is told to make the weights unsigned. That gives the same
    sums everywhere, but with it would take two and a half times as long. False where the system
    does not say.
    """
    try:
        found = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return False
    flags = frozenset(found[1].split()) if found else frozenset()
    return any(needed <= flags for needed in _VNNI)
