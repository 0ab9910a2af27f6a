"""gitserver.py DIR - a git remote over HTTP for unit tests: the bare repositories under DIR, through git http-backend.

The port goes to DIR/port when it listens. Every request is one line of DIR/requests: method, path, user:password or "-".
DIR/away holds how many of the next requests are answered 503.
With DIR/password present, a request without exactly that as Basic credential is answered 401. DIR/refuse-push makes pushes 403.
"""
import base64, http.server, os, subprocess, sys

root = sys.argv[1]


def read(name):
    try:
        return open(os.path.join(root, name)).read()
    except FileNotFoundError:
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        out = b""
        while n := int(self.rfile.readline(), 16):
            out += self.rfile.read(n)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def refuse(self, code, more=()):
        self.send_response(code)
        for k, v in more:
            self.send_header(k, v)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        body = self.body()
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        who = base64.b64decode(text).decode() if kind == "Basic" else "-"
        with open(os.path.join(root, "requests"), "a") as f:
            f.write(f"{self.command} {self.path} {who}\n")
        path, _, query = self.path.partition("?")
        away = int(read("away") or 0)
        if away > 0:
            with open(os.path.join(root, "away"), "w") as f:
                f.write(str(away - 1))
            return self.refuse(503)
        want = read("password")
        if want is not None and who != want:
            return self.refuse(401, [("WWW-Authenticate", 'Basic realm="test"')])
        if read("refuse-push") is not None and "receive-pack" in self.path:
            return self.refuse(403)
        env = {
            "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "test", "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack", "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory", "GIT_CONFIG_VALUE_1": "*",
        }
        out = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        lines = [h.split(": ", 1) for h in head.decode().split("\r\n") if ": " in h]
        status = next((int(v.split()[0]) for k, v in lines if k == "Status"), 200)
        self.send_response(status)
        for k, v in lines:
            if k != "Status":
                self.send_header(k, v)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    do_POST = do_GET

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(root, "port.new"), "w") as f:
    f.write(str(server.server_address[1]))
os.rename(os.path.join(root, "port.new"), os.path.join(root, "port"))
server.serve_forever()
