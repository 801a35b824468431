"""Checkpoints: their sources and pins, where they are found, and safe reading."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from daco.errors import WeightsError
from daco.files.download import WEIGHTS_DIR_VARIABLE, WeightSource, weights_dir
from daco.text import name_list, suggestion

Shapes = Mapping[str, tuple[int, ...]]

_WRAPPERS = ("state_dict", "model_state_dict")
_COUNTER = "num_batches_tracked"  # of BatchNorm, for its training
_PUBLISHED = (
    (
        "beats",
        "BEATs_iter3_plus_AS2M.pt",
        "https://huggingface.co/datasets/Bencr/beats-checkpoints/resolve/main/{}",
        "d43cbfad4d7b56381c061d7a24774f908d4d94c72961f6eb1d9090ff18cd8d34",
        "MIT",
    ),
    (
        "eat",
        "model.safetensors",
        "https://huggingface.co/worstchan/EAT-base_epoch30_pretrain/resolve/main/{}",
        "8623072d09aac4f3ad1168b4fed3a24e4f68fe1da25b9fe733375efb237e5f48",
        "MIT",
    ),
    (
        "panns",
        "Cnn14_16k_mAP=0.438.pth",
        "https://zenodo.org/records/3987831/files/{}",
        "e2ee543a27919542c2ea03eabaa70b24dcd4e6c8e05621de6b67a94e4c5058e6",
        "CC-BY-4.0",
    ),
    (
        "mn04",
        "mn04_as_mAP_432.pt",
        "https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/{}",
        "899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c",
        "MIT",
    ),
)
SOURCES = {
    name: WeightSource(name, file_name, url.format(quote(file_name)), sha256, licence)
    for name, file_name, url, sha256, licence in _PUBLISHED
}
"""The published checkpoint of each network."""


def find_weights(name: str, explicit: str | os.PathLike[str] | None = None) -> Path:
    """The checkpoint file of a network: the one given, or the one in the weights folder.

    A folder, given or not, is searched for ``name/file_name``, where a download puts it because
    file names repeat, and then for ``file_name``.
    """
    source = SOURCES[name]
    folder = weights_dir() if explicit is None else Path(explicit).expanduser()
    if explicit is not None and folder.is_file():
        return folder
    for candidate in (folder / name / source.file_name, folder / source.file_name):
        if candidate.is_file():
            return candidate
    if explicit is not None:
        what = f"has no {source.file_name}" if folder.is_dir() else "does not exist"
        raise WeightsError(
            f"The weights given for {name!r} were not found: {folder} {what}. Check the path, or "
            f"run `daco download weights {name}`."
        )
    raise WeightsError(
        f"{name!r} needs the file {source.file_name}, which is not in {folder}. Run "
        f"`daco download weights {name}`, or fetch {source.url} on another computer and give "
        f"the file as weights (--weights), or its folder in {WEIGHTS_DIR_VARIABLE}."
    )


def load_weights(
    name: str,
    weights: str | os.PathLike[str] | Mapping[str, Any] | None,
    *,
    expected: Shapes,
    clean: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
) -> tuple[dict[str, Any], str | None]:
    """The tensors of a checkpoint, read safely and checked, and the SHA-256 of its file, if any.

    `weights` as in `find_weights`, or a state dict. A file that carries the published file's name
    must have the published SHA-256; any other file is taken as the user's own. `clean` takes a
    checkpoint as it was saved, bare or under ``model``, to the tensors that the network needs,
    which have the names and shapes of `expected`.
    """
    checkpoint, sha256, where = weights, None, "the state dict given"
    if not isinstance(weights, Mapping):
        path = find_weights(name, weights)
        checkpoint, sha256 = _read_verified(name, path)
        where = str(path)
    for key in _WRAPPERS:
        if isinstance(checkpoint, Mapping) and isinstance(checkpoint.get(key), Mapping):
            checkpoint = checkpoint[key]
    if not isinstance(checkpoint, Mapping) or not checkpoint:
        raise WeightsError(
            f"{where} holds no state dict. A checkpoint maps names to tensors, directly or under "
            f"'model', {', '.join(map(repr, _WRAPPERS))}."
        )
    tensors = dict(clean(dict(checkpoint)))
    _check_tensors(tensors, expected, where, name)
    return tensors, sha256


def model_of(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict of a checkpoint, which may be under ``model``."""
    model = checkpoint.get("model")
    return model if isinstance(model, Mapping) else checkpoint


def model_without(checkpoint: Mapping[str, Any], *needless: str) -> dict[str, Any]:
    """The same without tensors whose names begin so, and without counters of batches."""
    return {
        name: value
        for name, value in model_of(checkpoint).items()
        if not name.startswith(needless) and not name.endswith(_COUNTER)
    }


def shapes_of(make: Callable[[], Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a module has, but for counters of batches."""
    import torch

    with torch.device("meta"):
        tensors = make().state_dict()
    return {name: tuple(t.shape) for name, t in tensors.items() if not name.endswith(_COUNTER)}


def _check_tensors(tensors: Mapping[str, Any], expected: Shapes, where: str, name: str) -> None:
    """Raise a WeightsError that names missing, unexpected and mis-shaped entries."""
    import torch

    odd = [key for key, value in tensors.items() if not isinstance(value, torch.Tensor)]
    shapes = {key: tuple(value.shape) for key, value in tensors.items() if key not in odd}
    missing = [key for key in expected if key not in tensors]
    problems = {
        "not tensors": odd,
        "missing": missing,
        "unexpected": [key + suggestion(key, missing) for key in tensors if key not in expected],
        "of another shape": [
            f"{key} {shapes[key]}, not {shape}"
            for key, shape in expected.items()
            if shapes.get(key, shape) != shape
        ],
    }
    listed = [f"{len(k)} {what}: {name_list(k, 3)}" for what, k in problems.items() if k]
    if listed:
        raise WeightsError(
            f"{where} does not fit the network {name!r} ({len(expected)} entries): "
            f"{'; '.join(listed)}. Give the state dict of this network, for instance "
            f"{SOURCES[name].file_name}."
        )


def _read_verified(name: str, path: Path) -> tuple[Any, str]:
    pin = SOURCES[name].sha256 if path.name == SOURCES[name].file_name else None
    with path.open("rb") as file:  # one handle: what was hashed is what is read
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if pin is not None and sha256 != pin:
            raise WeightsError(
                f"{path} is not the published {name!r} checkpoint and was not opened. "
                f"Expected SHA-256 {pin}, got {sha256}. If the download was cut short, delete "
                f"the file and run `daco download weights {name}`; if it is a checkpoint of "
                "your own, give it another file name."
            )
        file.seek(0)
        return _read(file, path), sha256


def _read(file: BufferedReader, path: Path) -> Any:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    head = file.read(9)
    file.seek(0)
    # By content, because the same suffix is used for every format.
    if head[8:9] == b"{":
        try:
            return load(file.read())
        except SafetensorError as error:
            message = f"{path} is damaged: {error}. Fetch or save the file again."
            raise WeightsError(message) from None
    try:
        with _numpy_allowed():
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever its unpickler or zip reader met
        refused = re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))
        if refused:
            raise WeightsError(
                f"{path} holds a Python object, {refused[1]}, that could run code when it is "
                "opened, and was refused. Save its state dict alone, best as safetensors."
            ) from None
        raise WeightsError(
            f"{path} cannot be read as a PyTorch or safetensors checkpoint "
            f"({type(error).__name__}). Fetch or save the file again."
        ) from error


def _numpy_allowed() -> AbstractContextManager[Any]:
    """Allow arrays and numbers of NumPy, which training scripts leave beside the weights."""
    import torch

    functions: list[Any] = [each.__reduce__()[0] for each in (np.float64(0), np.zeros(0))]
    # NumPy 1 wrote them under another module.
    renamed = [(each, f"numpy.core.multiarray.{each.__name__}") for each in functions]
    dtypes = [type(np.dtype(code)) for code in "?bhilqBHILQefdSU"]
    return torch.serialization.safe_globals([*functions, *renamed, np.ndarray, np.dtype, *dtypes])
