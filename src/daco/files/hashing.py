"""SHA-256 of files and bytes."""

from __future__ import annotations

import hashlib
import os


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_bytes(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal.

    >>> sha256_of_bytes(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()
