"""Messages that arrive: mail and chats (Apprise), MQTT and a signed webhook, from one outbox."""

from daco.monitoring.notify.deliver import Notifier, SendResult, receivers, send_test

__all__ = ["Notifier", "SendResult", "receivers", "send_test"]
