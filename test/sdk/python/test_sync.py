"""E2B's Python SDK, synchronous, unmodified, against a real daemon."""
import hashlib
import os
import time
import unittest
import urllib.error
import urllib.request

from e2b import (
    AuthenticationException,
    CommandExitException,
    FilesystemEventType,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

from python.lib import TEMPLATE, until


class Case(unittest.TestCase):
    """A test class with one sandbox for all its tests."""

    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(TEMPLATE, timeout=120)
        cls.addClassCleanup(cls.sandbox.kill)


class Life(Case):
    def test_info(self):
        info = self.sandbox.get_info()
        self.assertEqual(info.sandbox_id, self.sandbox.sandbox_id)
        self.assertEqual(info.state, SandboxState.RUNNING)
        self.assertTrue(self.sandbox.is_running())

    def test_create_kill(self):
        sandbox = Sandbox.create(TEMPLATE, metadata={"n": "1"}, envs={"COLOUR": "blue"}, timeout=60)
        self.assertEqual(sandbox.commands.run("echo $COLOUR").stdout, "blue\n")
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        self.assertFalse(Sandbox.kill(sandbox.sandbox_id))

    def test_no_gateway(self):
        metadata = {"gateway": str(time.time())}
        with self.assertRaisesRegex(SandboxException, "Failed to start MCP gateway"):
            Sandbox.create(TEMPLATE, metadata=metadata, mcp={"any": {}})
        self.assertEqual(Sandbox.list(query=SandboxQuery(metadata=metadata)).next_items(), [])

    def test_connect(self):
        self.sandbox.files.write("kept", "kept")
        self.assertEqual(Sandbox.connect(self.sandbox.sandbox_id).files.read("kept"), "kept")
        with self.assertRaises(SandboxException):
            Sandbox.connect("iaaaaaaaaaaaaaaaaaaaa")

    def test_timeout(self):
        sandbox = Sandbox.create(TEMPLATE, timeout=60)
        self.addCleanup(sandbox.kill)
        sandbox.set_timeout(1)
        until("the sandbox to expire", lambda: not sandbox.is_running(), 15)
        with self.assertRaises((TimeoutException, SandboxException)):
            sandbox.commands.run("true")

    def test_list(self):
        odd = f"k & = % + ä {time.time()}"
        sandbox = Sandbox.create(TEMPLATE, metadata={"odd": odd}, timeout=60)
        self.addCleanup(sandbox.kill)
        page = Sandbox.list(query=SandboxQuery(metadata={"odd": odd}))
        self.assertEqual([s.sandbox_id for s in page.next_items()], [sandbox.sandbox_id])
        self.assertFalse(page.has_next)

    def test_pages(self):
        batch = str(time.time())
        ids = []
        for _ in range(3):
            sandbox = Sandbox.create(TEMPLATE, metadata={"batch": batch}, timeout=60)
            self.addCleanup(sandbox.kill)
            ids.append(sandbox.sandbox_id)
        page, seen = Sandbox.list(query=SandboxQuery(metadata={"batch": batch}), limit=2), []
        while page.has_next:
            seen += [s.sandbox_id for s in page.next_items()]
        self.assertEqual(seen, ids[::-1])

    def test_metrics(self):
        metrics = until("metrics", lambda: self.sandbox.get_metrics())
        self.assertGreater(metrics[0].mem_total, 0)

    def test_wrong_key(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create(TEMPLATE, api_key="e2b_" + "0" * 40)


class Commands(Case):
    def test_run(self):
        result = self.sandbox.commands.run("echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0))
        with self.assertRaises(CommandExitException) as caught:
            self.sandbox.commands.run("echo partial; exit 42")
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (42, "partial\n"))

    def test_streaming(self):
        seen = []
        self.sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.3; done", on_stdout=lambda s: seen.append((s, time.time())))
        self.assertEqual("".join(s for s, _ in seen), "1\n2\n3\n")
        self.assertGreater(seen[-1][1] - seen[0][1], 0.4)

    def test_surroundings(self):
        run = self.sandbox.commands.run
        self.assertEqual(run("echo $A", envs={"A": "two words"}).stdout, "two words\n")
        self.assertEqual(run("pwd", cwd="/tmp").stdout, "/tmp\n")
        self.assertEqual(run("whoami").stdout, "user\n")
        self.assertEqual(run("whoami", user="root").stdout, "root\n")
        with self.assertRaises(Exception):
            run("true", user="nobody-by-this-name")

    def test_stdin(self):
        command = self.sandbox.commands.run("cat", background=True, stdin=True)
        self.sandbox.commands.send_stdin(command.pid, "one\n")
        self.sandbox.commands.stream_input(command.pid, ["two\n", "three\n"])
        self.sandbox.commands.close_stdin(command.pid)
        self.assertEqual(command.wait().stdout, "one\ntwo\nthree\n")
        self.assertEqual(self.sandbox.commands.run("cat; echo done").stdout, "done\n")

    def test_background(self):
        command = self.sandbox.commands.run("sleep 100", background=True)
        self.assertIn(command.pid, [p.pid for p in self.sandbox.commands.list()])
        self.assertTrue(command.kill())
        with self.assertRaises(CommandExitException):
            command.wait()
        self.assertFalse(self.sandbox.commands.kill(command.pid))

    def test_reconnect(self):
        first = self.sandbox.commands.run("for i in $(seq 1 20); do echo tick $i; sleep 0.1; done; echo end", background=True)
        first.disconnect()
        time.sleep(0.5)
        self.assertTrue(self.sandbox.commands.connect(first.pid).wait().stdout.endswith("tick 20\nend\n"))

    def test_timeout(self):
        started = time.time()
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 30", timeout=1)
        self.assertLess(time.time() - started, 10)

    def test_big_output(self):
        self.assertEqual(len(self.sandbox.commands.run("seq 1 400000").stdout), 2688895)


class Terminal(Case):
    def test_terminal(self):
        pty = self.sandbox.pty.create(PtySize(rows=31, cols=101))
        self.sandbox.pty.send_stdin(pty.pid, b"stty size; echo mark-$((6*7))\n")
        screen = ""
        for _, _, data in pty:
            screen += (data or b"").decode()
            if "mark-42" in screen:
                break
        self.assertIn("31 101", screen)
        self.sandbox.pty.resize(pty.pid, PtySize(rows=50, cols=132))
        again = self.sandbox.pty.connect(pty.pid)
        self.sandbox.pty.send_stdin(pty.pid, b"stty size; exit\n")
        screen = ""
        try:
            again.wait(on_pty=lambda d: None if screen is None else None)
        except CommandExitException as e:
            self.assertEqual(e.exit_code, 0)


class Files(Case):
    def test_write_read(self):
        info = self.sandbox.files.write("deep/er/a.txt", "text")
        self.assertEqual((info.path, info.name), ("/home/user/deep/er/a.txt", "a.txt"))
        self.assertEqual(self.sandbox.files.read("deep/er/a.txt"), "text")
        data = os.urandom(100_000)
        self.sandbox.files.write("data.bin", data)
        self.assertEqual(bytes(self.sandbox.files.read("data.bin", format="bytes")), data)
        self.assertEqual(b"".join(self.sandbox.files.read("data.bin", format="stream")), data)

    def test_many(self):
        infos = self.sandbox.files.write_files([{"path": f"many/{i}", "data": str(i)} for i in range(20)])
        self.assertEqual(len(infos), 20)
        self.assertEqual(self.sandbox.files.read("many/19"), "19")

    def test_tree(self):
        self.assertTrue(self.sandbox.files.make_dir("tree/one"))
        self.assertFalse(self.sandbox.files.make_dir("tree/one"))
        self.sandbox.files.write("tree/one/leaf", "x")
        self.assertEqual([e.name for e in self.sandbox.files.list("tree")], ["one"])
        self.assertEqual(len(self.sandbox.files.list("tree", depth=2)), 2)
        self.sandbox.files.rename("tree/one/leaf", "tree/moved")
        self.assertTrue(self.sandbox.files.exists("tree/moved"))
        self.sandbox.files.remove("tree")
        self.assertFalse(self.sandbox.files.exists("tree"))

    def test_missing(self):
        with self.assertRaises(NotFoundException):
            self.sandbox.files.read("no/such/file")
        with self.assertRaises(NotFoundException):
            self.sandbox.files.get_info("no/such/file")

    def test_info(self):
        self.sandbox.files.write("info.txt", "twelve bytes", metadata={"author": "someone"})
        info = self.sandbox.files.get_info("info.txt")
        self.assertEqual((info.size, info.owner, info.permissions), (12, "user", "-rw-r--r--"))
        self.assertEqual(info.metadata, {"author": "someone"})

    def test_big(self):
        data = os.urandom(16 << 20)
        self.sandbox.files.write("big", data)
        self.assertEqual(self.sandbox.commands.run("sha256sum big").stdout.split()[0], hashlib.sha256(data).hexdigest())

    def test_watch(self):
        self.sandbox.files.make_dir("watched")
        watch = self.sandbox.files.watch_dir("watched")
        self.sandbox.files.write("watched/new.txt", "x")
        seen = []

        def arrived():
            seen.extend(watch.get_new_events())
            return any(e.type == FilesystemEventType.WRITE for e in seen)

        until("the event", arrived)
        self.assertEqual([(e.type.value, e.name) for e in seen],
                         [(kind, "new.txt") for kind in ("create", "chmod", "write")])
        watch.stop()
        with self.assertRaises(SandboxException):
            watch.get_new_events()

    def test_signed_urls(self):
        self.sandbox.files.write("shared.txt", "by URL")
        with urllib.request.urlopen(self.sandbox.download_url("shared.txt")) as response:
            self.assertEqual(response.read(), b"by URL")
        url = self.sandbox.download_url("shared.txt", use_signature_expiration=1)
        time.sleep(2.1)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url)
        self.assertEqual(caught.exception.code, 401)
        self.assertIn(b"signature is already expired", caught.exception.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
