"""What every test file needs."""
import json
import os
import re
import time
import unittest
import urllib.request

TEMPLATE = os.environ.get("TEMPLATE", "base")
TICKING = "i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.1; done"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def until(what, condition, limit=60.0):
    """Waits for a condition and returns its value."""
    end = time.time() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.time() > end:
            raise AssertionError(f"waited {limit} s for: {what}")
        time.sleep(0.05)


# What simulated sandboxes have not.
needs_memory = unittest.skipIf(TEMPLATE == "sim", "sim keeps files, not memory")
needs_listener = unittest.skipIf(TEMPLATE == "sim", "nothing listens in sim")


def ticks(text):
    """The numbers that a ticking command has said."""
    return [int(n) for n in re.findall(r"tick (\d+)\n", text)]


def request(sandbox, port):
    """A request to a port of the sandbox, the way a browser or a webhook would make it."""
    if "E2B_DOMAIN" in os.environ:
        return urllib.request.Request(f"https://{sandbox.get_host(port)}/")
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    return urllib.request.Request(os.environ["E2B_SANDBOX_URL"], headers=headers)


def carrel(method, path, body=None):
    """A call of the daemon's own API, with the SDK's key."""
    base = os.environ.get("E2B_API_URL") or "https://api." + os.environ["E2B_DOMAIN"]
    call = urllib.request.Request(
        base + "/carrel/v1" + path, method=method, data=body and json.dumps(body).encode(),
        headers={"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=60) as answer:
        return json.load(answer)


def ending(sandbox):
    """What kills an asynchronous sandbox after a test. The SDK's own kill is a method
    and a class method at once, which unittest does not take for a coroutine's function."""

    async def end():
        await sandbox.kill()

    return end
