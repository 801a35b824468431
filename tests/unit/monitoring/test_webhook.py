"""The signed webhook: headers, answers that are final, addresses that are refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from datetime import UTC, datetime

import pytest
from receiver import receiving

from daco.errors import InputError
from daco.monitoring.notify.messages import Message
from daco.monitoring.notify.receiver import NotDeliveredError, RefusedError, Webhook
from daco.monitoring.store import Delivery

DELIVERY = Delivery(1, "key-1", "webhook", "clip.scored", {"type": "ü"}, datetime.now(UTC), 1)
WORDS = Message("title", "text")


def test_a_request_is_signed_as_standard_webhooks_say():
    """The example of the specification's reference libraries: same secret, same signature."""
    webhook = Webhook("https://host/hook", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    key = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    headers = webhook.headers(key, b'{"test": 2432232314}', 1614265330.9)
    assert headers["webhook-id"] == headers["Idempotency-Key"] == key
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert "webhook-signature" not in Webhook("http://host/").headers(key, b"", 0)


def test_a_receiver_can_check_what_it_got():
    with receiving() as receiver:
        Webhook(receiver.url, "a plain secret").send(DELIVERY, WORDS)
    ((headers, body),) = receiver.accepted
    assert json.loads(body) == {"type": "ü"}
    assert headers["content-type"] == "application/json"
    signed = b".".join([b"key-1", headers["webhook-timestamp"].encode(), body])
    digest = hmac.new(b"a plain secret", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


@pytest.mark.parametrize(
    ("status", "final"),
    [
        (status, status in (400, 401, 404, 410))
        for status in (301, 307, 400, 401, 404, 410, 408, 425, 429, 500, 503)
    ],
)
def test_answers_are_final_or_temporary_and_redirects_are_not_followed(status, final):
    with receiving() as receiver:
        receiver.answer = lambda _: status
        receiver.headers = {"Location": receiver.url, "Retry-After": "7"}
        with pytest.raises(
            RefusedError if final else NotDeliveredError, match=str(status)
        ) as caught:
            Webhook(receiver.url).send(DELIVERY, WORDS)
        assert final or caught.value.wait == 7.0
        assert len(receiver.requests) == 1


def test_an_address_that_is_silent_fails_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(NotDeliveredError, match="timed out"):
            Webhook(url, timeout=0.2).send(DELIVERY, WORDS)


def test_a_secret_that_is_not_base64_is_refused_without_repeating_it():
    with pytest.raises(InputError, match="base64") as caught:
        Webhook("http://host/", "whsec_hunter2 x")
    assert "hunter2" not in str(caught.value)
