"""Time with E2B's Python SDK, synchronous, unmodified, against a real daemon."""
import threading
import time
import unittest
import urllib.error
import urllib.request

from e2b import (
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
)

from python.lib import BOOT_ID, TEMPLATE, TICKING, needs_listener, needs_memory, request, ticks, until


class Case(unittest.TestCase):
    def create(self, template=TEMPLATE, **options):
        sandbox = Sandbox.create(template, **{"timeout": 120, **options})
        self.addCleanup(sandbox.kill)
        return sandbox

    def expire(self, sandbox):
        """Lets the sandbox's timeout pass, and waits until it is shown as paused."""
        sandbox.set_timeout(1)
        until("the sandbox to be paused", lambda: sandbox.get_info().state == SandboxState.PAUSED, 30)


class Pause(Case):
    @needs_memory
    def test_same_machine(self):
        sandbox = self.create(envs={"COLOUR": "blue"})
        sandbox.files.write("kept.txt", "kept")
        boot = sandbox.commands.run(BOOT_ID).stdout
        self.assertTrue(sandbox.pause())
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        self.assertFalse(sandbox.is_running())
        self.assertFalse(sandbox.pause(), "paused already")
        self.assertFalse(Sandbox.pause(sandbox.sandbox_id), "by ID, too")
        with self.assertRaises(SandboxException):
            sandbox.commands.run("true")
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertEqual(again.files.read("kept.txt"), "kept")
        self.assertEqual(again.commands.run("echo $COLOUR").stdout, "blue\n")
        self.assertEqual(again.commands.run(BOOT_ID).stdout, boot)

    def test_is_running_while_it_pauses(self):
        """It raises for anything but 2xx and 502."""
        sandbox = self.create()
        sandbox.files.write("big", "x" * 20_000_000)  # so that a pause takes some time
        pause = threading.Thread(target=sandbox.pause)
        pause.start()
        answers = [sandbox.is_running()]
        while pause.is_alive():
            answers.append(sandbox.is_running())
        pause.join()
        self.assertNotIn((False, True), list(zip(answers, answers[1:])))
        self.assertFalse(sandbox.is_running())

    @needs_memory
    def test_pid_and_output_after_resume(self):
        """What E2B's users lost: the pid was not found after a resume, or its output stalled."""
        sandbox = self.create()
        command = sandbox.commands.run(TICKING, background=True, timeout=0)
        said, ended = [], []

        def listen():
            try:
                for out, _, _ in command:
                    said.append(out or "")
            except Exception as e:
                ended.append(e)

        listening = threading.Thread(target=listen)
        listening.start()
        until("its first output", lambda: len(ticks("".join(said))) > 3)
        last = -1
        for _ in range(2):
            sandbox.pause()
            sandbox.connect()
            self.assertIn(command.pid, [p.pid for p in sandbox.commands.list()])
            heard = ""
            for out, _, _ in sandbox.commands.connect(command.pid, timeout=60):
                heard += out or ""
                if len(ticks(heard)) >= 10:
                    break
            numbers = ticks(heard)
            self.assertGreater(numbers[0], last)
            self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "nothing is left out")
            last = numbers[-1]
        listening.join(60)
        self.assertIn("paused", str(ended[0]), "the stream that was cut says why")
        self.assertTrue(sandbox.commands.kill(command.pid))

    @needs_memory
    def test_terminal(self):
        sandbox = self.create()
        terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
        sandbox.pty.send_stdin(terminal.pid, b'cd /tmp; KEPT=here; echo rea""dy\n')
        self.seen(terminal, "ready")
        sandbox.pause()
        sandbox.connect()
        again = sandbox.pty.connect(terminal.pid)
        sandbox.pty.send_stdin(terminal.pid, b'echo sti""ll-$KEPT-$PWD\n')
        self.seen(again, "still-here-/tmp")
        sandbox.pty.kill(terminal.pid)

    def seen(self, terminal, text):
        screen = ""
        for _, _, data in terminal:
            screen += (data or b"").decode(errors="replace")
            if text in screen:
                return
        self.fail(f"{text!r} is not in {screen!r}")

    @needs_memory
    def test_files_only(self):
        for options in ({"keep_memory": False}, {"mode": "filesystem"}):
            with self.subTest(**options):
                sandbox = self.create()
                sandbox.files.write("kept.txt", "kept")
                sandbox.commands.run("sleep 1000", background=True, timeout=0)
                boot = sandbox.commands.run(BOOT_ID).stdout
                self.assertTrue(sandbox.pause(**options))
                again = Sandbox.connect(sandbox.sandbox_id)
                self.assertEqual(again.files.read("kept.txt"), "kept")
                self.assertEqual(again.commands.list(), [])
                self.assertNotEqual(again.commands.run(BOOT_ID).stdout, boot)

    @needs_memory
    def test_reboot(self):
        sandbox = self.create()
        sandbox.files.write("kept.txt", "kept")
        boot = sandbox.commands.run(BOOT_ID).stdout
        self.assertTrue(sandbox.pause(strict=True))
        again = Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
        self.assertEqual(again.files.read("kept.txt"), "kept")
        self.assertNotEqual(again.commands.run(BOOT_ID).stdout, boot)

    def test_list_and_kill(self):
        batch = {"batch": f"paused-{time.time()}"}
        one, two = self.create(metadata=batch), self.create(metadata=batch)
        one.pause()

        def listed(*states):
            query = SandboxQuery(metadata=batch, state=list(states))
            return {(s.sandbox_id, s.state) for s in Sandbox.list(query=query).next_items()}

        paused, running = (one.sandbox_id, SandboxState.PAUSED), (two.sandbox_id, SandboxState.RUNNING)
        self.assertEqual(listed(SandboxState.PAUSED), {paused})
        self.assertEqual(listed(SandboxState.RUNNING), {running})
        self.assertEqual(listed(SandboxState.PAUSED, SandboxState.RUNNING), {paused, running})
        self.assertTrue(one.kill())
        self.assertFalse(one.kill())
        self.assertEqual(listed(SandboxState.PAUSED), set())
        for gone in (Sandbox.connect, Sandbox.pause, Sandbox.fork, Sandbox.create_snapshot):
            with self.assertRaises(NotFoundException):
                gone(one.sandbox_id)


class Lifecycle(Case):
    def test_timeouts(self):
        sandbox = self.create()

        def left():
            return sandbox.get_info().end_at.timestamp() - time.time()

        sandbox.pause()
        sandbox.connect(timeout=200)
        self.assertTrue(150 < left() <= 201)
        sandbox.connect(timeout=5)
        self.assertGreater(left(), 100, "a shorter timeout does not shorten its life")
        sandbox.connect(timeout=400)
        self.assertGreater(left(), 350, "a longer one prolongs it")

    @needs_memory
    def test_auto_pause_kept_on_reconnect(self):
        """What E2B's users lost: auto-pause, by connecting again."""
        sandbox = self.create(lifecycle={"on_timeout": "pause"})
        boot = sandbox.commands.run(BOOT_ID).stdout
        for generation in ("first", "second"):
            self.assertEqual(sandbox.get_info().lifecycle, {"on_timeout": "pause", "auto_resume": False})
            sandbox.files.write(generation, generation)
            self.expire(sandbox)
            sandbox.connect()
        self.assertEqual(sandbox.files.read("first") + sandbox.files.read("second"), "firstsecond")
        self.assertEqual(sandbox.commands.run(BOOT_ID).stdout, boot)

    @needs_memory
    def test_auto_pause_files_only(self):
        sandbox = self.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
        sandbox.files.write("kept.txt", "kept")
        boot = sandbox.commands.run(BOOT_ID).stdout
        self.expire(sandbox)
        sandbox.connect()
        self.assertEqual(sandbox.files.read("kept.txt"), "kept")
        self.assertNotEqual(sandbox.commands.run(BOOT_ID).stdout, boot)

    @needs_listener
    def test_auto_resume(self):
        sandbox = self.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
        sandbox.files.write("page/index.html", "a page")
        sandbox.commands.run("cd page && exec python3 -m http.server 3000", background=True, timeout=0)

        def page():
            try:
                with urllib.request.urlopen(request(sandbox, 3000)) as response:
                    return response.read()
            except urllib.error.HTTPError:
                return None

        until("the server", page)
        for first, answer in (
            (lambda: sandbox.files.read("page/index.html"), "a page"),
            (lambda: sandbox.commands.run("cat page/index.html").stdout, "a page"),
            (page, b"a page"),
        ):
            self.assertTrue(sandbox.pause())
            self.assertEqual(first(), answer)
            self.assertEqual(sandbox.get_info().state, SandboxState.RUNNING)


class Snapshots(Case):
    def test_snapshot(self):
        sandbox = self.create()
        sandbox.files.write("state.txt", "then")
        command = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        snapshot = sandbox.create_snapshot()
        self.assertEqual(snapshot.names, [])
        sandbox.files.write("state.txt", "now")
        born = self.create(snapshot.snapshot_id)
        self.assertNotEqual(born.sandbox_id, sandbox.sandbox_id)
        self.assertEqual(born.files.read("state.txt"), "then")
        if TEMPLATE != "sim":  # a simulated machine's snapshot is its files
            self.assertIn(command.pid, [p.pid for p in born.commands.list()])
        self.assertEqual(sandbox.files.read("state.txt"), "now")
        second = sandbox.create_snapshot()
        page, seen = sandbox.list_snapshots(limit=1), []
        while page.has_next:
            seen += [s.snapshot_id for s in page.next_items()]
        self.assertEqual(seen, [second.snapshot_id, snapshot.snapshot_id])
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))
        with self.assertRaises(SandboxException):
            self.create(snapshot.snapshot_id)

    @needs_memory
    def test_named_files_only(self):
        name = f"cold-{time.time_ns()}"
        sandbox = self.create()
        sandbox.files.write("state.txt", "then")
        sandbox.commands.run("sleep 1000", background=True, timeout=0)
        boot = sandbox.commands.run(BOOT_ID).stdout
        snapshot = sandbox.create_snapshot(name=name, mode="filesystem")
        self.assertEqual((snapshot.snapshot_id, snapshot.names), (f"{name}:default", [f"{name}:default"]))
        self.assertEqual(sandbox.commands.run(BOOT_ID).stdout, boot, "the source keeps running")
        born = self.create(name)
        self.assertEqual(born.files.read("state.txt"), "then")
        self.assertEqual(born.commands.list(), [])
        self.assertNotEqual(born.commands.run(BOOT_ID).stdout, boot)
        found = Sandbox.list_snapshots(name=name).next_items()
        self.assertEqual([s.snapshot_id for s in found], [f"{name}:default"])
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))

    def test_fork(self):
        sandbox = self.create(envs={"COLOUR": "blue"})
        sandbox.files.write("state.txt", "warm")
        forks = sandbox.fork(count=3, timeout=120)
        for fork in forks:
            self.assertIsInstance(fork, Sandbox)
            self.addCleanup(fork.kill)
        self.assertEqual(len({s.sandbox_id for s in [sandbox, *forks]}), 4)
        for i, fork in enumerate(forks):
            self.assertEqual(fork.commands.run("cat state.txt; echo \" $COLOUR\"").stdout, "warm blue\n")
            fork.files.write("state.txt", str(i))
        self.assertEqual([s.files.read("state.txt") for s in [sandbox, *forks]], ["warm", "0", "1", "2"])
        for count in (0, 101):
            with self.assertRaises(InvalidArgumentException):
                sandbox.fork(count=count)
        with self.assertRaises(CommandExitException):
            forks[0].commands.run("exit 3")


if __name__ == "__main__":
    unittest.main(verbosity=2)
