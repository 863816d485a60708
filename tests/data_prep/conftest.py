"""Downloads of tests come from this machine and stay in a folder of the test."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest


@pytest.fixture(autouse=True)
def download_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("NMT_CACHE", str(folder))
    return folder


class Server:
    """An HTTP server of this machine.

    ``answers`` has a list of (status, body, length, headers) for each path; the length None is not
    said.
    """

    def __init__(self):
        self.answers = {}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                answers = outer.answers[self.path]
                status, body, length, *headers = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self):
                status, _, length, *_ = outer.answers[self.path][0]
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def add(self, path, *bodies):
        """Answer ``path`` with one body after the other, the last one again and again."""
        answers = [b if isinstance(b, tuple) else (200, b, len(b)) for b in bodies]
        self.answers[path] = answers
        return f"http://127.0.0.1:{self.http.server_port}{path}"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)  # between two attempts
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()
