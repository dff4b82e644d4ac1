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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.data.folder import PublicFile
from fedldp.data.image_features import digest_of, mapped_alone

_FORMAT = 8
"""The major version of the format; newer files with the same major version are compatible."""

_MOST = 1_000_000
"""The largest number of features of one example."""

_OPERATOR = re.compile(r"torch\.ops\.aten\.(?!__)([a-z_]\w*)\.(?!_)(\w+)")
_BESIDE_CORE = frozenset(
    {"_assert_async", "_assert_tensor_metadata", "lift_fresh_copy", "linalg_vector_norm"}
)
"""Operators that exports contain although they are not among torch's core operators."""

_UNINITIALISED = "empty"
"""The prefix of the names of operators that return raw memory, which may hold other examples."""

_UNCHECKED = frozenset({"_embedding_bag", "grid_sampler_2d"})
"""Operators that return raw memory if their arguments do not match each other."""

_BACKWARD = "_backward"
"""The suffix of the names of backward operators; some write to the indices that a tensor gives."""

_TYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
_MEMORY = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}


class _Unreadable(Exception):
    """The file holds something other than a graph that can be run here; the message says what."""


@dataclass(frozen=True)
class ExportedEncoder:
    """A frozen network that maps one example to a vector; no gradient passes through it.

    It runs on one example at a time, so that nothing else in a batch can change a bit of its
    result. The file does not show what the network was trained on. The user who names the file
    declares the network public, and every line of a statement then says that it relies on this
    declaration. If the network fails on an example, or returns NaN or infinity, the features are
    zeros, because a refusal would reveal something about the example.

    Attributes:
        file: a file written by ``torch.export.save``, for a network that takes a batch of one
            example.
        input_shape: the shape of an example.

    Raises:
        ConfigError: the file is of another kind, or its network takes examples of another kind, is
            not a function of the examples alone, or changes its own buffers.
    """

    file: PublicFile
    input_shape: tuple[int, ...]
    size: int = field(init=False)
    _run: Callable[[torch.Tensor], torch.Tensor] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = f"features = encoder:{self.file.name}"
        try:
            run = _Graph(self.file.content, self.input_shape)
        except _Unreadable as error:
            raise ConfigError(f"{named}: {error}") from None
        except Exception as error:  # a damaged file raises nearly any error
            raise ConfigError(
                f"{named}: it is not a file of torch.export.save, or it is damaged "
                f"({type(error).__name__}: {first_line(error)}); export it again"
            ) from error
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "size", self._tried(named))

    @property
    def digest(self) -> str:
        """See ``ExampleMap``; the digest of the file's bytes."""
        return digest_of("encoder", 1, self.input_shape, self.file.digest)

    def __call__(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        return mapped_alone(self._of, examples, self.size)

    def _of(self, example: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            return self._run(torch.tensor(example[None])).flatten().float().numpy()

    def _tried(self, named: str) -> int:
        """Return the number of features, found by trying a random public example and zeros."""
        drawn = numbered_generator(0, 0).random((2, *self.input_shape)).astype(np.float32)
        drawn[1] = 0
        try:
            found = [self._of(drawn[index]) for index in (0, 1, 0)]
        except Exception as error:
            raise ConfigError(
                f"{named}: it fails on an example of shape {self.input_shape} with "
                f"{type(error).__name__}: {first_line(error)}; export it for that shape"
            ) from error
        if not 1 <= found[0].size <= _MOST or not np.isfinite(found).all():
            raise ConfigError(
                f"{named}: for an example of shape {self.input_shape} it must return at "
                f"most {_MOST:,} numbers, all of them finite"
            )
        if found[0].tobytes() != found[2].tobytes():
            raise ConfigError(
                f"{named}: it returns different numbers when it is called again; export it in eval "
                "mode"
            )
        return found[0].size


@dataclass(frozen=True)
class _Call:
    """One operator of a graph, with its arguments: values, or names of tensors."""

    operator: Any
    positional: Sequence[Any]
    named: Mapping[str, Any]
    outputs: Sequence[str | None]

    def __call__(self, of: Callable[[Any], Any]) -> Any:
        """Return the result of the operator.

        Args:
            of: gives the value of an argument.

        Raises:
            ValueError: a batch normalisation has a different number of channels, or would read
                beyond its parameters; or the example decides how many numbers an index picks.
        """
        positional = [of(each) for each in self.positional]
        named = {name: of(each) for name, each in self.named.items()}
        name = self.operator._schema.name.removeprefix("aten::")
        if name.startswith("_native_batch_norm_legit"):
            batch, *others = *positional, *named.values()
            sizes = {each.numel() for each in others if isinstance(each, torch.Tensor)}
            if sizes - {batch.shape[1]}:
                raise ValueError("a batch normalisation has another number of channels")
        if name == "index":
            indices = positional[1] if len(positional) > 1 else named["indices"]
            if any(each is not None and not _is_number(each) for each in indices):
                raise ValueError("an index is a mask")
        return self.operator(*positional, **named)


@dataclass(frozen=True)
class _Name:
    name: str


def _is_number(index: torch.Tensor) -> bool:
    return index.dtype in (torch.int32, torch.int64)


class _Graph:
    """The network in a file, as a function of a batch of one example."""

    def __init__(self, content: bytes, input_shape: tuple[int, ...]) -> None:
        files = _members(content)
        document = json.loads(files["models/model.json"])
        version = document["schema_version"]["major"]
        if version != _FORMAT:
            raise _Unreadable(
                f"it has version {version} of torch's format, but only version {_FORMAT} is "
                "supported; export it with another version of torch"
            )
        module = document["graph_module"]
        graph = module["graph"]
        self._given: dict[str, torch.Tensor] = {}
        self._input = self._read_inputs(module["signature"], files)
        takes = [size.get("as_int") for size in graph["tensor_values"][self._input]["sizes"]]
        if takes != [1, *input_shape] or graph["tensor_values"][self._input]["dtype"] != 7:
            shown = "x".join("any" if size is None else str(size) for size in takes)
            raise _Unreadable(
                f"it takes a batch of {shown}, but an example has the shape {input_shape}; export "
                f"it for torch.zeros{(1, *input_shape)}"
            )
        self._calls = [_call(node) for node in graph["nodes"]]
        outputs = [kind for each in module["signature"]["output_specs"] for kind in each]
        if outputs != ["user_output"] or "as_tensor" not in graph["outputs"][0]:
            raise _Unreadable(
                f"it returns {', '.join(outputs)}; export a network in eval mode that returns one "
                "tensor"
            )
        self._output = graph["outputs"][0]["as_tensor"]["name"]

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        values = {**self._given, self._input: batch}

        def of(argument: Any) -> Any:
            if isinstance(argument, _Name):
                return values[argument.name]
            return [of(each) for each in argument] if isinstance(argument, list) else argument

        for call in self._calls:
            found = call(of)
            several = found if isinstance(found, tuple | list) else (found,)
            values.update(
                (name, value)
                for name, value in zip(call.outputs, several, strict=False)
                if name is not None
            )
        return values[self._output]

    def _read_inputs(self, signature: Any, files: Mapping[str, bytes]) -> str:
        """Store the tensors that the graph takes, and return the name of the example's input."""
        weights = json.loads(files["data/weights/model_weights_config.json"])["config"]
        constants = json.loads(files["data/constants/model_constants_config.json"])["config"]
        examples = []
        for each in signature["input_specs"]:
            ((kind, spec),) = each.items()
            if kind == "user_input":
                examples.append(spec["arg"].get("as_tensor", {}).get("name"))
            elif kind in ("parameter", "buffer", "tensor_constant"):
                name = spec[f"{kind}_name"]
                held = ("weights", weights) if name in weights else ("constants", constants)
                self._given[spec["arg"]["name"]] = _tensor(held[1][name], held[0], files)
            else:
                raise _Unreadable(f"it takes a {kind}; export a network that takes tensors only")
        if len(examples) != 1 or examples[0] is None:
            raise _Unreadable(f"it takes {len(examples)} arguments; export it for one tensor")
        return str(examples[0])


def _members(content: bytes) -> dict[str, bytes]:
    """Return an archive's files, keyed by their paths within its only top-level folder."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        infos = archive.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise _Unreadable("it is compressed; give the file that torch.export.save wrote")
        found = {info.filename.partition("/")[2]: archive.read(info) for info in infos}
    if found["byteorder"] != b"little":
        raise _Unreadable("its numbers are big-endian; export it on a little-endian machine")
    return found


def _tensor(entry: Any, folder: str, files: Mapping[str, bytes]) -> torch.Tensor:
    if entry["use_pickle"]:
        raise _Unreadable(
            "it holds a pickled tensor, which is code and is not read; export a network of plain "
            "tensors on the CPU"
        )
    meta = entry["tensor_meta"]
    sizes, strides = (_ints(meta[name]) for name in ("sizes", "strides"))
    flat = torch.empty(0, dtype=_TYPES[meta["dtype"]])
    if content := files[f"data/{folder}/{entry['path_name']}"]:
        flat = torch.frombuffer(bytearray(content), dtype=flat.dtype)
    elif math.prod(sizes):
        raise _Unreadable("one of its tensors is empty; write the file again")
    return torch.as_strided(flat, sizes, strides, _ints([meta["storage_offset"]])[0])


def _call(node: Any) -> _Call:
    """Return the call that a node describes, if it is allowed."""
    target = node["target"]
    operator = _operator(target)
    given = {each["name"]: _argument(each["arg"], target) for each in node["inputs"]}
    positional: list[Any] = []
    for argument in operator._schema.arguments:
        if argument.kwarg_only or argument.name not in given:
            break
        positional.append(given.pop(argument.name))
    outputs: list[str | None] = []
    for each in node["outputs"]:
        ((kind, value),) = each.items()
        if kind == "as_tensor":
            outputs.append(value["name"])
        elif kind == "as_tensors":
            outputs += [one["name"] for one in value]
        else:
            outputs.append(None)
    if given.get("rounding_mode") == "trunc":  # this mode may crash with integers
        raise _Unreadable(f"it calls {target} with rounding_mode = trunc; export it with floor")
    return _Call(operator, positional, given, outputs)


def _operator(target: str) -> Any:
    """Return a core operator of ATen that creates tensors and does nothing else."""
    if (named := _OPERATOR.fullmatch(target)) is None:
        raise _Unreadable(
            f"it calls {target}, which is not an operator of ATen; export the network without it"
        )
    name, overload = named.groups()
    try:
        operator = getattr(getattr(torch.ops.aten, name), overload)
        schema, tags = operator._schema, operator.tags
    except (AttributeError, RuntimeError):
        raise _Unreadable(
            f"it calls {target}, which this version of torch does not have; use the version that "
            "exported it"
        ) from None
    makes = [str(value.type) for value in schema.returns]
    if schema.is_mutable or torch.Tag.nondeterministic_seeded in tags:
        raise _Unreadable(
            f"it calls {target}, which changes a tensor or is random; export it in eval mode, with "
            ".run_decompositions()"
        )
    if name in _UNCHECKED or name.endswith(_BACKWARD):
        raise _Unreadable(
            f"it calls {target}, which does not check its arguments, so a file could read or "
            "change other memory; export the network without it"
        )
    if torch.Tag.dynamic_output_shape in tags and name != "index":
        raise _Unreadable(
            f"it calls {target}, whose output size, and so its running time, depends on the "
            "example; export the network without it"
        )
    known = torch.Tag.core in tags or name in _BESIDE_CORE
    tensors = not set(makes) - {"Tensor", "List[Tensor]"}
    if not (known and tensors) or name.startswith(_UNINITIALISED):
        raise _Unreadable(
            f"it calls {target}, which is not one of torch's core operators that create tensors; "
            "export the network with .run_decompositions(), or without it"
        )
    return operator


def _argument(argument: Any, target: str) -> Any:
    ((kind, value),) = argument.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return _Name(value["name"])
        case "as_tensors":
            return [_Name(each["name"]) for each in value]
        case "as_optional_tensor":
            return _argument(value, target)
        case "as_optional_tensors":
            return [_argument(each, target) for each in value]
        case "as_int" | "as_ints" | "as_bool" | "as_bools" | "as_string":
            return value
        case "as_float":
            return float(value)
        case "as_floats":
            return [float(each) for each in value]
        case "as_sym_int":
            return _ints([value])[0]
        case "as_sym_ints":
            return _ints(value)
        case "as_scalar_type":
            return _TYPES[value]
        case "as_memory_format":
            return _MEMORY[value]
        case "as_layout" if value == 7:
            return torch.strided
        case "as_device" if value["type"] == "cpu":
            return torch.device("cpu")
        case _:
            raise _Unreadable(
                f"{target} is given {kind}, which is not supported; export the network without it"
            )


def _ints(sizes: Any) -> list[int]:
    """Return sizes as integers; refuse a size that is known only when the network runs."""
    if any("as_int" not in size for size in sizes):
        raise _Unreadable("a size in it is not fixed; export it without dynamic_shapes")
    return [int(size["as_int"]) for size in sizes]
