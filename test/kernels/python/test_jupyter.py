"""The unmodified jupyter_client, with the provisioner of integrations/jupyter: a kernel in a sandbox."""
import asyncio
import json
import os
import socket
import subprocess
import unittest

from jupyter_client import AsyncKernelManager

CARREL = os.environ["CARREL"]


def carrel(*args):
    return subprocess.run([CARREL, *args], check=True, capture_output=True, text=True).stdout


def sandboxes():
    return {s["id"] for s in json.loads(carrel("--json", "ls"))}


class Jupyter(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.manager = AsyncKernelManager(kernel_name="carrel")
        await self.manager.start_kernel()
        self.addAsyncCleanup(self.manager.shutdown_kernel, now=True)
        self.client = self.manager.client()
        self.client.start_channels()
        self.addCleanup(self.client.stop_channels)
        await self.client.wait_for_ready(timeout=120)

    async def cell(self, code, **options):
        """Run a cell; give the text of its value, what it printed, and its error."""
        out = {"text": None, "stdout": "", "error": None}

        def take(m):
            content = m["content"]
            if m["msg_type"] == "execute_result":
                out["text"] = content["data"]["text/plain"]
            if m["msg_type"] == "stream":
                out[content["name"]] = out.get(content["name"], "") + content["text"]
            if m["msg_type"] == "error":
                out["error"] = content["ename"]

        await self.client.execute_interactive(code, timeout=120, output_hook=take, **options)
        return out

    async def test_kernel(self):
        self.assertEqual((await self.cell("1 + 1"))["text"], "2")
        host = await self.cell("import socket; print(socket.gethostname(), end='')")
        self.assertNotEqual(host["stdout"], socket.gethostname())
        sandbox = self.manager.provisioner.id
        self.assertIn(sandbox, sandboxes())
        self.assertEqual((await self.cell("1/0"))["error"], "ZeroDivisionError")
        await self.cell("variable = 5; open('kept', 'w').write('yes')")
        reply = await self.client.complete("varia", reply=True, timeout=60)
        self.assertIn("variable", reply["content"]["matches"])

        # Input comes from here.
        def answer(m):
            self.client.input("from here")

        self.assertEqual((await self.cell("input()", allow_stdin=True, stdin_hook=answer))["text"], "'from here'")

        # An interrupt ends the cell, and the state stays.
        running = asyncio.ensure_future(self.cell("print('on', flush=True)\nwhile True: pass"))
        await asyncio.sleep(2)
        await self.manager.interrupt_kernel()
        self.assertEqual((await asyncio.wait_for(running, 60))["error"], "KeyboardInterrupt")
        self.assertEqual((await self.cell("variable"))["text"], "5")

        # A restart keeps the sandbox, and its files.
        await self.manager.restart_kernel()
        await self.client.wait_for_ready(timeout=120)
        self.assertEqual((await self.cell("open('kept').read()"))["text"], "'yes'")
        self.assertEqual((await self.cell("variable"))["error"], "NameError")
        self.assertEqual(self.manager.provisioner.id, sandbox)

        # A kernel that dies is seen to be dead.
        self.client.execute("import os; os._exit(3)")
        for _ in range(600):
            if not await self.manager.is_alive():
                break
            await asyncio.sleep(0.1)
        self.assertFalse(await self.manager.is_alive())

        await self.manager.shutdown_kernel(now=True)
        self.assertNotIn(sandbox, sandboxes())


if __name__ == "__main__":
    unittest.main()
