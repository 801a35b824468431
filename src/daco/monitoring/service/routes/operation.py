"""Health, metrics and sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from daco.monitoring.service.auth import new_session, same_token, session_cookie
from daco.monitoring.service.context import service_of
from daco.monitoring.service.problems import Problem, as_responses
from daco.monitoring.service.schemas import Health, Login

router = APIRouter(tags=["operation"])


@router.get(
    "/healthz",
    summary="Health",
    response_model=Health,
    responses={503: {"model": Health, "description": "It lives, but cannot score; see `reason`."}},
)
async def health(request: Request) -> JSONResponse:
    """200 when recordings can be scored and stored; needs no token and tells nothing else.

    Any answer means that the process lives: restart it when there is none. 503 means that it
    cannot score now, without workers or without its database, and becomes 200 by itself.
    """
    reason = await service_of(request).readiness.obstacle()
    said = {"live": True, "ready": reason is None, "reason": reason}
    return JSONResponse(said, 200 if reason is None else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **as_responses(401)},
)
async def metrics(request: Request) -> Response:
    """Requests, latencies, queues, workers, clips."""
    text = service_of(request).metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post(
    "/login",
    summary="Open a session",
    status_code=204,
    response_class=Response,
    responses=as_responses(401, 403),
)
async def login(request: Request, said: Login) -> Response:
    """Exchange the token for a cookie that scripts cannot read."""
    token = service_of(request).settings.token
    if token is None:
        return Response(status_code=204)
    if not same_token(said.token, token):
        raise Problem(401, "The token is missing or wrong.")
    cookie = session_cookie(new_session(token), secure=request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.post(
    "/logout",
    summary="End the session",
    status_code=204,
    response_class=Response,
    responses=as_responses(401, 403),
)
async def logout(request: Request) -> Response:
    """Have the browser forget the cookie."""
    cookie = session_cookie("", secure=request.url.scheme == "https", seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": cookie})
