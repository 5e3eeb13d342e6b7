"""How graphs are opened: the right provider, and the product of int8 that does not overflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.artefact_files import FileContent
from export.graph import IR_VERSION, OPSET
from export.manifest import Device, GraphSpec
from export.session import open_session
from export.session_settings import has_vnni, session_settings

_AVX512 = "avx2 avx512f avx512bw avx512dq avx512vl"


def test_settings_name_the_provider_of_the_device() -> None:
    assert session_settings(Device.CPU).provider == "CPUExecutionProvider"
    assert session_settings(Device.CUDA, 3).provider_options["device_id"] == "3"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (f"fpu {_AVX512} avx512_vnni", True),
        ("fpu avx2 avx_vnni", True),
        (f"fpu {_AVX512}", False),
        ("fpu avx2", False),
        ("fpu avx2 avx512_vnni", False),  # of which the rest is hidden from the system
    ],
)
def test_knows_processors_with_the_instruction(flags: str, found: bool, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    processor = f"model name\t: any\nflags\t\t: {flags}\nvmx flags\t: avx_vnni avx2\n"
    cpuinfo.write_text(f"processor\t: 0\n{processor}\nprocessor\t: 1\n{processor}")
    assert has_vnni(cpuinfo) is found


def test_a_system_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert not has_vnni(tmp_path / "missing")
    (tmp_path / "other").write_text("Features\t: fp asimd\n")
    assert not has_vnni(tmp_path / "other")


def test_sums_of_the_largest_products_are_exact() -> None:
    """Two of them are beyond 16 bits."""
    weight = np.full((64, 8), 127, np.int8)
    rows = np.full((3, 64), 255, np.uint8)
    files: dict[str, FileContent] = {"product.onnx": _product(weight)}
    graph = GraphSpec("product.onnx", (), (), ())
    session = open_session(graph, files, session_settings(Device.CPU))
    np.testing.assert_array_equal(
        session.run(None, {"rows": rows})[0], rows.astype(np.int32) @ weight.astype(np.int32)
    )


def _product(weight: NDArray[np.int8]) -> bytes:
    """A graph that multiplies `rows [n, 64]` in uint8 by `weight [64, 8]`."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "weight"], ["sums"])],
        "product",
        [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["n", 64])],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, ["n", 8])],
        [numpy_helper.from_array(weight, "weight")],
    )
    imports = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    return model.SerializeToString()
