"""What lives in the sandbox of TestEverythingSurvives: MEMORY_MB of memory, a database in
the middle of a transaction, a web server and its client on one kept connection. It
answers questions on standard input, one line each."""
import hashlib
import http.client
import http.server
import os
import random
import sqlite3
import sys
import threading

SIZE = int(os.environ["MEMORY_MB"]) << 20
memory = bytearray(random.Random(7).randbytes(SIZE))

db = sqlite3.connect("/home/user/live.db", isolation_level=None, check_same_thread=False)
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB)")
db.execute("INSERT INTO t VALUES (0, 'committed')")
db.execute("BEGIN IMMEDIATE")
for n in range(1, 1001):
    db.execute("INSERT INTO t VALUES (?, ?)", (n, hashlib.sha256(b"%d" % n).digest()))

deleted = open("/home/user/deleted", "w+b")  # open, but without a name
deleted.write(b"nobody else can see this" * 1000)
deleted.flush()
os.unlink("/home/user/deleted")


class Counter(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.served = 0  # on this connection

    def do_GET(self):
        self.served += 1
        body = b"%d" % self.served
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Counter)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = http.client.HTTPConnection("127.0.0.1", 8123, timeout=60)


def ask_server():
    client.request("GET", "/")
    return client.getresponse().read().decode()


def state():
    rows = hashlib.sha256()
    for row in db.execute("SELECT n, v FROM t ORDER BY n"):
        rows.update(repr(row).encode())
    other = sqlite3.connect("/home/user/live.db")
    seen = other.execute("SELECT count(*) FROM t").fetchone()[0]
    other.close()
    deleted.seek(0)
    return " ".join([
        hashlib.sha256(memory).hexdigest(), rows.hexdigest(), "inside=%d" % db.in_transaction, "outside=%d" % seen,
        hashlib.sha256(deleted.read()).hexdigest(), "env=" + os.environ.get("WITNESS", ""), "cwd=" + os.getcwd(),
    ])


print("ready", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "state":
        print("state", state(), flush=True)
    elif word == "web":
        print("web", ask_server(), flush=True)
    elif word == "spoil":  # what a rollback must undo
        memory[:1 << 20] = bytes(1 << 20)
        db.execute("INSERT INTO t VALUES (5000, 'spoilt')")
        db.execute("COMMIT")
        os.environ["WITNESS"] = "spoilt"
        print("spoil done", flush=True)
