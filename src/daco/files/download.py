"""Downloads with known checksums, by pooch: checkpoints of networks, and any other file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from daco.errors import DownloadError

WEIGHTS_DIR_VARIABLE = "DACO_WEIGHTS_DIR"
RETRIES = 3  # after a connection that broke; pooch waits longer each time

Progress = Callable[[int, int | None], None]
"""Called with the bytes so far and, where known, the bytes in all."""


@dataclass(frozen=True)
class WeightSource:
    """A published checkpoint, with its address, SHA-256 and licence."""

    name: str
    file_name: str
    url: str
    sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """Where the checkpoint is stored."""
        return weights_dir() / self.name / self.file_name


def cache_dir() -> Path:
    """The folder for what can be fetched or computed again."""
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return Path(os.environ.get(variable) or Path.home() / ".cache") / "daco"


def weights_dir() -> Path:
    """Return the folder of checkpoints: ``$DACO_WEIGHTS_DIR``, or a folder in the user's cache."""
    chosen = os.environ.get(WEIGHTS_DIR_VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_dir() / "weights"


def download_weights(source: WeightSource, progress: Progress | None = None) -> Path:
    """Download a checkpoint into ``<weights folder>/<name>/``, unless it is there.

    Parameters
    ----------
    source : WeightSource
    progress : callable, optional
        Called with the bytes so far and, if known, the bytes in all.

    Returns
    -------
    Path
        The verified file.

    Raises
    ------
    DownloadError
        The download failed.
    """
    advice = (
        f"On a computer without internet, fetch {source.file_name} elsewhere and copy it to "
        f"{source.path.parent}, or to the folder that {WEIGHTS_DIR_VARIABLE} names."
    )
    return fetch(source.url, source.path, f"sha256:{source.sha256}", progress, advice)


def fetch(
    url: str, path: Path, checksum: str | None, progress: Progress | None = None, advice: str = ""
) -> Path:
    """Bring a file to `path`, unless it is there with its checksum, ``"sha256:..."`` or ``md5``.

    pooch downloads into a temporary file, which gets its name once the checksum is right. A failure
    is a `DownloadError`, which gives the `advice` where the server cannot be reached.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    files = pooch.create(  # pooch.retrieve does not try again
        path.parent,
        base_url="",
        registry={path.name: checksum},
        urls={path.name: url},
        retry_if_failed=RETRIES,
    )
    bar = _ProgressBar(progress) if progress else False
    try:
        files.fetch(path.name, downloader=pooch.HTTPDownloader(progressbar=bar))
    except requests.ConnectionError:
        raise DownloadError(
            f"Cannot reach {urlsplit(url).hostname} for {url}. Check the network or the proxy "
            f"setting (HTTPS_PROXY). {advice}".rstrip()
        ) from None
    except (OSError, ValueError) as error:  # a status, a wrong checksum, or a full disk
        raise DownloadError(
            f"Fetching {url} into {path.parent} failed ({error}). Nothing of it is used. Check the "
            "address and the folder, or run the same command again later."
        ) from None
    return path


class _ProgressBar:
    """What pooch expects of a progress bar: it passes the bytes so far on."""

    total = 0

    def __init__(self, progress: Progress) -> None:
        self._progress, self._done = progress, 0

    def update(self, size: int) -> None:
        self._done += size
        self._progress(min(self._done, self.total or self._done), self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass
