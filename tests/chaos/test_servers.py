"""The proxy in front of MinIO."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.processes import wait_until
from tests.chaos.servers import MinioServer, Proxy, Rule

from lakeproof.storage.s3 import s3_client

_SEND = """\
import sys

from lakeproof.settings import S3Settings
from lakeproof.storage.s3 import s3_client

names = ("endpoint_url", "access_key_id", "secret_access_key")
client = s3_client(S3Settings(**dict(zip(names, sys.argv[1:], strict=True))))
client.put_object(Bucket="a-bucket", Key="a/late file", Body=b"late")
"""


@pytest.mark.s3
@pytest.mark.long
def test_a_held_request_arrives_even_if_its_client_has_died(tmp_path: Path) -> None:
    with MinioServer(tmp_path / "minio") as server, Proxy(server.address, tmp_path / "proxy") as proxy:
        client = s3_client(server.minio.settings())
        client.create_bucket(Bucket="a-bucket")
        proxy.enforce(Rule("hold", "^PUT /a-bucket/a/", once=True))
        keys = (server.minio.access_key, server.minio.secret_key)
        sending = subprocess.Popen([sys.executable, "-c", _SEND, proxy.endpoint_url, *keys])
        try:
            assert wait_until(lambda: bool(proxy.struck()), 60)
        finally:
            sending.kill()
            sending.wait()
        assert proxy.struck() == ["PUT /a-bucket/a/late%20file"]
        assert not client.list_objects_v2(Bucket="a-bucket")["KeyCount"]
        proxy.lift()
        assert wait_until(lambda: client.list_objects_v2(Bucket="a-bucket")["KeyCount"] == 1, 60)
        assert client.get_object(Bucket="a-bucket", Key="a/late file")["Body"].read() == b"late"
