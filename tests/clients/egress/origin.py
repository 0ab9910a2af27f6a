#!/usr/bin/env python3
"""origin.py ADDRESS DIR - what package clients ask for, on ports 80 and 443 of ADDRESS: a Python index, an npm registry, a Debian
archive, a git repository and a plain page. DIR holds cert.pem and key.pem, and repo.git; "ready" is printed once it serves."""
import base64, hashlib, http.server, io, json, os, ssl, subprocess, sys, tarfile, threading, zipfile

address, top = sys.argv[1], sys.argv[2]


def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("tinypkg.py", "hello = 'hello from pip'\n")
        z.writestr("tinypkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n")
        z.writestr("tinypkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("tinypkg-1.0.dist-info/RECORD", "")
    return out.getvalue()


def tarball():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in (("package/package.json", '{"name":"tinypkg","version":"1.0.0","main":"i.js"}'),
                           ("package/i.js", "module.exports = 'hello from npm'\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def deb():
    work = os.path.join(top, "deb")
    os.makedirs(work + "/DEBIAN", exist_ok=True)
    os.makedirs(work + "/usr/share/tinydeb", exist_ok=True)
    with open(work + "/DEBIAN/control", "w") as f:
        f.write("Package: tinydeb\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@origin.test>\nDescription: t\n")
    with open(work + "/usr/share/tinydeb/hello", "w") as f:
        f.write("hello from apt\n")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", work, top + "/tinydeb.deb"], check=True, stdout=subprocess.DEVNULL)
    with open(top + "/tinydeb.deb", "rb") as f:
        return f.read()


W, T, D = wheel(), tarball(), deb()
sha = lambda b: hashlib.sha256(b).hexdigest()
PACKAGES = ("Package: tinydeb\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@origin.test>\nDescription: t\n"
            f"Filename: ./tinydeb_1.0_all.deb\nSize: {len(D)}\nSHA256: {sha(D)}\n").encode()
RELEASE = f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {sha(PACKAGES)} {len(PACKAGES)} Packages\n".encode()
NPM = json.dumps({"name": "tinypkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
    "name": "tinypkg", "version": "1.0.0", "main": "i.js", "dist": {
        "tarball": "https://npm.origin.test/tinypkg/-/tinypkg-1.0.0.tgz", "shasum": hashlib.sha1(T).hexdigest(),
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(T).digest()).decode()}}}}).encode()
FILES = {
    "/hello": b"hello\n",
    "/simple/tinypkg/": f'<a href="/tinypkg-1.0-py3-none-any.whl#sha256={sha(W)}">tinypkg-1.0-py3-none-any.whl</a>'.encode(),
    "/tinypkg-1.0-py3-none-any.whl": W,
    "/tinypkg": NPM,
    "/tinypkg/-/tinypkg-1.0.0.tgz": T,
    "/./Packages": PACKAGES, "/Packages": PACKAGES,
    "/./Release": RELEASE, "/Release": RELEASE,
    "/./tinydeb_1.0_all.deb": D, "/tinydeb_1.0_all.deb": D,
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.split("?")[0]
        body = FILES.get(path)
        if path == "/token":  # what the boundary has added
            body = (self.headers.get("X-Token", "none") + "\n").encode()
        file = os.path.realpath(top + path)
        if body is None and path.startswith("/repo.git/") and file.startswith(top + "/repo.git/") and os.path.isfile(file):
            with open(file, "rb") as f:
                body = f.read()
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html" if path.startswith("/simple") else "application/octet-stream")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *a):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


plain, secure = Server((address, 80), Handler), Server((address, 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(top + "/cert.pem", top + "/key.pem")
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
os.write(1, b"ready\n")  # in one piece: whoever waits for it closes the pipe then (print makes two where Python is unbuffered)
secure.serve_forever()
