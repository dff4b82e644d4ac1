"""Files as ``torch.export.save`` writes them, made by hand to be quick and to plant contents."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO
from typing import Any

import numpy as np

WEIGHT = np.array([[1, -1, 0, 2], [0, 1, 1, -3]], np.float32)
"""The weight of ``exported``'s network: relu(WEIGHT x) for examples of four numbers."""

SHAPE = (1, 2, 2)

PYTHON = b"cos\nsystem\n(S'touch ran'\ntR."
"""A pickle that creates a file when it is unpickled."""


def node(target: str, outputs: list[str], **inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs.items()],
        "outputs": [{"as_tensor": {"name": name}} for name in outputs],
        "metadata": {},
    }


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


NODES = [
    node("view.default", ["flat"], self=tensor("x"), size={"as_ints": [1, 4]}),
    node("permute.default", ["turned"], self=tensor("w"), dims={"as_ints": [1, 0]}),
    node("mm.default", ["product"], self=tensor("flat"), mat2=tensor("turned")),
    node("relu.default", ["out"], self=tensor("product")),
]


def meta(*sizes: int) -> dict[str, Any]:
    """Return the metadata of a contiguous float32 tensor."""
    strides = [int(np.prod(sizes[place + 1 :])) for place in range(len(sizes))]
    return {
        "dtype": 7,
        "sizes": [{"as_int": size} for size in sizes],
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "requires_grad": False,
        "layout": 7,
        "device": {"type": "cpu", "index": None},
    }


def exported(
    *,
    nodes: list[dict[str, Any]] = NODES,
    takes: tuple[int, ...] = (1, *SHAPE),
    pickled: bool = False,
    major: int = 8,
    outputs: tuple[str, ...] = ("user_output",),
) -> bytes:
    """Return the file of a network; by default relu(WEIGHT x)."""
    graph = {
        "inputs": [tensor("w"), tensor("x")],
        "outputs": [tensor("out")],
        "nodes": nodes,
        "tensor_values": {"x": meta(*takes), "w": meta(*WEIGHT.shape)},
    }
    signature = {
        "input_specs": [
            {"parameter": {"arg": {"name": "w"}, "parameter_name": "weight"}},
            {"user_input": {"arg": tensor("x")}},
        ],
        "output_specs": [{kind: {"arg": tensor("out")}} for kind in outputs],
    }
    document = {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": major, "minor": 0},
    }
    entry = {"path_name": "weight_0", "use_pickle": pickled, "tensor_meta": meta(*WEIGHT.shape)}
    files = {
        "models/model.json": json.dumps(document).encode(),
        "data/weights/model_weights_config.json": json.dumps(
            {"config": {"weight": entry}}
        ).encode(),
        "data/weights/weight_0": PYTHON if pickled else WEIGHT.tobytes(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        "data/sample_inputs/model.pt": PYTHON,
        "byteorder": b"little",
    }
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, held in files.items():
            archive.writestr(f"net/{name}", held)
    return content.getvalue()
