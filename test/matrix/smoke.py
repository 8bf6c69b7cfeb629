"""A round through the calls of one version of E2B's Python SDK, in both flavours."""
import asyncio

from e2b import AsyncSandbox, CommandExitException, Sandbox
from e2b.sandbox.commands.command_handle import PtySize

missing = []


def has(of, name):
    if hasattr(of, name):
        return True
    missing.append(name)
    return False


def sync_round():
    s = Sandbox.create("base", timeout=120, metadata={"made": "by the matrix"}, envs={"WORD": "hello"})
    try:
        assert s.commands.run("echo $WORD").stdout == "hello\n"
        try:
            s.commands.run("exit 3")
            raise AssertionError("an exit of 3 is no error")
        except CommandExitException as e:
            assert e.exit_code == 3
        cat = s.commands.run("cat", background=True, stdin=True)
        s.commands.send_stdin(cat.pid, "typed\n")
        assert any(p.pid == cat.pid for p in s.commands.list())
        assert s.commands.kill(cat.pid)
        s.files.write("a.txt", "text of a")
        assert s.files.read("a.txt") == "text of a"
        assert s.files.make_dir("made")
        s.files.rename("a.txt", "made/a.txt")
        assert [e.name for e in s.files.list("made")] == ["a.txt"]
        watch = s.files.watch_dir("made")
        s.files.write("made/b.txt", "b")
        assert any(e.name == "b.txt" for e in watch.get_new_events())
        watch.stop()
        s.files.remove("made/b.txt")
        assert not s.files.exists("made/b.txt")
        pty = s.pty.create(PtySize(rows=24, cols=80))
        s.pty.resize(pty.pid, PtySize(rows=30, cols=100))
        s.pty.send_stdin(pty.pid, b"stty size; exit\n")
        screen = b""
        try:
            pty.wait(on_pty=lambda d: globals().__setitem__("SCREEN", globals().get("SCREEN", b"") + d))
        except CommandExitException:
            pass
        screen = globals().get("SCREEN", b"")
        assert b"30 100" in screen, screen
        s.set_timeout(150)
        assert s.get_info().metadata["made"] == "by the matrix"
        assert any(i.sandbox_id == s.sandbox_id for i in Sandbox.list().next_items())
        if has(s, "get_metrics"):
            s.get_metrics()
        if has(s, "create_snapshot"):
            snap = s.create_snapshot()
            copy = Sandbox.create(snap.snapshot_id, timeout=120)
            assert copy.files.read("made/a.txt") == "text of a"
            copy.kill()
            assert Sandbox.delete_snapshot(snap.snapshot_id)
        if has(s, "fork"):
            fork = s.fork(count=1, timeout=60)[0]
            assert isinstance(fork, Sandbox), fork
            fork.kill()
        (s.pause if hasattr(s, "pause") else s.beta_pause)()
        back = Sandbox.connect(s.sandbox_id, timeout=120)
        assert back.files.read("made/a.txt") == "text of a"
    finally:
        assert s.kill()


async def async_round():
    s = await AsyncSandbox.create("base", timeout=120)
    try:
        results = await asyncio.gather(*(s.commands.run(f"echo {i}") for i in range(8)))
        assert [r.stdout for r in results] == [f"{i}\n" for i in range(8)]
        seen = []
        watch = await s.files.watch_dir(".", on_event=lambda e: seen.append(e.name))
        await s.files.write("x.txt", "x")
        assert await s.files.read("x.txt") == "x"
        await watch.stop()
        assert "x.txt" in seen, seen
        assert await s.is_running()
    finally:
        assert await s.kill()


sync_round()
asyncio.run(async_round())
print("without " + ", ".join(missing) if missing else "all calls")
