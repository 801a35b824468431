"""Every error a user can cause: the message says what, where, and what to do next."""

from __future__ import annotations


class DacoError(Exception):
    """Root of all errors raised on purpose by daco."""


class InputError(DacoError, ValueError):
    """An argument has a wrong shape, type or value."""


class InputTypeError(InputError, TypeError):
    """An argument holds objects that are not numbers at all."""


class ConfigError(DacoError, ValueError):
    """A configuration name or parameter is not a valid one."""


class NotEnoughClipsError(DacoError, ValueError):
    """A bank or one of its domains holds too few clips for what was asked."""


class DacoWarning(UserWarning):
    """A result is usable but rests on less than the user may think."""
