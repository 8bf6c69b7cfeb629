"""Holds STREAMS commands open at once from one client, in one sandbox, and hears each to its end."""
import asyncio
import os

from e2b import AsyncSandbox

STREAMS = int(os.environ.get("STREAMS", "200"))
WAIT = "until [ -e /tmp/go ]; do sleep 0.2; done; echo done {}"


async def main():
    sandbox = await AsyncSandbox.create(os.environ.get("TEMPLATE", "base"), timeout=300)
    try:
        handles = await asyncio.gather(
            *(sandbox.commands.run(WAIT.format(i), background=True, timeout=240, request_timeout=120)
              for i in range(STREAMS)))
        running = await sandbox.commands.list(request_timeout=120)
        assert len(running) == STREAMS, f"{len(running)} commands run"
        # The files go over the same connections as the streams that are open.
        await sandbox.files.write("/tmp/go", "now", request_timeout=120)
        results = await asyncio.gather(*(h.wait() for h in handles))
        for i, r in enumerate(results):
            assert r.stdout == f"done {i}\n", f"{i}: {r}"
        print(f"{STREAMS} streams")
    finally:
        await sandbox.kill()


asyncio.run(main())
