"""Opening a graph exactly as the server opens it."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from export.manifest import SessionSettings


class SessionError(RuntimeError):
    """A graph that ONNX Runtime does not open; the message has the file and the reason."""


def open_session(path: Path, settings: SessionSettings) -> ort.InferenceSession:
    """A session on a graph and its external data.

    Raises:
        SessionError: the graph or its weights cannot be read, or mean nothing.
    """
    options = ort.SessionOptions()
    options.enable_mem_pattern = settings.enable_mem_pattern
    options.enable_cpu_mem_arena = settings.enable_cpu_mem_arena
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, settings.graph_optimization_level
    )
    options.log_severity_level = 3
    for key, value in settings.config_entries.items():
        options.add_session_config_entry(key, value)
    provider = (settings.provider, settings.provider_options)
    try:
        return ort.InferenceSession(str(path), options, providers=[provider])
    except Exception as error:  # ONNX Runtime has a dozen kinds, without a common ancestor
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SessionError(f"{path.name}: {reason}") from error
