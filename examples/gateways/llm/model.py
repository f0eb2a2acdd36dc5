"""Stands in for a server of language models: answers with as many tokens as it is asked for, and reports how many it used."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer("text/plain", b"ready\n", {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tokens = asked["max_tokens"]
        usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
        if asked.get("stream"):
            self.stream(["word"] * min(tokens, 3), usage)
        else:
            message = {"choices": [{"message": {"content": "word " * min(tokens, 3)}}], "usage": usage}
            self.answer("application/json", json.dumps(message).encode(), {"x-total-tokens": str(tokens)})

    def answer(self, kind, body, headers):
        self.send_response(200)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, words, usage):
        """Sends server-sent events. The last one before `[DONE]` has the usage."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in words:
            self.event(json.dumps({"choices": [{"delta": {"content": word}}], "usage": None}))
        self.event(json.dumps({"choices": [], "usage": usage}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data):
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", 8081), Model).serve_forever()
