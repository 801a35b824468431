"""Errors that users can cause; each message states the problem and what to do next."""

from __future__ import annotations

from typing import Any


class DacoError(Exception):
    """Root of all errors raised on purpose by daco.

    Parameters
    ----------
    reason : str
        The problem, and what to do next.
    path : path or str, optional
        The file; the message then begins with it.

    Attributes
    ----------
    reason : str
        The message without the path.
    path : path, str or None

    Examples
    --------
    >>> from daco.errors import AudioError
    >>> error = AudioError("the file is empty.", path="fan/a.wav")
    >>> str(error), error.reason, error.path
    ('fan/a.wav: the file is empty.', 'the file is empty.', 'fan/a.wav')
    """

    reason: str
    path: Any = None

    def __init__(self, reason: object = "", *, path: Any = None) -> None:
        super().__init__(str(reason) if path is None else f"{path}: {reason}")
        self.reason = str(reason)
        self.path = path


class InputError(DacoError, ValueError):
    """An argument has a wrong shape, type or value."""


class InputTypeError(InputError, TypeError):
    """An argument holds objects that are not numbers at all."""


class ConfigError(DacoError, ValueError):
    """A configuration name or parameter is not a valid one."""


class NotEnoughClipsError(DacoError, ValueError):
    """A bank or one of its domains has too few clips for the request."""


class AudioError(DacoError, ValueError):
    """A recording cannot be used; the message names the file and the reason."""


class DataError(DacoError, ValueError):
    """A data set, manifest or embedding table on disk is missing, damaged or inconsistent."""


class ModelError(DacoError, ValueError):
    """A model file is damaged, is not a model, or does not fit its use."""


class WeightsError(DacoError, ValueError):
    """A checkpoint is missing, has a wrong hash, or does not fit the network."""


class DownloadError(DacoError, OSError):
    """A download failed; nothing of the file that arrived is used."""


class MissingExtraError(DacoError, ImportError):
    """An optional dependency is not installed; the message has the pip command."""


class DacoWarning(UserWarning):
    """A result is usable but rests on less than the user may think.

    Examples
    --------
    >>> import warnings, daco
    >>> warnings.simplefilter("ignore", daco.DacoWarning)
    """


def warn(sentence: str) -> None:
    """Warn at the user's line that led here, in the main process only."""
    import sys
    import warnings
    from multiprocessing import parent_process

    if parent_process() is not None:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].startswith(("daco.", "sklearn.")):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, DacoWarning, stacklevel=level)
