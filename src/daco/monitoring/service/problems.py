"""The failures that the service answers with: a status and one sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

RETRY_SECONDS = 1


class Detail(BaseModel):
    """Why a request failed, in a sentence."""

    detail: str = Field(examples=["There is no machine 'press'."])


_MEANINGS = {
    400: "The request cannot be done; `detail` says why.",
    401: "The token is missing or wrong.",
    403: "The role does not allow it, or the request comes from another site's page.",
    404: "It does not exist, or is no longer kept.",
    408: "The body took too long to arrive.",
    409: "It cannot be done now: the alarm is over, or the key was used for another recording.",
    413: "The body is too large.",
    415: "The body is not of a type that can be a recording.",
    422: "A parameter is not of the right form.",
    421: "The service is not known under this host name.",
    429: "Too many wrong tokens came from the address; try again after `Retry-After` seconds.",
    500: "The service failed on this recording; see its log.",
    503: "The service is busy, or the model or the database cannot be used at the moment; try again"
    " after `Retry-After` seconds.",
    504: "Judging the recording took too long. It may be sent again.",
}


class Problem(Exception):  # noqa: N818 - it is an answer, not an error of the program
    """The answer to a request that fails: a status and one sentence, no path, no trace."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    def response(self) -> JSONResponse:
        """The answer."""
        later = {"Retry-After": str(RETRY_SECONDS)} if self.status in (503, 504) else {}
        return JSONResponse({"detail": self.detail}, self.status, later | (self.headers or {}))


def busy(detail: str = "The service is busy. Try again in a moment.") -> Problem:
    """The answer of an overloaded service."""
    return Problem(503, detail)


def not_found(detail: str) -> Problem:
    """The answer for a missing thing."""
    return Problem(404, detail)


def too_large(most: int) -> Problem:
    """The answer to a body of more than `most` bytes."""
    return Problem(413, f"At most {most / 1e6:g} MB are accepted. Cut the recording into clips.")


def in_utc(time: datetime) -> datetime:
    """A time in UTC, which is taken for one without a zone; a Problem where there is none."""
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:  # at the ends of the years 1 and 9999
        raise Problem(422, "There is no such time in UTC.") from None


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document describes problems with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": Detail} for status in statuses}
