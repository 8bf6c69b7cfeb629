"""A process with much to lose. It answers one command per line on port 7000."""
import hashlib, mmap, os, pty, socket, sqlite3, subprocess, sys, threading, time, uuid

megabytes, files = int(sys.argv[1]), int(sys.argv[2])

# A heap that can't be made again.
heap = [os.urandom(1 << 20) for _ in range(megabytes)]
def heap_hash():
    h = hashlib.sha256()
    for block in heap:
        h.update(block)
    return h.hexdigest()
want_heap = heap_hash()

# A database in the middle of a transaction.
os.makedirs("/root/state", exist_ok=True)
db = sqlite3.connect("/root/state/db", check_same_thread=False, isolation_level=None)
db.execute("create table t (n integer)")
db.execute("begin")
db.executemany("insert into t values (?)", [(i,) for i in range(1000)])

# Files.
def files_hash():
    h = hashlib.sha256()
    for i in range(files):
        with open("/root/state/f/%d" % i, "rb") as f:
            h.update(f.read())
    return h.hexdigest()
os.makedirs("/root/state/f")
for i in range(files):
    with open("/root/state/f/%d" % i, "wb") as f:
        f.write(b"file %d\n" % i)
want_files = files_hash()

# A file that has no name any more, and one that is mapped.
nameless = open("/root/state/nameless", "w+b")
nameless.write(b"nameless")
nameless.flush()
os.unlink("/root/state/nameless")
with open("/root/state/mapped", "w+b") as f:
    f.write(b"m" * 8192)
    f.flush()
    mapped = mmap.mmap(f.fileno(), 8192)

# Loopback: a server and a client that stay connected.
server = socket.create_server(("127.0.0.1", 0))
inner = socket.create_connection(server.getsockname())
other, _ = server.accept()

# A terminal with a shell, and a shell with a job.
leader, follower = pty.openpty()
shell = subprocess.Popen(["/bin/sh"], stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
job = subprocess.Popen(["/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /root/state/job.new; mv /root/state/job.new /root/state/job; sleep 0.02; done & wait"])
piped = os.pipe()
os.write(piped[1], b"in the pipe")

outside = []  # what became of connections from outside

def job_count():
    for _ in range(200):
        try:
            return int(open("/root/state/job").read())
        except (OSError, ValueError):
            time.sleep(0.01)
    raise Exception("no job")

def check():
    assert heap_hash() == want_heap, "heap"
    assert files_hash() == want_files, "files"
    assert db.in_transaction and db.execute("select count(*) from t").fetchone()[0] == 1000, "transaction"
    nameless.seek(0)
    assert nameless.read() == b"nameless", "nameless"
    assert mapped[:4] == b"mmmm", "mapped"
    for a, b in (inner, other), (other, inner):
        a.sendall(b"over loopback")
        assert b.recv(100) == b"over loopback", "loopback"
    os.write(leader, b"echo $((20+22))x\n")
    got, end = b"", time.time() + 20
    while b"42x" not in got and time.time() < end:
        got += os.read(leader, 1000)
    assert b"42x" in got, "terminal"
    was = job_count()
    end = time.time() + 20
    while job_count() == was and time.time() < end:
        time.sleep(0.01)
    assert job_count() != was, "job"
    return "ok"

def commit():
    db.execute("commit")
    n = db.execute("select count(*) from t").fetchone()[0]
    db.execute("begin")
    return "%d %s" % (n, db.execute("pragma integrity_check").fetchone()[0])

def random():
    return open("/proc/sys/kernel/random/uuid").read().strip() + " " + os.urandom(16).hex()

def clock():
    return "%f %s" % (time.time(), open("/proc/uptime").read().split()[0])

def pipe():
    return os.read(piped[0], 100).decode()

def boot():
    try:
        return open("/proc/sys/kernel/random/boot_id").read().strip()
    except OSError as e:
        return "no " + str(e)

def ends():
    return ",".join(outside)

commands = {f.__name__: f for f in (check, commit, random, clock, pipe, boot, ends)}

def serve(conn):
    try:
        for line in conn.makefile():
            try:
                answer = commands[line.strip()]()
            except Exception as e:
                answer = "failed: %r" % e
            conn.sendall((str(answer) + "\n").encode())
        outside.append("end")
    except OSError as e:
        outside.append(os.strerror(e.errno) if e.errno else "error")

door = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    conn, _ = door.accept()
    threading.Thread(target=serve, args=(conn,), daemon=True).start()
