"""Runs a Jupyter kernel in a sandbox of Carrel, for a JupyterLab or VS Code on this machine.

The kernel's process and its five sockets are inside. `carrel port-forward` leads local ports to the
sockets, so completion, widgets and interrupts work as with a local kernel. The program `carrel` does
all that concerns the sandbox; it finds its daemon as it does in a shell."""

import asyncio
import json
import shutil
import signal

from jupyter_client.connect import LocalPortCache
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Bool, List, Unicode

PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
START = 120  # seconds for each step of a start


class Failed(RuntimeError):
    """A step on the way to a kernel failed; the text is carrel's own."""


class Provisioner(KernelProvisionerBase):
    """The life of one kernel and of its sandbox."""

    template = Unicode("code-interpreter-v1", config=True, help="what the sandbox is made of")
    sandbox = Unicode("", config=True, help="an existing sandbox, by ID or name; it is left alone at the end")
    create = List(Unicode(), config=True, help="more flags of carrel create, such as --internet")
    keep = Bool(False, config=True, help="keep the sandbox when the kernel ends")
    program = Unicode("carrel", config=True, help="the program carrel")

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.id = self.sandbox
        self.kernel = self.forward = None
        self.ports = []

    # Steps.

    def command(self, *args):
        program = shutil.which(self.program)
        if program is None:
            raise Failed(f"there is no program {self.program!r}; see the README of jupyter-carrel")
        return (program, *args)

    async def carrel(self, *args, text=b""):
        """Run carrel to its end and return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*args), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE)
        try:
            out, err = await asyncio.wait_for(process.communicate(text), START)
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        if process.returncode:
            raise Failed(err.decode(errors="replace").strip() or f"carrel {args[0]}: status {process.returncode}")
        return out.decode().strip()

    @property
    def inside(self):
        """The kernel's own name for files in the sandbox."""
        return f"/tmp/.jupyter-{self.kernel_id}"

    # What jupyter_client calls.

    @property
    def has_process(self):
        return self.kernel is not None

    async def pre_launch(self, **kwargs):
        kwargs = await super().pre_launch(**kwargs)
        manager = self.parent
        if not self.ports:  # a restart keeps them: clients are connected
            cache = LocalPortCache.instance()
            self.ports = [cache.find_available_port("127.0.0.1") for _ in PORTS]
        manager.transport, manager.ip = "tcp", "127.0.0.1"
        for name, port in zip(PORTS, self.ports):
            setattr(manager, name, port)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        kwargs.pop("extra_arguments", None)
        kwargs["cmd"] = list(manager.kernel_spec.argv)
        return kwargs

    async def launch_kernel(self, cmd, **kwargs):
        if not self.id:
            self.id = await self.carrel("create", "--template", self.template, *self.create)
        info = dict(self.connection_info)
        if isinstance(info.get("key"), bytes):
            info["key"] = info["key"].decode()
        await self.carrel("exec", "-i", self.id, "--", "sh", "-c", f"umask 077; cat > {self.inside}.json",
                          text=json.dumps(info, default=str).encode())
        argv = [part.replace("{connection_file}", f"{self.inside}.json") for part in cmd]
        # No terminal and no input: the shell writes its own number, and becomes the kernel.
        self.kernel = await asyncio.create_subprocess_exec(
            *self.command("exec", self.id, "--", "sh", "-c", f'echo $$ > {self.inside}.pid; exec "$@"', "sh", *argv),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, start_new_session=True)
        if self.forward is None:
            self.forward = await asyncio.create_subprocess_exec(
                *self.command("port-forward", self.id, *[f"{p}:{p}" for p in self.ports]),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,  # of each attempt while a kernel restarts
                start_new_session=True)
        try:
            await asyncio.wait_for(self.listening(), START)
            if self.forward.returncode is not None:
                raise Failed(f"carrel port-forward ended, with status {self.forward.returncode}")
        except BaseException:
            await self.cleanup()
            raise
        return self.connection_info

    async def listening(self):
        """Wait until the kernel listens on its ports.

        A client's connection that finds nobody there is made again, but what it asked before is lost."""
        script = ("import socket, sys, time\nfor p in map(int, sys.argv[1:]):\n    while True:\n        try:\n"
                  "            socket.create_connection(('127.0.0.1', p), 1).close(); break\n"
                  "        except OSError: time.sleep(0.05)\n")
        probe = asyncio.ensure_future(self.carrel("exec", self.id, "--", "python3", "-c", script,
                                                  *map(str, self.ports)))
        ended = asyncio.ensure_future(self.kernel.wait())
        try:
            await asyncio.wait((probe, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise Failed(f"the kernel ended at once, with status {ended.result()}: {' '.join(self.parent.kernel_spec.argv)}")
            await probe
        finally:
            probe.cancel()
            ended.cancel()

    async def poll(self):
        return self.kernel.returncode if self.kernel else 0

    async def wait(self):
        status = await self.kernel.wait() if self.kernel else 0
        self.kernel = None
        return status

    async def send_signal(self, signum):
        if signum == 0:
            return await self.poll()
        if self.kernel is not None and self.kernel.returncode is None:
            await self.carrel("exec", self.id, "--", "sh", "-c", f"kill -{int(signum)} $(cat {self.inside}.pid)")

    async def kill(self, restart=False):
        await self.end(signal.SIGKILL)

    async def terminate(self, restart=False):
        await self.end(signal.SIGTERM)

    async def end(self, signum):
        try:
            await self.send_signal(signum)
        except Failed:  # it has ended, or its sandbox has
            if self.kernel is not None and self.kernel.returncode is None:
                self.kernel.kill()

    async def cleanup(self, restart=False):
        if restart:
            return
        for process in (self.forward, self.kernel):
            if process is not None and process.returncode is None:
                process.terminate()
                await process.wait()
        self.forward = self.kernel = None
        cache = LocalPortCache.instance()
        for port in self.ports:
            cache.return_port(port)
        self.ports = []
        if self.id and not self.sandbox and not self.keep:
            made, self.id = self.id, ""
            await self.carrel("kill", made)

    def get_shutdown_wait_time(self, recommended=5.0):
        return max(recommended, 10.0)

    async def get_provisioner_info(self):
        return {**await super().get_provisioner_info(), "sandbox": self.id}


def kernelspec(config):
    """Give the kernel.json of a Python kernel in a sandbox."""
    return {"argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python in a sandbox (Carrel)", "language": "python",
            "metadata": {"kernel_provisioner": {"provisioner_name": "carrel", "config": config}}}
