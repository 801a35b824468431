"""The page at ``/`` and its files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

FOLDER = Path(str(files("daco.monitoring.service") / "page"))

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> FileResponse:
    """The page itself; it holds no data, and asks for a token where one is needed."""
    return FileResponse(FOLDER / "index.html", headers={"Cache-Control": "no-cache"})


def static_files() -> StaticFiles:
    """Its scripts, styles and pictures."""
    return StaticFiles(directory=FOLDER / "static")
