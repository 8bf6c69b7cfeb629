"""Random operations with E2B's Python SDK, unmodified.

It writes a line of JSON before and after each operation, so that a program outside knows what was
acknowledged. It ends when an operation fails, or when its standard input ends.
"""
import hashlib
import json
import random
import sys
import threading

from e2b import Sandbox

rng = random.Random(int(sys.argv[1]))
boxes = {}


def say(**line):
    print(json.dumps(line), flush=True)


def step():
    running = [i for i, b in boxes.items() if not b["paused"]]
    paused = [i for i, b in boxes.items() if b["paused"]]
    if len(boxes) < 3:
        say(ask="create")
        sandbox = Sandbox.create(timeout=3600)
        boxes[sandbox.sandbox_id] = {"sandbox": sandbox, "paused": False, "snapshots": []}
        say(done="create", id=sandbox.sandbox_id)
        return
    if paused and rng.random() < 0.4:
        i = rng.choice(paused)
        say(ask="resume", id=i)
        boxes[i]["sandbox"] = Sandbox.connect(i, timeout=3600)
        boxes[i]["paused"] = False
        say(done="resume", id=i)
        return
    if not running:
        return
    i = rng.choice(running)
    sandbox = boxes[i]["sandbox"]
    what = rng.choice(["write", "write", "write", "run", "pause", "snapshot", "kill"])
    if what in ("write", "run"):
        name = "f%d" % rng.randrange(5)
        text = "%x" % rng.getrandbits(4 * rng.randrange(1, 40_000))
        if what == "run":
            text = text[:2000]
        say(ask="write", id=i, file=name, sum=hashlib.sha256(text.encode()).hexdigest())
        if what == "write":
            sandbox.files.write("/home/user/chaos/" + name, text)
        else:
            line = "mkdir -p chaos && printf %%s %s > chaos/.copy && mv chaos/.copy chaos/%s" % (text, name)
            sandbox.commands.run(line)
        say(done="write", id=i)
    elif what == "pause":
        say(ask="pause", id=i)
        sandbox.pause()
        boxes[i]["paused"] = True
        say(done="pause", id=i)
    elif what == "snapshot":
        say(ask="snapshot", id=i)
        snapshot = sandbox.create_snapshot()
        say(done="snapshot", id=i, snapshot=snapshot.snapshot_id)
    elif len(boxes) > 2:
        say(ask="kill", id=i)
        sandbox.kill()
        del boxes[i]
        say(done="kill", id=i)


ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
while not ended.is_set():
    try:
        step()
    except Exception as err:  # any: the daemon is killed under it
        say(failed=type(err).__name__ + ": " + str(err))
        break
