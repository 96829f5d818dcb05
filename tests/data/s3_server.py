"""An S3 server on this machine (moto), which counts what is read of it and can hold answers back."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import S3FileSystem
from werkzeug.serving import WSGIRequestHandler, make_server

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class QuietHandler(WSGIRequestHandler):
    def log(self, *arguments: Any) -> None:
        pass


class ObjectServer:
    def __init__(self) -> None:
        self.application = DomainDispatcherApplication(create_backend_app)
        self.reads = Counter[str]()  # by path
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=QuietHandler)
        self.address = f"127.0.0.1:{self.server.port}"

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            self.reads[environ["PATH_INFO"]] += 1
            self.may_answer.wait()
        return self.application(environ, start_response)

    def environment(self) -> dict[str, str]:
        return CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://{self.address}"}

    def file_system(self) -> S3FileSystem:
        keys = {"access_key": "test", "secret_key": "test", "allow_bucket_creation": True}
        return S3FileSystem(endpoint_override=self.address, scheme="http", **keys)


@contextmanager
def running_object_server() -> Iterator[ObjectServer]:
    server = ObjectServer()
    thread = threading.Thread(target=server.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.server.shutdown()
        thread.join()
