"""Cells of Python without ipykernel, for images that have python3 only. Package kernel's doc has the
protocol. A cell's last expression is its value, display() shows more, and figures of matplotlib that
were shown or left open at the cell's end are its results."""

import ast
import base64
import inspect
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types

FORMS = {"html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml", "png": "image/png",
         "jpeg": "image/jpeg", "pdf": "application/pdf", "latex": "text/latex",
         "json": "application/json", "javascript": "application/javascript"}
out = None  # what the lines go to
mark = b""  # what each of them begins with
fit = None  # leaves out forms that are too long
main_module = types.ModuleType("__main__")


def say(**line):
    raw = mark + json.dumps(line, default=str, allow_nan=False).encode() + b"\n"
    while raw:
        raw = raw[out.write(raw):]


class Printed(io.TextIOBase):
    """A stream whose text goes out as the cell's."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, kind, fd):
        self.kind, self.fd, self.buffered, self.size = kind, fd, [], 0
        self.buffer = self.Bytes(self)

    class Bytes(io.RawIOBase):
        def __init__(self, owner):
            self.owner = owner

        def writable(self):
            return True

        def write(self, data):
            self.owner.write(bytes(data).decode("utf-8", "replace"))
            return len(data)

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        self.buffered.append(text)
        self.size += len(text)
        if self.size > 1 << 14 or "\n" in text:
            self.flush()
        return len(text)

    def flush(self):
        text, self.buffered, self.size = "".join(self.buffered), [], 0
        if text:
            say(type=self.kind, text=text.encode("utf-8", "replace").decode())


def forms(value):
    """Give a value in every form that it has."""
    data = {}
    bundle = getattr(value, "_repr_mimebundle_", None)
    if callable(bundle) and not inspect.isclass(value):
        found = bundle()
        data.update(found[0] if isinstance(found, tuple) else found or {})
    for form, mime in FORMS.items():
        method = getattr(value, f"_repr_{form}_", None)
        if not callable(method) or inspect.isclass(value):
            continue
        try:
            found = method()
        except Exception:
            continue
        found = found[0] if isinstance(found, tuple) else found
        if isinstance(found, bytes):
            found = base64.b64encode(found).decode()
        if found is not None:
            data[mime] = found
    if type(value).__module__ == "matplotlib.figure":
        data["image/png"] = picture(value)
    data.update(sys.modules["carrel_charts"].read(value))
    data.setdefault("text/plain", repr(value))
    return data


def picture(figure):
    raw = io.BytesIO()
    figure.savefig(raw, format="png", bbox_inches="tight")
    return base64.b64encode(raw.getvalue()).decode()


def result(value, main):
    data = forms(value)
    fit(data)
    flush()
    say(type="result", main=main, data=data)


def display(*values, raw=False):
    """Show values; with raw, values are their own forms by MIME type."""
    for value in values:
        if raw:
            fit(value)
            flush()
            say(type="result", main=False, data=value)
        else:
            result(value, False)


def flush():
    sys.stdout.flush()
    sys.stderr.flush()


def figures():
    """Show the open figures, and close them."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    for number in plt.get_fignums():
        display(plt.figure(number))
    plt.close("all")


def hook_figures():
    """Let plt.show() show figures in the results."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is not None and not getattr(plt, "_carrel", False):
        plt._carrel = True
        plt.show = lambda *args, **kwargs: figures()


class Import:
    """Hooks pyplot's show as soon as a cell imports it."""

    def find_spec(self, name, path=None, target=None):
        if "matplotlib.pyplot" in sys.modules:
            hook_figures()
        return None


async_flag = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def execute(code, name):
    """Run a cell and give the value of its last expression, None if it has none."""
    tree = ast.parse(code, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    for part, mode in ((tree, "exec"), (last, "eval")):
        if part is None:
            continue
        value = eval(compile(part, name, mode, flags=async_flag), main_module.__dict__)
        if inspect.iscoroutine(value) and not (mode == "eval" and is_plain(last)):
            value = loop().run_until_complete(value)
        hook_figures()
    return value if last is not None else None


def is_plain(expression):
    """Tell whether an expression awaits nothing, so that a coroutine is its value."""
    return not any(isinstance(n, (ast.Await, ast.AsyncFor, ast.comprehension))
                   for n in ast.walk(expression))


def loop():
    import asyncio

    if not hasattr(loop, "made"):
        # WebAssembly has no sockets, which a usual loop needs.
        loop.made = asyncio.new_event_loop() if hasattr(os, "fork") else sleeper()
        asyncio.set_event_loop(loop.made)
    return loop.made


def sleeper():
    """Make an event loop that waits for time alone."""
    import asyncio
    import time

    class Time:
        def select(self, timeout):
            if timeout is None:
                raise RuntimeError("nothing can end this wait: here are no sockets and no threads")
            time.sleep(timeout)
            return []

    class Sleeper(asyncio.BaseEventLoop):
        def __init__(self):
            super().__init__()
            self._selector = Time()

        def _process_events(self, events):
            pass

        def _write_to_self(self):
            pass

    return Sleeper()


def run(request, number, environment):
    name = f"<cell {number}>"
    linecache.cache[name] = (len(request["code"]), None, request["code"].splitlines(True), name)
    say(type="count", count=number)
    environment.enter(request.get("base"), request.get("env"))
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        value = execute(request["code"], name)
        figures()
        if value is not None:
            main_module.__dict__["_"] = value
            result(value, True)
    except SystemExit as err:
        if err.code not in (None, 0):
            say(type="error", name="SystemExit", value=str(err.code), traceback="SystemExit")
    except BaseException as err:
        frames = traceback.TracebackException.from_exception(err)
        # The first frames are this module's.
        frames.stack = traceback.StackSummary.from_list(
            [f for f in frames.stack if f.filename != __file__])
        flush()
        say(type="error", name=type(err).__name__, value=str(err), traceback="".join(frames.format()))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        environment.leave()
        flush()
        say(type="done", id=request["id"])


def main(environment, bound, marked):
    global fit, out, mark
    fit = bound
    if marked:
        mark = marked.encode()
        out, requests = os.fdopen(1, "wb", 0, closefd=False), os.fdopen(0, "rb", closefd=False)
        sys.stdin = io.StringIO()
    else:
        out, requests = os.fdopen(4, "wb", 0), os.fdopen(3, "rb")
        os.set_inheritable(3, False)
        os.set_inheritable(4, False)
    os.environ.setdefault("MPLBACKEND", "agg")
    sys.stdout, sys.stderr = Printed("stdout", 1), Printed("stderr", 2)
    sys.modules["__main__"] = main_module
    main_module.__dict__.update(display=display, __builtins__=__builtins__)
    sys.meta_path.insert(0, Import())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(type="ready", protocol="plain")
    for number, raw in enumerate(requests, 1):
        run(json.loads(raw), number, environment)
