"""Opening a graph exactly as the server opens it."""

from __future__ import annotations

from collections.abc import Mapping
from mmap import MADV_DONTNEED, mmap

import onnxruntime as ort

from export.artefact_files import FileContent
from export.manifest import GraphSpec
from export.session_settings import SessionSettings


class SessionError(RuntimeError):
    """A graph that ONNX Runtime does not open; the message has the file and the reason."""


def open_session(
    graph: GraphSpec, files: Mapping[str, FileContent], settings: SessionSettings
) -> ort.InferenceSession:
    """A session on a graph and its external data, from the content of their files.

    ONNX Runtime opens no file itself, wherever the graph says that its weights are; it copies what
    it needs, and the memory of mapped weights is given back.

    Raises:
        SessionError: the graph or its weights cannot be read, or mean nothing.
    """
    options = _session_options(settings)
    names = [graph.file, *graph.weights]  # the graph's own, so that the table is never empty
    contents = [files[name] for name in names]
    options.add_external_initializers_from_files_in_memory(
        names, contents, list(map(len, contents))
    )
    provider = (settings.provider, settings.provider_options)
    try:
        return ort.InferenceSession(files[graph.file][:], options, providers=[provider])
    except Exception as error:  # ONNX Runtime has a dozen kinds, without a common ancestor
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SessionError(f"{graph.file}: {reason}") from error
    finally:
        release(graph, files)


def release(graph: GraphSpec, files: Mapping[str, FileContent]) -> None:
    """Gives the memory of a graph's mapped weights back; who reads them again reads the disk."""
    for name in graph.weights:
        if isinstance(content := files[name], mmap):
            content.madvise(MADV_DONTNEED)


def _session_options(settings: SessionSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.enable_mem_pattern = settings.enable_mem_pattern
    options.enable_cpu_mem_arena = settings.enable_cpu_mem_arena
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, settings.graph_optimization_level
    )
    options.log_severity_level = 3
    for key, value in settings.config_entries.items():
        options.add_session_config_entry(key, value)
    return options
