"""daco notify: receivers, what waits for them, and test messages."""

from __future__ import annotations

from command_line import refused, run, said
from receiver import receiving
from service_process import write_plant
from stores import add, opened


def test_a_test_message_is_sent_and_a_failure_has_an_exit_code(tmp_path):
    with receiving() as server:
        plant = write_plant(tmp_path, {"press": {}}, notify={"webhook": server.url})
        assert "the webhook at 127.0.0.1: sent" in said("notify", plant, "--test")
        assert b"This is a test." in server.accepted[0][1]
        server.answer = lambda _: 404
        assert "NOT SENT: answered 404" in said("notify", plant, "--test", code=3)


def test_without_receivers_it_says_where_to_add_them(tmp_path):
    plant = write_plant(tmp_path, {"press": {}})
    assert "[notify]" in str(refused("notify", plant, "--test"))
    assert "nobody gets messages" in said("notify", plant)


def test_refused_messages_are_listed_and_sent_again(tmp_path):
    plant = write_plant(tmp_path, {"press": {}}, notify={"webhook": "http://127.0.0.1/"})
    with opened(f"sqlite:///{tmp_path}/daco.db", "every", ("webhook",)) as store:
        add(store, anomalous=True)
        store.outbox.refuse(store.outbox.take("webhook", 60), "answered 410")
        assert "alarm.opened: the webhook at 127.0.0.1 answered 410" in said("notify", plant)
        assert "will be sent again" in run("notify", plant, "--resend").stdout
        assert store.outbox.refused() == []
