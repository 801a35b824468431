"""SHA-256 of files and bytes."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from daco.files.remote import Location, explain_errors


def sha256_of_file(path: Location) -> str:
    """Compute the SHA-256 of a local or remote file, in hexadecimal."""
    file: Any
    with explain_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_bytes(data: bytes) -> str:
    """Compute the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def is_sha256(text: object) -> bool:
    """Whether a value is a SHA-256 in lower-case hexadecimal."""
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None
