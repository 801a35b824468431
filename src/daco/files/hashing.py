"""SHA-256 of files and bytes."""

from __future__ import annotations

import hashlib
from typing import Any

from daco.files.remote import Location


def sha256_of_file(path: Location) -> str:
    """The SHA-256 of a file's content, in hexadecimal; the file may be remote."""
    file: Any
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_bytes(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal.

    >>> sha256_of_bytes(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()
