"""Time with E2B's Python SDK, asynchronous, unmodified, against a real daemon."""
import asyncio
import time
import unittest

from e2b import AsyncSandbox, PtySize, SandboxState

from python.lib import BOOT_ID, TEMPLATE, TICKING, ending, needs_memory, ticks


async def until(what, condition, limit=60.0):
    """Waits for a condition, which may have to be awaited."""
    end = time.time() + limit
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return
        if time.time() > end:
            raise AssertionError(f"waited {limit} s for: {what}")
        await asyncio.sleep(0.05)


class Time(unittest.IsolatedAsyncioTestCase):
    async def create(self, template=TEMPLATE, **options):
        sandbox = await AsyncSandbox.create(template, **{"timeout": 120, **options})
        self.addAsyncCleanup(ending(sandbox))
        return sandbox

    @needs_memory
    async def test_pause_and_connect(self):
        sandbox = await self.create(envs={"COLOUR": "blue"})
        command = await sandbox.commands.run(TICKING, background=True, timeout=0)
        screen = []
        terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda d: screen.append(d.decode()))
        await sandbox.pty.send_stdin(terminal.pid, b'KEPT=here; echo rea""dy\n')
        await until("the shell", lambda: "ready" in "".join(screen))
        await until("its first output", lambda: len(ticks(command.stdout)) > 3)
        self.assertTrue(await sandbox.pause())
        self.assertFalse(await sandbox.pause())
        self.assertFalse(await sandbox.is_running())
        with self.assertRaisesRegex(Exception, "paused"):
            await command.wait()

        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        self.assertEqual((await again.commands.run("echo $COLOUR")).stdout, "blue\n")
        self.assertIn(command.pid, [p.pid for p in await again.commands.list()])
        heard = []
        attached = await again.commands.connect(command.pid, on_stdout=heard.append, timeout=60)
        await until("its output to go on", lambda: len(ticks("".join(heard))) >= 10)
        numbers = ticks("".join(heard))
        self.assertGreater(numbers[0], 3)
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        await attached.disconnect()
        screen.clear()
        await again.pty.connect(terminal.pid, on_data=lambda d: screen.append(d.decode()))
        await again.pty.send_stdin(terminal.pid, b'echo sti""ll-$KEPT\n')
        await until("its variable", lambda: "still-here" in "".join(screen))
        self.assertTrue(await again.commands.kill(command.pid))
        self.assertTrue(await again.pty.kill(terminal.pid))

    @needs_memory
    async def test_files_only(self):
        sandbox = await self.create()
        await sandbox.files.write("kept.txt", "kept")
        boot = (await sandbox.commands.run(BOOT_ID)).stdout
        self.assertTrue(await sandbox.pause(keep_memory=False))
        await sandbox.connect()
        self.assertEqual(await sandbox.files.read("kept.txt"), "kept")
        self.assertNotEqual((await sandbox.commands.run(BOOT_ID)).stdout, boot)

    async def test_auto_pause_and_auto_resume(self):
        sandbox = await self.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
        for generation in ("first", "second"):
            await sandbox.files.write(generation, generation)  # the second one wakes it
            await sandbox.set_timeout(1)

            async def paused():
                return (await sandbox.get_info()).state == SandboxState.PAUSED

            await until("the sandbox to be paused", paused, 30)
        read = await asyncio.gather(*(sandbox.files.read(name) for name in ("first", "second", "first")))
        self.assertEqual(read, ["first", "second", "first"])

    async def test_snapshots_and_forks(self):
        sandbox = await self.create()
        await sandbox.files.write("state.txt", "then")
        snapshot = await sandbox.create_snapshot()
        await sandbox.files.write("state.txt", "now")
        born = await self.create(snapshot.snapshot_id)
        self.assertEqual(await born.files.read("state.txt"), "then")
        page = AsyncSandbox.list_snapshots(sandbox_id=sandbox.sandbox_id)
        self.assertEqual([s.snapshot_id for s in await page.next_items()], [snapshot.snapshot_id])
        self.assertTrue(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id))
        forks = await sandbox.fork(count=2, timeout=60)
        for fork in forks:
            self.assertIsInstance(fork, AsyncSandbox)
            self.addAsyncCleanup(ending(fork))
        self.assertEqual(await asyncio.gather(*(f.files.read("state.txt") for f in forks)), ["now", "now"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
