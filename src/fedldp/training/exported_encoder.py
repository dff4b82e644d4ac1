"""A frozen encoder from a file: the graph that ``torch.export`` wrote, run operator by operator.

torch's own loader of such files unpickles parts of them, so a file could run any code. Here a file
can run nothing but core operators of ATen that return tensors and change nothing: the graph is
JSON, and the weights are plain bytes. Everything else in a file is ignored. Some operators read or
write beyond a tensor if a file gives them wrong numbers; these are refused or checked. Memory
beyond a tensor may hold other examples, and whether such an operator crashes the process may depend
on an example.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.data.folder import PublicFile
from fedldp.data.image_features import PublicMap, digest_of, mapped_alone, tried_size

_FORMAT = 8
"""The major version of the format; newer files with the same major version are compatible."""

_OPERATOR = re.compile(r"torch\.ops\.aten\.(?!__)([a-z_]\w*)\.(?!_)(\w+)")
_BESIDE_CORE = frozenset(
    {"_assert_async", "_assert_tensor_metadata", "lift_fresh_copy", "linalg_vector_norm"}
)
"""Operators that exports contain although they are not among torch's core operators."""

_UNINITIALISED = "empty"
"""The prefix of the names of operators that return raw memory, which may hold other examples."""

_UNCHECKED = re.compile("_embedding_bag|grid_sampler_2d|.*_backward")
"""Operators that return raw memory if their arguments do not match each other. Some backward
operators also write to indices that a tensor gives."""

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.float32, torch.float64)
_TYPES = dict(enumerate((*_INTEGERS, *_FLOATS), 1)) | {12: torch.bool, 13: torch.bfloat16}
_CONSTANTS: Mapping[str, Callable[[Any], Any]] = {
    "as_none": lambda value: None,
    **dict.fromkeys(
        ("as_int", "as_ints", "as_bool", "as_bools", "as_string"), lambda value: value
    ),
    "as_float": float,
    "as_floats": lambda value: list(map(float, value)),
    "as_sym_int": lambda value: _ints([value])[0],
    "as_sym_ints": lambda value: _ints(value),
    "as_scalar_type": lambda value: _TYPES[value],
    "as_memory_format": lambda value: {
        1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format
    }[value],
    "as_layout": lambda value: {7: torch.strided}[value],
    "as_device": lambda value: {"cpu": torch.device("cpu")}[value["type"]],
}  # fmt: skip
"""For each kind of argument that is no tensor, reads its value; a KeyError refuses it."""

Values = dict[str, torch.Tensor]
"""The tensors of a graph by name, while it runs."""


def exported_encoder(file: PublicFile, input_shape: tuple[int, ...]) -> PublicMap:
    """Return a frozen network that maps one example to a vector; no gradient passes through it.

    It runs on one example at a time, so that nothing else in a batch can change a bit of its
    result. The file does not show what the network was trained on. The user who names the file
    declares the network public, and every line of a statement then says that it relies on this
    declaration. If the network fails on an example, or returns NaN or infinity, the features are
    zeros, because a refusal would reveal something about the example.

    Args:
        file: a file written by ``torch.export.save``, for a network that takes a batch of one
            example.
        input_shape: the shape of an example.

    Raises:
        ConfigError: the file is of another kind, or its network takes examples of another kind, is
            not a function of the examples alone, or changes its own buffers.
    """
    named = f"features = encoder:{file.name}"
    try:
        run = _network(file.content, input_shape)
    except Exception as error:  # a damaged file raises nearly any error
        raise ConfigError(
            f"{named}: it is not a file of torch.export.save that can be run here "
            f"({type(error).__name__}: {first_line(error)}); export a network of one tensor in "
            f"eval mode for torch.zeros{(1, *input_shape)}, without dynamic shapes, with "
            ".run_decompositions()"
        ) from error

    def of_one(example: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            return run(torch.tensor(example[None])).flatten().float().numpy()

    size = tried_size(of_one, input_shape, named, "; export it for that shape")
    drawn = numbered_generator(0, 1).random(input_shape).astype(np.float32)
    if of_one(drawn).tobytes() != of_one(drawn).tobytes():
        raise ConfigError(
            f"{named}: it returns different numbers when it is called again; export it in eval mode"
        )
    digest = digest_of("encoder", 1, input_shape, file.digest)
    return PublicMap(size, digest, lambda examples: mapped_alone(of_one, examples, size))


def _network(
    content: bytes, input_shape: tuple[int, ...]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the network in a file, as a function of a batch of one example."""
    files = _members(content)
    document = json.loads(files["models/model.json"])
    version = document["schema_version"]["major"]
    if version != _FORMAT:
        raise ValueError(f"it has version {version} of torch's format, not {_FORMAT}")
    module = document["graph_module"]
    graph = module["graph"]
    example, held = _inputs(module["signature"], files)
    takes = graph["tensor_values"][example]
    if (_ints(takes["sizes"]), _TYPES[takes["dtype"]]) != ([1, *input_shape], torch.float32):
        raise ValueError(f"it takes a batch of {_ints(takes['sizes'])}")
    calls = [_call(node) for node in graph["nodes"]]
    outputs = [kind for each in module["signature"]["output_specs"] for kind in each]
    if outputs != ["user_output"]:
        raise ValueError(f"it returns {', '.join(outputs)}")
    last = graph["outputs"][0]["as_tensor"]["name"]

    def run(batch: torch.Tensor) -> torch.Tensor:
        values = {**held, example: batch}
        for call in calls:
            values |= call(values)
        return values[last]

    return run


def _inputs(signature: Any, files: Mapping[str, bytes]) -> tuple[str, Values]:
    """Return the name of the example's input, and the other tensors that the graph takes."""
    weights = json.loads(files["data/weights/model_weights_config.json"])["config"]
    constants = json.loads(files["data/constants/model_constants_config.json"])["config"]
    examples, held = [], {}
    for each in signature["input_specs"]:
        ((kind, spec),) = each.items()
        if kind == "user_input":
            examples.append(spec["arg"]["as_tensor"]["name"])
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = spec[f"{kind}_name"]
            folder, entries = ("weights", weights) if name in weights else ("constants", constants)
            held[spec["arg"]["name"]] = _tensor(entries[name], folder, files)
        else:
            raise ValueError(f"it takes a {kind}")
    (example,) = examples
    return str(example), held


def _members(content: bytes) -> dict[str, bytes]:
    """Return an archive's files, keyed by their paths within its only top-level folder."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        infos = archive.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError("it is compressed")
        found = {info.filename.partition("/")[2]: archive.read(info) for info in infos}
    if found["byteorder"] != b"little":
        raise ValueError("its numbers are big-endian")
    return found


def _tensor(entry: Any, folder: str, files: Mapping[str, bytes]) -> torch.Tensor:
    if entry["use_pickle"]:
        raise ValueError("it holds a pickled tensor, which is code")
    meta = entry["tensor_meta"]
    sizes, strides = (_ints(meta[name]) for name in ("sizes", "strides"))
    flat = torch.empty(0, dtype=_TYPES[meta["dtype"]])
    if content := files[f"data/{folder}/{entry['path_name']}"]:
        flat = torch.frombuffer(bytearray(content), dtype=flat.dtype)
    elif math.prod(sizes):
        raise ValueError("one of its tensors is empty")
    return torch.as_strided(flat, sizes, strides, _ints([meta["storage_offset"]])[0])


def _call(node: Any) -> Callable[[Values], Values]:
    """Return what computes a node's outputs from the tensors before it, if it is allowed."""
    target = node["target"]
    operator = _operator(target)
    given = {each["name"]: _argument(each["arg"]) for each in node["inputs"]}
    if {"as_string": "trunc"} in [each["arg"] for each in node["inputs"]]:
        # As a rounding mode, this may crash with integers.
        raise ValueError(f"it calls {target} with rounding_mode = trunc, not floor")
    names: list[str] = []
    for each in node["outputs"]:
        ((kind, value),) = each.items()
        several = {"as_tensor": [value], "as_tensors": value}.get(kind, [{}])
        names += [one.get("name", "") for one in several]

    def call(values: Values) -> Values:
        arguments = {name: of(values) for name, of in given.items()}
        _check(operator._schema.name.removeprefix("aten::"), arguments)
        found = operator(**arguments)
        return dict(zip(names, found if isinstance(found, tuple | list) else [found], strict=False))

    return call


def _check(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments with which an operator would not do what the file says for every example.

    Raises:
        ValueError: a batch normalisation has a different number of channels, or would read beyond
            its parameters; or the example decides how many numbers an index picks.
    """
    if name.startswith("_native_batch_norm_legit"):
        others = (each for key, each in arguments.items() if key != "input")
        sizes = {each.numel() for each in others if isinstance(each, torch.Tensor)}
        if sizes - {arguments["input"].shape[1]}:
            raise ValueError("a batch normalisation has another number of channels")
    if name == "index":
        given = [each for each in arguments["indices"] if each is not None]
        if any(each.dtype not in (torch.int32, torch.int64) for each in given):
            raise ValueError("an index is a mask")


def _operator(target: str) -> Any:
    """Return a core operator of ATen that creates tensors and does nothing else.

    Refused is what changes a tensor or draws; what does not check its arguments, so that a file
    could read or change other memory; and what makes an output whose size, and so its running time,
    depends on the example.
    """
    named = _OPERATOR.fullmatch(target)
    name, overload = named.groups() if named else ("", "")
    operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
    schema, tags = getattr(operator, "_schema", None), getattr(operator, "tags", ())
    if (
        schema is None
        or not (torch.Tag.core in tags or name in _BESIDE_CORE)
        or not {str(value.type) for value in schema.returns} <= {"Tensor", "List[Tensor]"}
        or schema.is_mutable
        or torch.Tag.nondeterministic_seeded in tags
        or _UNCHECKED.fullmatch(name)
        or name.startswith(_UNINITIALISED)
        or (torch.Tag.dynamic_output_shape in tags and name != "index")
    ):
        raise ValueError(
            f"it calls {target}, which is not a core operator of ATen that only creates tensors, "
            "of a known size, from checked arguments"
        )
    return operator


def _argument(argument: Any) -> Callable[[Values], Any]:
    """Return what gives an argument of an operator, from the tensors before it."""
    ((kind, value),) = argument.items()
    match kind:
        case "as_tensor":
            return itemgetter(value["name"])
        case "as_optional_tensor":
            return _argument(value)
        case "as_tensors" | "as_optional_tensors":
            alike = value if "optional" in kind else [{"as_tensor": each} for each in value]
            several = list(map(_argument, alike))
            return lambda values: [of(values) for of in several]
    constant = _CONSTANTS[kind](value)
    return lambda values: constant


def _ints(sizes: Any) -> list[int]:
    """Return sizes as integers; those that are known only when the network runs have none."""
    return [int(size["as_int"]) for size in sizes]
