"""Routes for sessions, health, metrics and the page."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from daco.monitoring.service import schemas
from daco.monitoring.service.access import COOKIE, SESSION_SECONDS, client_address, session_cookie
from daco.monitoring.service.context import TheService, Viewer, failures

PAGE = Path(str(files("daco.monitoring.service") / "page"))

router = APIRouter(
    tags=["operation"], responses=failures(400, 401, 403, 408, 413, 421, 422, 429, 503)
)


@router.get("/v1/session", response_model=schemas.Session)
async def read_session(service: TheService, who: Viewer) -> Any:
    """Who asks: the name of the token, and its role."""
    return {"name": who.name, "role": who.role, "needs_token": not service.access.is_open}


@router.post("/login", status_code=204, response_class=Response)
async def login(request: Request, service: TheService, body: schemas.Login) -> Response:
    """Exchange a token for a session: a cookie that scripts cannot read."""
    headers = {}
    if not service.access.is_open:
        person = service.access.by_token(body.token, client_address(request))
        secret = service.access.open_session(person)
        headers["Set-Cookie"] = session_cookie(request, secret, SESSION_SECONDS)
    return Response(status_code=204, headers=headers)


@router.post("/logout", status_code=204, response_class=Response)
async def logout(request: Request, service: TheService) -> Response:
    """End the session; its cookie is worth nothing any more."""
    service.access.close_session(request.cookies.get(COOKIE, ""))
    return Response(status_code=204, headers={"Set-Cookie": session_cookie(request, "", 0)})


@router.get(
    "/healthz",
    responses={503: {"model": schemas.Health, "description": "It runs, but cannot judge."}},
)
async def health(service: TheService, response: Response) -> schemas.Health:
    """200 when recordings can be judged and stored; needs no token and reveals nothing else.

    It writes to the database. Any answer means that the process runs: restart it when there is
    none. 503 means that it cannot work now and becomes 200 by itself.
    """
    reason = await service.obstacle()
    response.status_code = 200 if reason is None else 503
    return schemas.Health(live=True, ready=reason is None, reason=reason)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(service: TheService, _: Viewer) -> Response:
    """Numbers for Prometheus: each machine's state, oddness, age and alarms; queues; requests."""
    media_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(service.metrics.text(), media_type=media_type)


@router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """The page; it holds no data, and asks for a token where one is needed."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})
