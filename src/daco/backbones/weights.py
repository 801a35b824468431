"""Checkpoints: their sources and pins, where they are found, and safe reading."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from daco.errors import WeightsError
from daco.files.download import WEIGHTS_DIR_VARIABLE, WeightSource, weights_dir
from daco.text import closest

Shapes = Mapping[str, tuple[int, ...]]

_SHOWN = 3
_WRAPPERS = ("state_dict", "model_state_dict")


SOURCES: dict[str, WeightSource] = {
    source.name: source
    for source in (
        WeightSource(
            name="beats",
            file_name="BEATs_iter3_plus_AS2M.pt",
            url=(
                "https://huggingface.co/datasets/Bencr/beats-checkpoints/resolve/main/"
                "BEATs_iter3_plus_AS2M.pt"
            ),
            sha256="d43cbfad4d7b56381c061d7a24774f908d4d94c72961f6eb1d9090ff18cd8d34",
            licence="MIT",
        ),
        WeightSource(
            name="eat",
            file_name="model.safetensors",
            url=(
                "https://huggingface.co/worstchan/EAT-base_epoch30_pretrain/resolve/main/"
                "model.safetensors"
            ),
            sha256="8623072d09aac4f3ad1168b4fed3a24e4f68fe1da25b9fe733375efb237e5f48",
            licence="MIT",
        ),
        WeightSource(
            name="panns",
            file_name="Cnn14_16k_mAP=0.438.pth",
            url="https://zenodo.org/records/3987831/files/Cnn14_16k_mAP%3D0.438.pth",
            sha256="e2ee543a27919542c2ea03eabaa70b24dcd4e6c8e05621de6b67a94e4c5058e6",
            licence="CC-BY-4.0",
        ),
        WeightSource(
            name="mn04",
            file_name="mn04_as_mAP_432.pt",
            url=(
                "https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/"
                "mn04_as_mAP_432.pt"
            ),
            sha256="899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c",
            licence="MIT",
        ),
    )
}


@dataclass(frozen=True)
class Checkpoint:
    """Tensors that fit a network, and the SHA-256 of the file they came from, if any."""

    state_dict: dict[str, Any]
    sha256: str | None


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
) -> Checkpoint:
    """A checkpoint, verified against its pin, read safely and checked key by key.

    Parameters
    ----------
    name : str
        The network, a key of `SOURCES`.
    weights : path, state dict or None
        None looks in the weights folder. A file that carries the published file's name must
        have the published SHA-256; any other file is taken as the user's own.
    expected : mapping of name to shape
        What the network needs, after `clean`.
    clean : callable
        Takes a checkpoint as it was saved, bare or under ``model``, to the tensors the network
        needs; drops what else it may hold, such as a classifier.
    """
    if isinstance(weights, Mapping):
        checkpoint, sha256, where = weights, None, "the state dict given"
    else:
        path = find_weights(name, weights)
        checkpoint, sha256 = _read_verified(name, path)
        where = str(path)
    state_dict = dict(clean(_unwrap(checkpoint, where)))
    _check_state_dict(state_dict, expected, where, name)
    return Checkpoint(state_dict, sha256)


def model_of(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict of a checkpoint, which may be under ``model``."""
    model = checkpoint.get("model")
    return model if isinstance(model, Mapping) else checkpoint


def _check_state_dict(
    state_dict: Mapping[str, Any], expected: Shapes, where: str, name: str
) -> None:
    """Raise a WeightsError that names missing, unexpected and mis-shaped entries."""
    import torch

    odd = [key for key, value in state_dict.items() if not isinstance(value, torch.Tensor)]
    if odd:
        raise WeightsError(
            f"{where} is not a state dict: {_list('not tensors', odd)}. Save network.state_dict() "
            "and give that file."
        )
    missing = [key for key in expected if key not in state_dict]
    unexpected = [
        key + _nearest(key, missing or expected) for key in state_dict if key not in expected
    ]
    shapes = {key: tuple(value.shape) for key, value in state_dict.items()}
    misshaped = [
        f"{key} {shapes[key]}, not {tuple(shape)}"
        for key, shape in expected.items()
        if key in shapes and shapes[key] != tuple(shape)
    ]
    if missing or unexpected or misshaped:
        parts = (
            _list("missing", missing),
            _list("unexpected", unexpected),
            _list("of another shape", misshaped),
        )
        raise WeightsError(
            f"{where} does not fit the network {name!r} ({len(expected)} entries): "
            f"{'; '.join(filter(None, parts))}. Give a checkpoint of this network, for instance "
            f"{SOURCES[name].file_name}."
        )


def _list(what: str, keys: list[str]) -> str:
    more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{len(keys)} {what}: {', '.join(keys[:_SHOWN])}{more}" if keys else ""


def _nearest(key: str, known: Iterable[str]) -> str:
    near = closest(key, known, cutoff=0.5)
    return f" (nearest known: {near})" if near else ""


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


def _unwrap(checkpoint: Any, where: str) -> dict[str, Any]:
    """A checkpoint with tensors instead of arrays, out of the wrappers that training adds.

    ``model`` stays, because the entries beside it say which network it is.
    """
    for key in _WRAPPERS:
        if isinstance(checkpoint, Mapping) and isinstance(checkpoint.get(key), Mapping):
            checkpoint = checkpoint[key]
    if not isinstance(checkpoint, Mapping) or not checkpoint:
        raise WeightsError(
            f"{where} holds no state dict. A checkpoint maps names to tensors, directly or under "
            f"'model', {', '.join(map(repr, _WRAPPERS))}."
        )
    tensors = {str(key): _as_tensor(value) for key, value in checkpoint.items()}
    if isinstance(tensors.get("model"), Mapping):
        model = tensors["model"].items()
        tensors["model"] = {str(key): _as_tensor(value) for key, value in model}
    return tensors


def _as_tensor(value: Any) -> Any:
    import numpy as np
    import torch

    numeric = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
    return torch.from_numpy(np.require(value, requirements=["C", "W"])) if numeric else value


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
            raise WeightsError(
                f"{path} is damaged: {error}. Fetch or save the file again."
            ) from None
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
    import numpy as np
    import torch
    from numpy._core import multiarray

    functions: list[Any] = [multiarray.scalar, multiarray._reconstruct]
    # NumPy 1 wrote them under another module.
    renamed = [(each, f"numpy.core.multiarray.{each.__name__}") for each in functions]
    dtypes = [type(np.dtype(code)) for code in "?bhilqBHILQefdSU"]
    return torch.serialization.safe_globals([*functions, *renamed, np.ndarray, np.dtype, *dtypes])
