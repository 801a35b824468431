"""Checks of what users pass in: arrays of embeddings and domain labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError, InputTypeError

Floats = NDArray[np.floating[Any]]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]


def is_whole(value: object, least: int = 0) -> bool:
    """Whether a value is an integer of at least `least`; True and False are not.

    >>> is_whole(np.int64(3)), is_whole(True), is_whole(0, least=1)
    (True, False, False)
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(value >= least)  # type: ignore[operator]


def require_whole(value: object, name: str, least: int = 1) -> int:
    """The value as an int, or an InputError that names it."""
    if not is_whole(value, least):
        raise InputError(
            f"{name} must be a whole number of at least {least}. Got {value!r} instead."
        )
    return int(value)  # type: ignore[call-overload]


def as_embeddings(X: ArrayLike, name: str = "X", *, dim: int | None = None) -> Floats:
    """A C-contiguous (n, D) array of finite float32 or float64, or an InputError.

    float32 and float64 keep their precision; integers and half floats become float64.
    """
    if hasattr(X, "toarray"):
        raise InputError(
            f"{name} is a sparse matrix; embeddings are dense. Convert it with {name}.toarray()."
        )
    try:
        array = np.asarray(X)
    except ValueError:
        raise InputError(
            f"{name} is ragged: its rows have different lengths. Give one embedding of equal "
            "length per clip."
        ) from None
    if array.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {array.dtype}.")
    if array.dtype.kind not in "fiub":
        array = _numeric(array, name)
    if array.ndim and array.shape[0] == 0:
        raise InputError(
            f"Found array {name} with 0 sample(s) (shape={array.shape}) while a minimum of 1 is "
            "required. Give at least one clip."
        )
    if array.ndim != 2:
        rows, what = ("1", "one clip") if array.ndim < 2 else (f"len({name})", "one row per clip")
        raise InputError(
            f"{name} must be a 2-D array (clips, features). Got shape {array.shape} instead. "
            f"Reshape your data: use {name}.reshape({rows}, -1) for {what}."
        )
    if array.shape[1] == 0:
        raise InputError(
            f"Found array {name} with 0 feature(s) (shape={array.shape}) while a minimum of 1 is "
            "required. Give embeddings with at least one value each."
        )
    if dim is not None and array.shape[1] != dim:
        raise InputError(
            f"{name} has {array.shape[1]} features, but the bank was built with {dim}. "
            "Embed both with the same backbone and readout."
        )
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    require_finite(array, name)
    return np.ascontiguousarray(array)


def _numeric(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(f"{name} must be numeric. Got dtype {array.dtype}: {error}.") from None


def require_finite(array: Floats, name: str, first: int = 0) -> None:
    """Raise an InputError that names the first row with NaN or inf, counted from `first`."""
    # One reduction is enough when all is well: NaN and inf survive a sum, overflow is re-checked.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InputError(
            f"{name} contains NaN or inf (infinity) in {int(bad.sum())} of {len(array)} rows, the "
            f"first is row {first + int(np.argmax(bad))}. Drop those clips or embed them again."
        )


def as_float32(array: NDArray[Any], name: str, first: int = 0) -> Float32s:
    """float32 of finite values; a row that overflows is named, counted from `first`."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(array, dtype=np.float32)
    if narrow.dtype != array.dtype and not np.isfinite(narrow).all():
        row = first + int(np.argmax(~np.isfinite(narrow).all(axis=1)))
        raise InputError(f"{name} row {row} is too large for float32. Scale the embeddings.")
    return narrow


def encode_domains(
    domains: Sequence[Hashable] | NDArray[Any] | None, n_clips: int, name: str = "domains"
) -> tuple[tuple[Any, ...], NDArray[np.intp]]:
    """Sorted domain names and each clip's index into them; None means one domain, ``"all"``."""
    if domains is None:
        return ("all",), np.zeros(n_clips, dtype=np.intp)
    array = domains if isinstance(domains, np.ndarray) else np.empty(0)
    if array.dtype.kind in "USiub" and array.shape == (n_clips,):  # common: no loop over clips
        unique, codes = np.unique(array, return_inverse=True)
        return tuple(unique.tolist()), codes.astype(np.intp)
    if not isinstance(domains, Iterable):
        raise InputError(f"{name} must hold one label per clip. Got {domains!r} instead.")
    labels = list(domains) if not isinstance(domains, str) else None
    if labels is None or len(labels) != n_clips:
        got = "one string" if labels is None else f"{len(labels)} labels"
        raise InputError(
            f"{name} must hold one label per clip: there are {n_clips} clips. Got {got} instead."
        )
    labels = [label.item() if isinstance(label, np.generic) else label for label in labels]
    for index, label in enumerate(labels):
        if not isinstance(label, Hashable) or is_missing(label):
            raise InputError(
                f"{name}[{index}] is {label!r}, which names no domain. Give every clip a "
                "domain label, for instance 'source' or 'target'."
            )
    try:
        names = tuple(sorted(set(labels)))
    except TypeError:
        names = tuple(sorted(set(labels), key=lambda label: (type(label).__name__, str(label))))
    index_of = {label: index for index, label in enumerate(names)}
    return names, np.array([index_of[label] for label in labels], dtype=np.intp)


def is_utf8(text: str) -> bool:
    """Whether text can be written: no half of a surrogate pair, as in names of other encodings."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_missing(label: Hashable) -> bool:
    """Whether a label is missing: None, NaN or pandas.NA."""
    try:
        return label is None or bool(label != label)  # NaN is unequal to itself
    except TypeError:  # pandas.NA refuses to answer
        return True


def match_domains(
    domains: Sequence[Hashable] | NDArray[Any], names: tuple[Any, ...], n_clips: int, name: str
) -> NDArray[np.intp]:
    """Indices of test-time domain labels among the bank's domains; unknown ones are named."""
    found, codes = encode_domains(domains, n_clips, name)
    unknown = [label for label in found if label not in names]
    if unknown:
        where = int(np.argmax(codes == found.index(unknown[0])))
        raise InputError(
            f"{name}[{where}] is {unknown[0]!r}, but the bank knows only the domains "
            f"{', '.join(map(repr, names))}. Fit the bank with normal clips of that domain."
        )
    return np.array([names.index(label) for label in found], dtype=np.intp)[codes]


def plain_array(values: ArrayLike, name: str, ndim: int | None) -> NDArray[Any]:
    """The values as an array of `ndim` axes, or an InputError."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"The {name!r} argument must not be ragged.") from None
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"The {name!r} argument must be {ndim}-D. Got shape {array.shape}.")
    return array


def finite_array(values: ArrayLike, name: str, ndim: int | None) -> Float64s:
    """Finite numbers as float64 of `ndim` axes, or an InputError that names the first other."""
    array = plain_array(values, name, ndim)
    if array.dtype.kind not in "biufO":
        raise InputError(f"The {name!r} argument must be numbers. Got {array.dtype} values.")
    try:
        with np.errstate(over="ignore"):  # what does not fit becomes inf, and is rejected below
            floats = array.astype(np.float64, copy=False)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"The {name!r} argument must be numbers: {error}.") from None
    bad = ~np.isfinite(floats)
    if bad.any():
        where = tuple(np.argwhere(bad)[0].tolist())
        raise InputError(
            f"The {name!r} argument must be finite. Got {float(floats[where])!r} at index "
            f"{where[0] if len(where) == 1 else where}. Leave it out or score it again."
        )
    return floats
