"""Downloads with known checksums, by pooch: checkpoints of networks, and any other file."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from daco.errors import DownloadError, WeightsError
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_file
from daco.version import __version__

WEIGHTS_DIR_VARIABLE = "DACO_WEIGHTS_DIR"
TIMEOUT = 30.0  # seconds without an answer after which a connection counts as broken
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

    def matches(self, file: Path) -> bool:
        """Whether a file is this checkpoint."""
        return file.is_file() and sha256_of_file(file) == self.sha256


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
        f"On a computer without internet, fetch {source.file_name} elsewhere and give it with "
        f"--weights FILE, or put it into the folder that {WEIGHTS_DIR_VARIABLE} names."
    )
    return fetch(source.url, source.path, f"sha256:{source.sha256}", progress, advice)


def install_weights(source: WeightSource, file: Path) -> Path:
    """Copy a checkpoint that was fetched elsewhere into the weights folder, if it is the one."""
    if not source.matches(file):
        raise WeightsError(
            f"{file} is not the published {source.file_name} (sha256:{source.sha256}); nothing was "
            f"installed. Fetch it again from {source.url}."
        )
    source.path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(source.path) as temporary:
        shutil.copyfile(file, temporary)
    return source.path


def fetch(
    url: str, path: Path, checksum: str | None, progress: Progress | None = None, advice: str = ""
) -> Path:
    """Bring a file to `path`, unless it is there with its checksum, ``"sha256:..."`` or ``md5``.

    pooch downloads into a temporary file, which gets its name once the checksum is right.
    """
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    download = pooch.HTTPDownloader(
        progressbar=_ProgressBar(progress) if progress else False,
        headers={"User-Agent": f"daco/{__version__}"},
        timeout=TIMEOUT,
    )
    with _explain_errors(url, advice):
        # As pooch.retrieve, which does not try again.
        files = pooch.create(
            path.parent,
            base_url="",
            registry={path.name: checksum},
            urls={path.name: url},
            retry_if_failed=RETRIES,
        )
        return Path(files.fetch(path.name, downloader=download))


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


@contextlib.contextmanager
def _explain_errors(url: str, advice: str) -> Iterator[None]:
    """Turn the errors of a download into a DownloadError that says what to do."""
    import requests

    try:
        yield
    except requests.ConnectionError:
        raise DownloadError(
            f"Cannot reach {urlsplit(url).hostname} for {url}. Check the network or the proxy "
            f"setting (HTTPS_PROXY). {advice}".rstrip()
        ) from None
    except (requests.RequestException, ValueError) as error:  # a status, or a wrong checksum
        raise DownloadError(
            f"Fetching {url} failed ({error}). Nothing of it is used. Check the address, or run "
            "the same command again later."
        ) from None
    except OSError as error:
        raise DownloadError(
            f"Cannot write {error.filename or url} ({error.strerror or error}). Choose a folder "
            "that is writable and has room."
        ) from None
