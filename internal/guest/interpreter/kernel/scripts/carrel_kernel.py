"""The start of a Python kernel. Package kernel runs it with a connection file and the names of
modules to import ahead. If the image has ipykernel, it becomes a Jupyter kernel. Otherwise it runs
cells by itself (carrel_plain). It says on descriptor 4 which of them it is.

In place of a connection file there may be "mark:" and a text. Then there are no descriptors but the
usual three: requests come from the standard input, and what it says goes to the standard output, after
that text."""

import gc
import importlib
import importlib.util
import json
import os
import sys

CONNECTION, PRELOAD = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if p != HERE]
sys.argv = [""]


def module(name):
    """Load one of our modules. Its file may be gone later, so this happens at the start."""
    import types

    path = os.path.join(HERE, name + ".py")
    loaded = types.ModuleType(name)
    with open(path, encoding="utf-8") as f:
        source = f.read()
    loaded.__file__ = path
    sys.modules[name] = loaded
    exec(compile(source, path, "exec"), loaded.__dict__)
    return loaded


def preload():
    """Import the modules that most cells use, if the image has them."""
    for name in filter(None, PRELOAD.split(",")):
        try:
            importlib.import_module(name)
        except ImportError:
            pass


def rest():
    """Leave little to touch for what comes later.

    A template's own start is copied into each sandbox page by page, as programs touch the pages. A
    collection of garbage would touch those of all modules, and never frees one of them."""
    import ctypes

    gc.collect()
    gc.freeze()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # another C library


class Environment:
    """Sets the variables that come with a cell, and puts back those of the cell alone."""

    def __init__(self):
        self.base = {}
        self.before = {}

    def enter(self, base, env):
        self.leave()  # a cell that was killed half way has not left
        if base is not None and base != self.base:
            os.environ.update({k: v for k, v in base.items() if self.base.get(k) != v})
            self.base = base
        for name, value in (env or {}).items():
            self.before[name] = os.environ.get(name)
            os.environ[name] = value

    def leave(self):
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.before = {}


MOST_FORM = 64 << 20  # the longest form of a value; the interpreter takes no longer ones


def fit(data):
    """Leave out the forms of a value that are too long, before they are copied on their way."""
    for mime in [m for m, v in data.items() if isinstance(v, (str, bytes)) and len(v) > MOST_FORM]:
        del data[mime]
        print("carrel: a result of more than 64 MiB was left out", file=sys.stderr, flush=True)


def bound_values(session):
    """Make a session leave out values that are too long."""
    send = session.send

    def bounded(stream, message, content=None, *args, **kwargs):
        body = message.get("content") if isinstance(message, dict) else content
        if isinstance(body, dict) and isinstance(body.get("data"), dict):
            fit(body["data"])
        return send(stream, message, content, *args, **kwargs)

    session.send = bounded


def bound_output():
    """Make a program that prints without end wait for its reader, and one that prints nothing not wait.

    Output is buffered in the kernel's memory until a thread has sent it. After each MiB, the printing
    thread waits for that one. ipykernel also waits for it some six times in each cell, twice a switch of
    threads. That is for nothing where nothing is buffered: what the other thread has already taken goes
    out before whatever it is given later."""
    from ipykernel.iostream import OutStream

    step = 1 << 20
    write, flush = OutStream.write, OutStream.flush

    def bounded(self, text):
        written = write(self, text)
        self._carrel_unsent = getattr(self, "_carrel_unsent", 0) + len(text)
        if self._carrel_unsent > step:
            self._carrel_unsent = 0
            flush(self)
        return written

    def is_empty(self):
        if hasattr(self, "_buffer"):
            return not self._buffer.tell()
        return getattr(self, "_buffers", None) == {}  # of version 7: one for each cell that prints

    def flush_some(self):
        if not is_empty(self):
            flush(self)

    OutStream.write, OutStream.flush = bounded, flush_some


def jupyter():
    import zmq
    from IPython.display import display
    from ipykernel.kernelapp import IPKernelApp

    class Blocking:
        """A context whose publishers wait for a slow subscriber. ZeroMQ's own drop messages."""

        def __init__(self, context):
            self.context = context

        def socket(self, kind):
            if kind == zmq.PUB:
                kind = zmq.XPUB
            made = self.context.socket(kind)
            if kind == zmq.XPUB:
                made.setsockopt(zmq.XPUB_NODROP, 1)
            return made

        def __getattr__(self, name):
            return getattr(self.context, name)

    class App(IPKernelApp):
        def init_iopub(self, context):
            super().init_iopub(Blocking(context))

    app = App.instance()
    app.initialize(["-f", CONNECTION, "--HistoryManager.enabled=False", "--log-level=ERROR"])
    bound_output()
    bound_values(app.session)
    shell, environment = app.shell, Environment()

    def before(info=None):
        try:
            parent = app.kernel.get_parent("shell")
        except TypeError:  # ipykernel before 6 has one parent only
            parent = app.kernel.get_parent()
        found = (parent.get("metadata") or {}).get("carrel") or {}
        environment.enter(found.get("base"), found.get("env"))

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", lambda result=None: environment.leave())
    module("carrel_charts").install(shell.display_formatter)
    module("carrel_pillow").install(display)
    preload()
    rest()
    os.write(4, json.dumps({"type": "ready", "protocol": "jupyter"}).encode() + b"\n")
    os.close(3)
    os.close(4)
    app.start()


if __name__ == "__main__":
    if not CONNECTION.startswith("mark:") and importlib.util.find_spec("ipykernel"):
        jupyter()
    else:
        module("carrel_charts")
        plain = module("carrel_plain")
        module("carrel_pillow").install(plain.display)
        preload()
        plain.main(Environment(), fit, CONNECTION.partition("mark:")[2])
