"""Spectrograms, drawn by the workers when they are asked for and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from daco.monitoring.service.pool import OverloadedError, Pool
from daco.monitoring.service.problems import Problem, busy, not_found
from daco.monitoring.service.processes import WorkerLostError

KEPT = 128
MOST_WAITING = 16

_Key = tuple[str, int, str, int]


class Gallery:
    """One picture is drawn at a time, so that looking takes nothing from scoring."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def spectrogram(self, path: Path, *, theme: str, sample_rate: int) -> bytes:
        """The PNG of a recording on disk; a Problem where it cannot be drawn."""
        try:
            key = (str(path), path.stat().st_mtime_ns, theme, sample_rate)
        except OSError:
            raise not_found("The recording is no longer there.") from None
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= MOST_WAITING:
            raise busy()
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._kept:
                    self._keep(key, await self._draw(path, theme, sample_rate))
                return self._kept[key]
        finally:
            self._waiting -= 1

    async def _draw(self, path: Path, theme: str, sample_rate: int) -> bytes:
        job = {"job": "picture", "path": str(path), "theme": theme, "sample_rate": sample_rate}
        try:
            said, png = await self._pool.do(job)
        except OverloadedError:
            raise busy() from None
        except WorkerLostError:
            raise not_found("There is no picture: drawing it took too long.") from None
        if not png:
            raise Problem(404, f"There is no picture: {said.get('error', 'drawing it failed.')}")
        return png

    def _keep(self, key: _Key, png: bytes) -> None:
        self._kept[key] = png
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
