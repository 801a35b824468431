"""What a client is told when a request fails: a status and one sentence, no path, no trace."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from daco.monitoring.service.schemas import Detail

RETRY_SECONDS = 1


_MEANINGS = {
    400: "The recording or a parameter cannot be used; the detail says why.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site's page.",
    404: "There is no such thing, or it is no longer kept.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The body is not of a type that can be a recording.",
    422: "A parameter is not of the right form.",
    409: "The recording was scored before under this key and is no longer kept.",
    500: "The service failed on this recording; its log says more.",
    502: "The workers that listened to the recording ended. It may be sent again.",
    503: "The service is busy; try again after `Retry-After` seconds.",
    504: "Listening to the recording took too long. It may be sent again.",
}

_RETRY = (502, 503, 504)  # the same recording may be accepted later


class Problem(Exception):  # noqa: N818 - it is an answer, not an error of the program
    """An answer other than the one that was asked for; `detail` is a sentence for a person."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    @property
    def retry(self) -> bool:
        """The same request may succeed later; what is wrong is not the request."""
        return self.status in _RETRY

    def response(self) -> JSONResponse:
        """The answer."""
        later = {"Retry-After": str(RETRY_SECONDS)} if self.retry else {}
        return JSONResponse({"detail": self.detail}, self.status, later | (self.headers or {}))


def busy(detail: str = "The service is busy. Try again in a moment.") -> Problem:
    """Too much to do: come back later."""
    return Problem(503, detail)


def not_found(what: str) -> Problem:
    """There is no such thing."""
    return Problem(404, what)


def as_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document describes problems with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": Detail} for status in statuses}
