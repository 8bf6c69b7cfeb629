"""Sandboxes of Carrel for Inspect, by E2B's SDK.

A sandbox is made for each sample, and killed after it. Commands and files belong to one user, and
relative paths are in that user's home directory.
"""
import os
import shlex
import uuid

from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    SandboxQuery,
    TimeoutException,
)
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

# LABEL is in the metadata of every sandbox that this provider makes.
LABEL = {"made-by": "inspect-carrel"}

# MOST_ARGUMENT is the most bytes that Linux allows in one argument of a program.
MOST_ARGUMENT = 120_000

# What the script LOOK answers about a path.
FINE, DIRECTORY, ABSENT, FORBIDDEN = 0, 31, 32, 33

# LOOK says whether $1 is a file that this user may access as $2 says: by test's -r or -w.
LOOK = f"""[ ! -d "$1" ] || exit {DIRECTORY}
[ -e "$1" ] || exit {ABSENT}
[ "$2" "$1" ] || exit {FORBIDDEN}
stat -L -c %s -- "$1"
"""


class CarrelConfig(BaseModel, frozen=True):
    """The settings of a task's sandboxes."""

    template: str | None = None
    user: str = "user"
    timeout: int = 3600
    envs: dict[str, str] = {}
    internet: bool = True


@sandboxenv(name="carrel")
class CarrelSandboxEnvironment(SandboxEnvironment):
    """One sandbox of Carrel."""

    def __init__(self, sandbox: AsyncSandbox, user: str):
        self.sandbox = sandbox
        self.user = user
        self.home = "/root" if user == "root" else "/home/" + user

    @classmethod
    def config_deserialize(cls, config):
        return CarrelConfig(**config)

    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        settings = config if isinstance(config, CarrelConfig) else CarrelConfig()
        sandbox = await AsyncSandbox.create(
            template=settings.template, timeout=settings.timeout, envs=settings.envs,
            allow_internet_access=settings.internet, metadata={**LABEL, "task": task_name})
        return {"default": cls(sandbox, settings.user)}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted):
        for environment in environments.values():
            await environment.as_type(cls).sandbox.kill()

    @classmethod
    async def cli_cleanup(cls, id):
        if id is not None:
            await AsyncSandbox.kill(id)
            return
        pages = AsyncSandbox.list(query=SandboxQuery(metadata=LABEL))
        while pages.has_next:
            for left in await pages.next_items():
                await AsyncSandbox.kill(left.sandbox_id)

    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None,
                   timeout_retry=True, concurrency=True):
        user = user or self.user
        if cwd or user == self.user:  # another user may not be let into this one's home
            cwd = self._absolute(cwd or "")
        line, made = shlex.join(cmd), []
        if len(line.encode()) > MOST_ARGUMENT:
            made.append(await self._keep(line, user))
            line = ". " + made[-1]
        if input is not None:
            made.append(await self._keep(input, user))
            line += " <" + made[-1]
        else:
            line += " </dev/null"
        try:
            result = await self._run(line, cwd, env, user, timeout)
        finally:
            for file in made:
                await self.sandbox.files.remove(file, user="root")
        if result.returncode == 126:
            raise PermissionError(f"{shlex.join(cmd)[:200]}: {result.stderr.strip()}")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        for output in (result.stdout, result.stderr):
            if len(output) * 4 > limit and len(output.encode()) > limit:
                shown = output.encode()[-limit:].decode(errors="replace")
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, shown)
        return result

    async def write_file(self, file, contents):
        path = self._absolute(file)
        found, _ = await self._look(path, "-w")
        if found == ABSENT:
            parent = await self._script('mkdir -p -- "$1" && [ -w "$1" ]', os.path.dirname(path))
            found = FINE if parent.success else FORBIDDEN
        self._raise(found, path)
        await self.sandbox.files.write(path, contents, user=self.user)

    async def read_file(self, file, text=True):
        path = self._absolute(file)
        found, size = await self._look(path, "-r")
        self._raise(found, path)
        if size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        raw = bytes(await self.sandbox.files.read(path, format="bytes", user=self.user))
        return raw.decode() if text else raw

    async def connection(self, *, user=None):
        if not await self.sandbox.is_running():
            raise ConnectionError(f"the sandbox {self.sandbox.sandbox_id} does not run")
        login = f"--user {shlex.quote(user or self.user)} "
        return SandboxConnection(type="carrel", container=self.sandbox.sandbox_id,
                                 command=f"carrel exec -it {login}{self.sandbox.sandbox_id} -- bash -l")

    async def _run(self, line, cwd, env, user, timeout):
        """Run a shell line and wait for its end. A late one is killed with its children."""
        try:
            ended = await self.sandbox.commands.run(
                line, cwd=cwd, envs=env or {}, user=user, timeout=timeout or 0)
        except CommandExitException as exit:
            ended = exit
        except TimeoutException as late:
            raise TimeoutError(f"the command took more than {timeout} s") from late
        except AuthenticationException as unknown:
            raise SandboxUserUnsupportedError(f"{user}: {unknown}") from unknown
        return ExecResult(ended.exit_code == 0, ended.exit_code, ended.stdout, ended.stderr)

    async def _script(self, script, *args):
        """Run a script of this provider's own. Its shell does not read the user's profile."""
        return await self._run(shlex.join(["/bin/sh", "-c", script, "sh", *args]), "/", {}, self.user, 60)

    async def _look(self, path, access):
        """Return what LOOK says about a path, and the file's size."""
        seen = await self._script(LOOK, path, access)
        return seen.returncode, int(seen.stdout) if seen.success else 0

    async def _keep(self, contents, user):
        """Put what is too long for a command line into a file of the user's."""
        path = f"/tmp/.inspect-{uuid.uuid4().hex}"
        await self.sandbox.files.write(path, contents, user=user)
        return path

    def _absolute(self, path):
        return os.path.join(self.home, path) if path else self.home

    @staticmethod
    def _raise(found, path):
        """Raise the error that Inspect expects for an answer of LOOK."""
        if found == DIRECTORY:
            raise IsADirectoryError(f"{path} is a directory")
        if found == ABSENT:
            raise FileNotFoundError(f"{path} does not exist")
        if found != FINE:
            raise PermissionError(f"{path} may not be accessed")
