"""A real S3 over HTTP on this computer, filled and emptied by the client of Amazon."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

_NUMBERS = itertools.count()


class ObjectStore:
    """One bucket of a server; `uri` names places in it."""

    def __init__(self, host: str, client: object) -> None:
        self.host, self.client = host, client
        self.bucket = f"plant-{next(_NUMBERS)}"
        client.create_bucket(Bucket=self.bucket)

    def uri(self, key: str = "", bucket: str | None = None) -> str:
        slash = "/" if key else ""
        return f"s3://{bucket or self.bucket}{slash}{key}"

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def put_tree(self, folder: Path, key: str) -> str:
        """Every file of a local folder; the URI of what it became."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return self.uri(key)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def keys(self, prefix: str = "") -> list[str]:
        """All keys but those that stand for empty folders."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        keys = [each["Key"] for each in found.get("Contents", [])]
        return [key for key in keys if not key.endswith("/")]

    def require_credentials(self, yes: bool) -> None:
        """Whether the server from now on refuses whoever has no right, as Amazon's does."""
        url = f"http://{self.host}/moto-api/reset-auth"
        count = b"0" if yes else b"1000000000"
        request = urllib.request.Request(url, data=count, headers={"Content-Type": "text/plain"})
        with urllib.request.urlopen(request) as answer:
            json.load(answer)


@contextlib.contextmanager
def object_server() -> Iterator[tuple[str, object]]:
    """Host and port of a server that the environment names, and a client of it."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    pytest.importorskip("upath", reason="universal_pathlib is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        address, port = running.get_host_and_port()
        host = f"{address}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}",
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        with environment(
            AWS_ACCESS_KEY_ID="testing",
            AWS_SECRET_ACCESS_KEY="testing",
            AWS_EC2_METADATA_DISABLED="true",
            AWS_ENDPOINT_URL=f"http://{host}",
        ):
            yield host, client
        client.close()
    finally:
        running.stop()


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Variables of the environment, set or removed, that the clients of stores see."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield
        s3fs.S3FileSystem.clear_instance_cache()


def unreachable() -> dict[str, str]:
    """The environment of a server that does not answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_MAX_ATTEMPTS": "1"}
