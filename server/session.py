"""ONNX Runtime sessions: settings from the manifest, threads that sleep between runs, no fallback.

Each session has threads of its own that sleep while nothing runs. The pool that ONNX Runtime can
share between sessions spins between runs too (its Python interface cannot switch that off): on a
busy machine a decode step took twice as long with it, and the event loop got less time.
"""

from __future__ import annotations

import re
from mmap import MADV_DONTNEED, mmap
from typing import Any

import onnxruntime

from export.manifest import Device, GraphSpec
from export.session_settings import SessionSettings, session_settings
from server.artefact import Artefact, ArtefactError
from server.cuda import PROVIDER, DeviceError, check_placement, load_libraries, why_not_loaded
from server.errors import OverLimit, ServerError, StepFailed

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}
_DEVICE_REFUSAL = re.compile(r"(CUDA failure|Invalid device ID).*")
_OUT_OF_MEMORY = ("Available memory of", "Failed to allocate memory")


def open_session(artefact: Artefact, role: str, *, device_index: int = 0, threads: int = 1) -> Any:
    """Opens a graph of an artefact on the device that the artefact was built for.

    Args:
        role: which graph of the artefact.
        device_index: which GPU, where the artefact is for one.
        threads: that one run may use on the CPU, the caller's included.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        ArtefactError: the graph does not load, or is not what the manifest declares.
        DeviceError: the device, its driver or its libraries are missing.
    """
    device, graph = artefact.manifest.device, artefact.manifest.graphs[role]
    settings = session_settings(device, device_index)
    if device is Device.CUDA:
        load_libraries()
    options = _session_options(settings, threads)
    _hand_over_weights(artefact, graph, options)
    try:
        session = onnxruntime.InferenceSession(
            artefact.files[graph.file][:],
            options,
            providers=[(settings.provider, settings.provider_options), "CPUExecutionProvider"]
            if device is Device.CUDA
            else [settings.provider],
            enable_fallback=0,
        )
    except Exception as error:
        if refusal := _DEVICE_REFUSAL.search(str(error)):
            raise DeviceError(
                f"CUDA device {device_index} cannot be used: {refusal.group()}"
            ) from None
        raise ArtefactError(f"{artefact.directory}: {graph.file} {_line(error)}") from None
    finally:
        _release(artefact, graph)
    session.disable_fallback()
    _check_provider(session, settings, device_index)
    _check_interface(artefact, graph, session)
    return session


def step_error(error: Exception) -> ServerError:
    """What a caller is told of an exception from a run: nothing of its text, which is logged."""
    if any(text in str(error) for text in _OUT_OF_MEMORY):
        return OverLimit("the device has no memory for this request")
    return StepFailed("computing failed")


def _session_options(settings: SessionSettings, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = settings.enable_mem_pattern
    options.enable_cpu_mem_arena = settings.enable_cpu_mem_arena
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, settings.graph_optimization_level
    )
    for key, value in settings.config_entries.items():
        options.add_session_config_entry(key, value)
    return options


def _hand_over_weights(artefact: Artefact, graph: GraphSpec, options: Any) -> None:
    """Gives ONNX Runtime the verified bytes of a graph's external data.

    With a table of files it opens none itself, wherever the graph says that its weights are; the
    graph's own bytes are in the table, so that it is never empty. ONNX Runtime copies what it
    needs while the session opens.
    """
    names = [graph.file, *graph.weights]
    contents = [artefact.files[name] for name in names]
    options.add_external_initializers_from_files_in_memory(
        names, contents, list(map(len, contents))
    )


def _release(artefact: Artefact, graph: GraphSpec) -> None:
    """Gives the mapped weights' memory back; another session would read them from disk again."""
    for name in graph.weights:
        if isinstance(content := artefact.files[name], mmap):
            content.madvise(MADV_DONTNEED)


def _check_provider(session: Any, settings: SessionSettings, device_index: int) -> None:
    """Refuses a session that ONNX Runtime put elsewhere, in whole or in part, without a word."""
    provider = session.get_providers()[0]
    if provider != settings.provider:
        raise DeviceError(
            f"CUDA device {device_index} was asked for, but ONNX Runtime fell back to {provider}: "
            f"{why_not_loaded()}"
        )
    if provider == PROVIDER:
        check_placement(session)


def _check_interface(artefact: Artefact, graph: GraphSpec, session: Any) -> None:
    for kind, declared, nodes in (
        ("inputs", graph.inputs, session.get_inputs()),
        ("outputs", graph.outputs, session.get_outputs()),
    ):
        found = {
            node.name: (_DTYPES.get(node.type, node.type), _sizes(node.shape)) for node in nodes
        }
        if found != {spec.name: (spec.dtype, _sizes(spec.shape)) for spec in declared}:
            raise ArtefactError(
                f"{artefact.directory}: {graph.file} has other {kind} than the manifest declares"
            )


def _sizes(shape: Any) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]


def _line(error: Exception) -> str:
    """The first line of what ONNX Runtime says."""
    return next(iter(str(error).splitlines()), type(error).__name__)
