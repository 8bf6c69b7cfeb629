"""E2B's Python SDK, asynchronous, unmodified, against a real daemon."""
import asyncio
import time
import unittest

from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, SandboxQuery, TimeoutException

from python.lib import TEMPLATE, ending


async def until(what, condition, limit=60.0):
    """Waits for a condition."""
    end = time.time() + limit
    while not condition():
        if time.time() > end:
            raise AssertionError(f"waited {limit} s for: {what}")
        await asyncio.sleep(0.05)


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(TEMPLATE, timeout=120)
        self.addAsyncCleanup(ending(self.sandbox))

    async def test_life(self):
        self.assertTrue(await self.sandbox.is_running())
        again = await AsyncSandbox.connect(self.sandbox.sandbox_id)
        self.assertEqual((await again.commands.run("echo same")).stdout, "same\n")
        await self.sandbox.set_timeout(200)
        self.assertTrue(await self.sandbox.kill())
        self.assertFalse(await self.sandbox.is_running())

    async def test_list(self):
        marked = await AsyncSandbox.create(TEMPLATE, metadata={"mark": str(time.time())}, timeout=60)
        self.addAsyncCleanup(ending(marked))
        metadata = (await marked.get_info()).metadata
        page = AsyncSandbox.list(query=SandboxQuery(metadata=metadata))
        self.assertEqual([s.sandbox_id for s in await page.next_items()], [marked.sandbox_id])

    async def test_commands(self):
        result = await self.sandbox.commands.run("echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr), ("out\n", "err\n"))
        with self.assertRaises(CommandExitException):
            await self.sandbox.commands.run("exit 3")
        with self.assertRaises(TimeoutException):
            await self.sandbox.commands.run("sleep 30", timeout=1)
        results = await asyncio.gather(*(self.sandbox.commands.run(f"echo {i}") for i in range(20)))
        self.assertEqual([r.stdout for r in results], [f"{i}\n" for i in range(20)])

    async def test_background(self):
        command = await self.sandbox.commands.run("cat", background=True, stdin=True)
        await self.sandbox.commands.send_stdin(command.pid, "one\n")
        await self.sandbox.commands.close_stdin(command.pid)
        self.assertEqual((await command.wait()).stdout, "one\n")
        ticking = await self.sandbox.commands.run("for i in $(seq 1 20); do echo $i; sleep 0.1; done", background=True)
        await ticking.disconnect()
        again = await self.sandbox.commands.connect(ticking.pid)
        self.assertTrue((await again.wait()).stdout.endswith("20\n"))

    async def test_terminal(self):
        screen = []
        pty = await self.sandbox.pty.create(PtySize(rows=31, cols=101), on_data=lambda d: screen.append(d.decode()))
        await self.sandbox.pty.send_stdin(pty.pid, b"stty size\n")
        await until("the size", lambda: "31 101" in "".join(screen))
        await self.sandbox.pty.resize(pty.pid, PtySize(rows=50, cols=132))
        await self.sandbox.pty.send_stdin(pty.pid, b"stty size\n")
        await until("the new size", lambda: "50 132" in "".join(screen))
        await self.sandbox.pty.send_stdin(pty.pid, b"exit\n")
        await pty.wait()

    async def test_files(self):
        await self.sandbox.files.write("a/b.txt", "text")
        self.assertEqual(await self.sandbox.files.read("a/b.txt"), "text")
        self.assertEqual([e.name for e in await self.sandbox.files.list("a")], ["b.txt"])
        with self.assertRaises(NotFoundException):
            await self.sandbox.files.read("no/such/file")
        await self.sandbox.files.remove("a")
        self.assertFalse(await self.sandbox.files.exists("a"))

    async def test_watch(self):
        await self.sandbox.files.make_dir("watched")
        events = []
        watch = await self.sandbox.files.watch_dir("watched", on_event=events.append, recursive=True)
        await self.sandbox.files.write("watched/sub/new.txt", "x")
        await until("the event", lambda: any(e.name == "sub/new.txt" for e in events))
        await watch.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
