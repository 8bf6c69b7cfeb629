def _boot():
    import sys, os
    with open('/.carrel/python', encoding='utf-8') as f:
        head = f.read().split('\0')
    cwd, mode, what, flags = head[:4]
    sys.argv = head[4:]
    sys.executable = '/usr/bin/python3'
    sys._base_executable = sys.executable
    sys.platform = 'linux'
    import builtins
    main = sys.modules['__main__'].__dict__
    try:
        os.chdir(cwd)
    except OSError:
        pass

    def bridge(kind, request):
        import json
        with open('/.carrel/' + kind, 'r+b', buffering=0) as f:
            f.write(json.dumps(request).encode())
            f.seek(0)
            out = bytearray()
            while True:
                b = f.read(65536)
                if not b:
                    break
                out += b
        return json.loads(out.decode())

    # sleep() waits until a point in time, which the WASI below does not have; select() waits for a time.
    import time

    def sleep(seconds):
        import select
        if seconds < 0:
            raise ValueError('sleep length must be non-negative')
        select.select([], [], [], seconds)

    time.sleep = sleep

    class Loader:
        # subprocess and urllib have no system below: they are given the machine's way when they are imported.
        def __init__(self, name, patch):
            self.name, self.patch = name, patch

        def find_spec(self, name, path=None, target=None):
            if name != self.name:
                return None
            sys.meta_path.remove(self)
            import importlib.util
            spec = importlib.util.find_spec(name)
            load = spec.loader
            patch = self.patch
            run = load.exec_module

            class Patched:
                def create_module(self, spec):
                    return load.create_module(spec)

                def exec_module(self, module):
                    run(module)
                    patch(module)

                def __getattr__(self, attr):
                    return getattr(load, attr)

            spec.loader = Patched()
            return spec

    def patch_subprocess(sp):
        import io, base64

        class Popen:
            def __init__(self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True, shell=False,
                         cwd=None, env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True, start_new_session=False,
                         pass_fds=(), *, encoding=None, errors=None, text=None, user=None, group=None, extra_groups=None, umask=-1, pipesize=-1, process_group=None):
                self.args = args
                if isinstance(args, (str, bytes, os.PathLike)):
                    argv = [os.fsdecode(args)]
                else:
                    argv = [os.fsdecode(a) for a in args]
                if shell:
                    argv = [executable or '/bin/sh', '-c'] + argv
                self._argv, self._io = argv, (stdin, stdout, stderr)
                self._cwd = os.fsdecode(cwd) if cwd is not None else os.getcwd()
                self._env = [k + '=' + v for k, v in (env if env is not None else os.environ).items()]
                self._text = bool(text or universal_newlines or encoding or errors)
                self._enc, self._err = encoding or 'utf-8', errors or 'strict'
                self.returncode, self.pid = None, 0
                self._done = False
                self.stdin = self.stdout = self.stderr = None
                if stdin == sp.PIPE:
                    real = self.stdin = self._keep = Kept()
                    if self._text:
                        self.stdin = io.TextIOWrapper(real, self._enc, self._err, write_through=True)
                if not shell and not bridge('which', {'name': argv[0], 'dir': self._cwd})['found']:
                    import errno
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
                if stdin != sp.PIPE:
                    self._run(b'')
                elif stdout == sp.PIPE:
                    self.stdout = _Lazy(self, 'out')

            def _run(self, data):
                if self._done:
                    return
                self._done = True
                stdin, stdout, stderr = self._io
                given = None
                if stdin == sp.PIPE:
                    given = data
                elif stdin == sp.DEVNULL:
                    given = b''
                elif stdin is not None and not isinstance(stdin, int):
                    given = stdin.buffer.read() if hasattr(stdin, 'buffer') else stdin.read()
                    if isinstance(given, str):
                        given = given.encode()
                for s in (sys.stdout, sys.stderr):
                    try:
                        s.flush()
                    except Exception:
                        pass
                how = lambda x: 'inherit' if x is None else 'pipe'
                r = bridge('run', {'argv': self._argv, 'env': self._env, 'dir': self._cwd, 'input': None if given is None else base64.b64encode(given).decode(),
                                   'out': how(stdout), 'err': 'merge' if stderr == sp.STDOUT else how(stderr)})
                self.returncode = r['status']
                self.pid = r['pid']
                out, err = base64.b64decode(r['out'] or ''), base64.b64decode(r['err'] or '')
                for where, got, name in ((stdout, out, 'stdout'), (stderr, err, 'stderr')):
                    if where == sp.PIPE:
                        f = io.BytesIO(got)
                        setattr(self, name, io.TextIOWrapper(f, self._enc, self._err) if self._text else f)
                    elif where is not None and not isinstance(where, int):
                        (getattr(where, 'buffer', where)).write(got)
                        where.flush()
                    elif isinstance(where, int) and where >= 0:
                        os.write(where, got)

            def _given(self):
                if self.stdin is None:
                    return b''
                if self._text and not self.stdin.closed:
                    self.stdin.flush()
                return self._keep.all()

            def communicate(self, input=None, timeout=None):
                data = self._given()
                if input is not None:
                    data += input.encode(self._enc) if isinstance(input, str) else bytes(input)
                self._run(data)
                read = lambda f: f.read() if f is not None and not isinstance(f, _Lazy) else None
                return read(self.stdout), read(self.stderr)

            def wait(self, timeout=None):
                self._run(self._given())
                return self.returncode

            def poll(self):
                return self.wait()

            def kill(self):
                pass
            terminate = kill

            def send_signal(self, sig):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *a):
                self.wait()

        class Kept(io.BytesIO):
            # What was written stays readable when it is closed.
            data = b''

            def close(self):
                if not self.closed:
                    self.data = self.getvalue()
                super().close()

            def all(self):
                return self.data if self.closed else self.getvalue()

        class _Lazy:
            def __init__(self, p, name):
                self._p = p

            def _get(self):
                self._p._run(self._p._given())
                return self._p.stdout

            def __getattr__(self, name):
                return getattr(self._get(), name)

            def __iter__(self):
                return iter(self._get())

        sp.Popen = Popen
        sp._can_fork_exec = True

    def system(command):
        import subprocess
        return subprocess.call(command, shell=True) << 8

    def popen(command, mode='r', buffering=-1):
        import subprocess, io
        return io.StringIO(subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True).stdout)

    def patch_request(rq):
        import io, base64, email.message
        from urllib.error import URLError

        def way(self, req):
            headers = dict(req.unredirected_hdrs)
            headers.update({k: v for k, v in req.headers.items() if k not in headers})
            data = req.data
            if data is not None and not isinstance(data, (bytes, bytearray)):
                data = data.read() if hasattr(data, 'read') else b''.join(data)
            r = bridge('http', {'method': req.get_method(), 'url': req.full_url, 'headers': [[k, str(v)] for k, v in headers.items()],
                                'body': None if data is None else base64.b64encode(data).decode()})
            if r.get('error'):
                raise URLError(r['error'])
            msg = email.message.Message()
            for k, v in r['headers']:
                msg[k] = v
            import http.client
            res = rq.addinfourl(io.BytesIO(base64.b64decode(r['body'] or '')), msg, req.full_url, r['status'])
            res.msg, res.reason, res.version = r['reason'], r['reason'], 11
            res.getheader = lambda k, d=None: msg.get(k, d)
            res.getheaders = lambda: list(msg.items())
            return res
        rq.HTTPHandler.http_open = way

        class HTTPSHandler(rq.HTTPHandler):
            https_open = way
            https_request = rq.AbstractHTTPHandler.do_request_
            http_open = None
        del HTTPSHandler.http_open
        rq.HTTPSHandler = HTTPSHandler
        opened = rq.build_opener

        def build_opener(*handlers):
            o = opened(*handlers)
            if not any(isinstance(h, HTTPSHandler) for h in o.handlers):
                o.add_handler(HTTPSHandler())
            return o
        rq.build_opener = build_opener

    import types
    stub = types.ModuleType('_posixsubprocess')  # subprocess looks for it, and Popen is replaced before it is used
    stub.fork_exec = None
    sys.modules['_posixsubprocess'] = stub
    for name in ('waitstatus_to_exitcode', 'WIFSTOPPED', 'WSTOPSIG', 'WNOHANG', 'waitpid'):
        if not hasattr(os, name):
            setattr(os, name, lambda *a: 0)
    sys.meta_path.insert(0, Loader('subprocess', patch_subprocess))
    sys.meta_path.insert(0, Loader('urllib.request', patch_request))
    os.system, os.popen = system, popen
    ids = dict(x.split('=') for x in flags.split(',') if x)
    for name in ('getuid', 'geteuid'):
        setattr(os, name, lambda: int(ids['uid']))
    for name in ('getgid', 'getegid'):
        setattr(os, name, lambda: int(ids['gid']))
    os.getpid = lambda: int(ids['pid'])
    os.cpu_count = lambda: int(ids['cpus'])

    def chmod(path, mode, *, dir_fd=None, follow_symlinks=True):
        r = bridge('chmod', {'path': os.path.abspath(os.fsdecode(path)), 'mode': mode})
        if r.get('error'):
            import errno
            raise OSError(getattr(errno, r['error'], 5), os.strerror(getattr(errno, r['error'], 5)), path)
    os.chmod = chmod

    path0 = ''
    source = None
    name = '<string>'
    if mode == 'c':
        source = what
    elif mode == 's':
        source, name = sys.stdin.read(), '<stdin>'
    elif mode == 'f':
        name = what
        try:
            real = os.path.realpath(what)
            if os.path.isdir(what) or what.endswith('.zip') or what.endswith('.pyz'):
                import runpy
                sys.argv[0] = what
                return lambda: runpy.run_path(what, run_name='__main__')
            with open(what, 'rb') as f:
                source = f.read()
        except OSError as e:
            sys.stderr.write("python3: can't open file %r: [Errno %d] %s\n" % (os.path.abspath(what), e.errno, os.strerror(e.errno)))
            sys.exit(2)
        path0 = os.path.dirname(real)
        main['__file__'] = what if os.path.isabs(what) else os.path.join(os.getcwd(), what)
    if 'isolated' not in ids:
        sys.path.insert(0, os.getcwd() if mode == 'm' else path0)
    if mode == 'm':
        def run():
            import runpy
            runpy._run_module_as_main(what)
        return run
    main['__name__'] = '__main__'
    if mode != 'f':
        import linecache
        text = source
        lines = text.splitlines(True)
        if mode == 's':
            linecache.cache[name] = (len(text), None, lines, name)
    main['__builtins__'] = builtins

    def run():
        exec(compile(source, name, 'exec', dont_inherit=True), main)
    return run


def _run(start):
    import sys
    del globals()['_boot'], globals()['_run']
    try:
        start()
    except SystemExit:
        raise
    except BaseException as e:
        tb = e.__traceback__
        while tb is not None and (tb.tb_frame.f_code.co_filename == '<carrel>' or tb.tb_frame.f_globals.get('__name__') == 'runpy' or tb.tb_frame.f_code.co_filename == '<frozen runpy>'):
            tb = tb.tb_next
        e.__traceback__ = tb
        sys.excepthook(type(e), e, tb)
        sys.exit(130 if isinstance(e, KeyboardInterrupt) else 1)


_run(_boot())
