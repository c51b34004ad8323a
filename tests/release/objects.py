"""An S3 that keeps what is put, for `sam package`."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Objects:
    """The objects by bucket and key, while its context lasts."""

    def __enter__(self):
        self.kept = kept = {}

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(200 if self.path in kept else 404)

            def do_PUT(self):
                kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200, {"ETag": f'"{hashlib.md5(kept[self.path]).hexdigest()}"'})

            def answer(self, status, headers=()):
                self.send_response(status)
                for name, value in dict(headers, **{"Content-Length": "0"}).items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
