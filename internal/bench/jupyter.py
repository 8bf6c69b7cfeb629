"""Measures Jupyter Server with ipykernel: STARTS times from the start of the server to the first
result, and CELLS warm cells. Prints milliseconds and MiB as JSON."""
import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

STARTS, CELLS = int(sys.argv[1]), int(sys.argv[2])
PRELOAD = "import numpy, pandas, matplotlib, matplotlib.pyplot"


def hurry(ws):
    """Acknowledge at once. Jupyter Server leaves Nagle's algorithm on: the second message of a cell waits
    until the first is acknowledged, for which other clients let 40 ms pass."""
    ws.protocol.stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


async def cell(ws, code):
    id = uuid.uuid4().hex
    hurry(ws)
    header = {"msg_id": id, "msg_type": "execute_request", "username": "", "session": "bench", "version": "5.3",
              "date": ""}
    await ws.write_message(json.dumps({
        "header": header, "parent_header": {}, "metadata": {}, "channel": "shell",
        "content": {"code": code, "silent": False, "store_history": True, "user_expressions": {},
                    "allow_stdin": False, "stop_on_error": True}}))
    result = None
    while True:
        m = json.loads(await ws.read_message())
        hurry(ws)
        if m["parent_header"].get("msg_id") != id:
            continue
        if m["msg_type"] == "execute_result":
            result = m["content"]["data"]["text/plain"]
        if m["msg_type"] == "error":
            raise RuntimeError(m["content"])
        if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            return result


async def answer(client, request):
    while True:
        try:
            return await client.fetch(request)
        except OSError:
            await asyncio.sleep(0.005)


def tree(pid):
    yield pid
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in f.read().split():
            yield from tree(int(child))


def memory(pid):
    total = 0
    for p in tree(pid):
        with open(f"/proc/{p}/smaps_rollup") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total / 1024


async def once(cells):
    token, home = secrets.token_hex(16), tempfile.mkdtemp(prefix="carrel-bench-jupyter-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    began = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--ServerApp.port={port}",
         "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": home})
    try:
        client, headers = AsyncHTTPClient(), {"Authorization": f"token {token}"}
        made = await answer(client, HTTPRequest(f"http://127.0.0.1:{port}/api/kernels", method="POST", body="{}",
                                                headers=headers, request_timeout=60))
        kernel = json.loads(made.body)["id"]
        ws = await websocket_connect(HTTPRequest(f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels",
                                                 headers=headers))
        assert await cell(ws, "1+1") == "2"
        first, warm = (time.perf_counter() - began) * 1e3, []
        if not cells:
            return first, warm, None
        await cell(ws, PRELOAD)
        for _ in range(cells):
            start = time.perf_counter()
            await cell(ws, "1+1")
            warm.append((time.perf_counter() - start) * 1e3)
        await asyncio.sleep(5)
        return first, warm, memory(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


out = {"First": [], "Warm": [], "Memory": []}
for i in range(STARTS):
    last = i == STARTS - 1
    first, warm, held = asyncio.run(once(CELLS if last else 0))
    out["First"].append(first)
    if last:
        out["Warm"], out["Memory"] = warm, [held]
print(json.dumps(out))
