"""Webhooks to a real web server: signed, repeated until they arrive, with one key each."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import time

import pytest
from broken_server import unused_port
from receiver import receiving
from service_process import wait_until
from stores import add

from daco.errors import InputError
from daco.monitoring.notify import NotDeliveredError, Webhook, WebhookSender
from daco.monitoring.store import Delivery, Store

DELIVERY = Delivery(1, "key-1", "clip.scored", '{"type": "clip.scored"}', 1)


@pytest.fixture
def store(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/daco.db", events=["clip.scored"]) as opened:
        yield opened


def test_a_request_is_signed_as_standard_webhooks_say():
    """The example of the specification's reference libraries: same secret, same signature."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    delivery = Delivery(1, "msg_p5jXN8AQM9LWM0D4loKWxJek", "test", '{"test": 2432232314}', 1)
    headers = Webhook.parse("https://host/hook", secret).headers(delivery, 1614265330.9)
    assert headers["webhook-id"] == headers["Idempotency-Key"] == delivery.key
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_receiver_can_check_what_it_got():
    with receiving() as receiver:
        Webhook.parse(receiver.url, "a plain secret").send(DELIVERY)
    ((headers, body),) = receiver.accepted
    assert body == DELIVERY.body.encode()
    assert headers["content-type"] == "application/json"
    signed = b".".join([b"key-1", headers["webhook-timestamp"].encode(), body])
    digest = hmac.new(b"a plain secret", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


def test_without_a_secret_nothing_is_signed():
    assert "webhook-signature" not in Webhook.parse("http://host/").headers(DELIVERY, 0)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 410, 429, 500, 503])
def test_everything_but_success_is_a_failure_and_redirects_are_not_followed(status):
    with receiving() as receiver:
        receiver.answer = lambda _: status
        receiver.headers = {"Location": receiver.url, "Retry-After": "7"}
        with pytest.raises(NotDeliveredError, match=str(status)) as caught:
            Webhook.parse(receiver.url).send(DELIVERY)
        assert caught.value.wait == 7.0
        assert len(receiver.requests) == 1


def test_an_address_that_is_silent_or_absent_fails_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(NotDeliveredError, match="timed out"):
            Webhook.parse(url, timeout=0.2).send(DELIVERY)
    with pytest.raises(NotDeliveredError, match="refused"):
        Webhook.parse(f"http://127.0.0.1:{unused_port()}/").send(DELIVERY)


@pytest.mark.parametrize(
    ("url", "secret", "message"),
    [
        ("ftp://host/", None, "http://"),
        ("file:///etc/passwd", None, "http://"),
        ("http://", None, "http://"),
        ("host/hook", None, "http://"),
        ("http://host:port/", None, "http://"),
        ("http://host/a b\r\nX: y", None, "http://"),
        ("http://kim:hunter2@host/", None, "user name or password"),
        ("http://host/", "whsec_not base64", "base64"),
    ],
)
def test_other_addresses_are_refused_without_repeating_secrets(url, secret, message):
    with pytest.raises(InputError, match=message) as caught:
        Webhook.parse(url, secret)
    assert "hunter2" not in str(caught.value)


def test_the_address_and_the_secret_are_never_shown():
    shown = repr(Webhook.parse("https://host/T0KEN/x", "s3cret"))
    assert "T0KEN" not in shown
    assert "s3cret" not in shown


def test_a_message_that_is_always_refused_does_not_hold_up_the_others(store):
    for number in range(5):
        add(store, verdict={"name": f"{number}.wav"})
    with receiving() as receiver:
        bad = []

        def answer(_):
            headers, body = receiver.requests[-1]
            if b"0.wav" in body:
                bad.append(headers["webhook-id"])
                return 400
            return 200

        receiver.answer = answer
        with WebhookSender(store.outbox, Webhook.parse(receiver.url), first_wait=0.02):
            wait_until(lambda: store.outbox.pending() == 1 and len(bad) >= 3)
    assert len(set(bad)) == 1


def test_what_a_killed_courier_had_taken_is_delivered_by_the_next(store):
    add(store)
    taken = store.outbox.take(hold=0.05)  # and then nothing more is heard of it
    with receiving() as receiver, WebhookSender(store.outbox, Webhook.parse(receiver.url)):
        wait_until(lambda: store.outbox.pending() == 0)
    assert [headers["webhook-id"] for headers, _ in receiver.accepted] == [taken.key]
