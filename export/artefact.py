"""An artefact whose files were opened once and compared with their digests.

What was compared is what is read, wherever a link leads later: the server opens an artefact in the
same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from export.artefact_files import FileContent, open_files
from export.manifest import (
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Device,
    GraphSpec,
    Manifest,
    ManifestError,
    load_manifest,
)
from export.session import open_session, release
from export.session_settings import session_settings

Files = Mapping[str, FileContent]


@dataclass(frozen=True)
class Artefact:
    """A manifest, and the content of every file that it lists."""

    manifest: Manifest
    files: Files

    @classmethod
    def open(cls, directory: Path) -> Artefact:
        """Opens the manifest and every file that it lists.

        Raises:
            ManifestError: naming each file that is missing, unreadable or different.
        """
        manifest = load_manifest(directory)
        return cls(manifest, open_files(directory, manifest))

    @property
    def tokenizer(self) -> bytes:
        """The content of tokenizer.json."""
        return self.files[TOKENIZER_FILE][:]

    @property
    def target_tokenizer(self) -> bytes:
        """The content of target_tokenizer.json; of tokenizer.json where targets have no other."""
        return self.files.get(TARGET_TOKENIZER_FILE, self.files[TOKENIZER_FILE])[:]

    def graph(self, role: str) -> ir.Graph:
        """A graph, its weights read only when they are looked at.

        Raises:
            ManifestError: as `read_graph`.
        """
        return read_graph(self.manifest.graphs[role], self.files).graph

    def session(self, role: str) -> ort.InferenceSession:
        """A session on a graph, as the server opens it; on the CPU, whatever it was built for.

        Raises:
            SessionError: ONNX Runtime does not take it.
        """
        settings = session_settings(Device.CPU)
        return open_session(self.manifest.graphs[role], self.files, settings)

    def release(self, role: str) -> None:
        """Gives the memory of a graph's weights back; who reads them again reads the disk."""
        release(self.manifest.graphs[role], self.files)


def read_graph(spec: GraphSpec, files: Files) -> ir.Model:
    """A graph from the content of its file, its weights from that of theirs.

    Raises:
        ManifestError: the file holds no graph, or weights lie elsewhere than in its own files.
    """
    try:
        model = ir.from_proto(onnx.ModelProto.FromString(files[spec.file][:]))
    except Exception as error:  # whatever protobuf and onnx raise on bytes that are no graph
        raise ManifestError(f"{spec.file} is not a graph: {error}") from None
    if outside := sorted({str(tensor.location) for tensor in _outside(model.graph, spec)}):
        raise ManifestError(
            "; ".join(f"{spec.file} keeps weights in {it}, which is not its file" for it in outside)
        )
    for value in model.graph.initializers.values():
        if isinstance(tensor := value.const_value, ir.ExternalTensor):
            value.const_value = _stored_tensor(tensor, spec, files)
    return model


def _outside(graph: ir.Graph, spec: GraphSpec) -> Iterator[ir.ExternalTensor]:
    """The tensors that the graph keeps in files that are not its own, or beside its weights."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and str(tensor.location) not in spec.weights:
            yield tensor
    for node in graph.all_nodes():
        for attribute in node.attributes.values():
            if isinstance(attribute, ir.Attr) and isinstance(attribute.value, ir.ExternalTensor):
                yield attribute.value


def _stored_tensor(tensor: ir.ExternalTensor, spec: GraphSpec, files: Files) -> ir.LazyTensor:
    content, start = files[str(tensor.location)], tensor.offset or 0
    if start + tensor.nbytes > len(content):
        raise ManifestError(f"{spec.file} has {tensor.name} end beyond {tensor.location}")
    read = partial(_view, content, start, tensor)
    return ir.LazyTensor(read, dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _view(content: FileContent, start: int, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    """A tensor in a file's content, without a copy."""
    dtype, shape, name = tensor.dtype, tensor.shape, tensor.name
    if dtype.bitwidth < 8:
        packed = np.frombuffer(content, np.uint8, tensor.nbytes, start)
        return ir.PackedTensor(packed, dtype, shape=shape, name=name)
    number = np.dtype(dtype.numpy()).newbyteorder("<")
    values = np.frombuffer(content, number, tensor.size, start).reshape(shape.numpy())
    return ir.Tensor(values, dtype=dtype, shape=shape, name=name)
