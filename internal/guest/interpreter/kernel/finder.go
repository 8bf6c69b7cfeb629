package kernel

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/jupyter"
)

// startTimeout bounds the start of a kernel.
const startTimeout = 60 * time.Second

// The languages that have a runner of ours.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript"
	Bash       = "bash"
	Java       = "java"
)

// aliases are other names of languages.
var aliases = map[string]string{"": Python, "py": Python, "python3": Python, "ipython": Python,
	"js": JavaScript, "node": JavaScript, "ts": TypeScript, "tslab": TypeScript, "jslab": JavaScript,
	"sh": Bash, "shell": Bash}

//go:embed scripts/*
var scripts embed.FS

// ErrUnknown means that the image has no kernel for a language.
var ErrUnknown = errors.New("no such language")

// Finder finds and starts the image's kernels. The zero Finder looks in the usual places.
type Finder struct {
	// Path is where programs are looked up, in place of PATH.
	Path string
	// Env is the environment of every kernel, as "NAME=value"; nil is this process's.
	Env []string
	// Preload are Python modules that each Python kernel imports before it is ready.
	Preload []string
}

// Options say how to start a kernel.
type Options struct {
	Language string // in its proper name, see [Name]
	Dir      string // the working directory
}

// Name returns the proper name of a language.
func Name(language string) string {
	language = strings.ToLower(strings.TrimSpace(language))
	if proper, ok := aliases[language]; ok {
		return proper
	}
	return language
}

// Start starts a kernel and waits until it is ready. The context bounds the wait; it does not end
// the kernel.
func (f Finder) Start(ctx context.Context, o Options) (Kernel, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", ".carrel-kernel-")
	if err != nil {
		return nil, err
	}
	k, err := f.start(ctx, o, dir)
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return k, err
}

// Check returns an error if the image can't run a language.
func (f Finder) Check(language string) (err error) {
	switch language {
	case Python:
		_, err = f.program(language, "python3", "python")
	case JavaScript, TypeScript:
		_, err = f.program(language, "node", "nodejs")
	case Bash:
		_, err = f.program(language, "bash")
	case Java:
		if _, err = f.spec(language); err != nil {
			_, err = f.program(language, "java")
		}
	default:
		_, err = f.spec(language)
	}
	return err
}

// Enter returns an error if this process's user can't work in a directory. It makes one that is
// missing, as E2B's interpreter takes any name.
func (f Finder) Enter(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Access(dir, unix.X_OK)
}

func (f Finder) start(ctx context.Context, o Options, dir string) (Kernel, error) {
	switch o.Language {
	case Python:
		return f.python(ctx, o, dir)
	case JavaScript, TypeScript:
		return f.node(ctx, o, dir)
	case Bash:
		return f.bash(ctx, o, dir)
	case Java:
		return f.java(ctx, o, dir)
	}
	spec, err := f.spec(o.Language)
	if err != nil {
		return nil, err
	}
	return f.notebook(ctx, o, dir, spec)
}

// program finds a program of the image.
func (f Finder) program(language string, names ...string) (string, error) {
	path := f.Path
	if path == "" {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		for _, name := range names {
			full := filepath.Join(dir, name)
			if s, err := os.Stat(full); err == nil && s.Mode().IsRegular() && s.Mode()&0o111 != 0 {
				return full, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s: the image has no %s", ErrUnknown, language, names[0])
}

// command returns the command of a kernel.
func (f Finder) command(o Options, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = o.Dir
	cmd.Env = slices.Clone(f.Env)
	if f.Env == nil {
		cmd.Env = os.Environ()
	}
	return cmd
}

// write writes a script into dir.
func write(dir string, names ...string) (first string, err error) {
	for _, name := range names {
		raw, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, names[0]), nil
}

// python starts our module in Python. The module says whether it found ipykernel.
func (f Finder) python(ctx context.Context, o Options, dir string) (Kernel, error) {
	exe, err := f.program(Python, "python3", "python")
	if err != nil {
		return nil, err
	}
	script, err := write(dir, "carrel_kernel.py", "carrel_plain.py", "carrel_charts.py", "carrel_pillow.py")
	if err != nil {
		return nil, err
	}
	conn := jupyter.LocalConnection(dir)
	file, err := conn.Write(dir)
	if err != nil {
		return nil, err
	}
	cmd := f.command(o, exe, script, file, strings.Join(f.Preload, ","))
	// Frames are checked only by debuggers; the module itself says so at each start otherwise.
	cmd.Env = append(cmd.Env, "PYDEVD_DISABLE_FILE_VALIDATION=1")
	r, err := startRunner(cmd, dir, false)
	if err != nil {
		return nil, err
	}
	first, err := r.hello(ctx, o.Language)
	if err != nil {
		return nil, err
	}
	if first.Protocol != "jupyter" {
		return r, nil
	}
	n := &notebook{process: r.process, hooked: true}
	if err := n.connect(ctx, conn, o.Language); err != nil {
		return nil, err
	}
	return n, nil
}

// node starts our runner for JavaScript.
func (f Finder) node(ctx context.Context, o Options, dir string) (Kernel, error) {
	exe, err := f.program(o.Language, "node", "nodejs")
	if err != nil {
		return nil, err
	}
	script, err := write(dir, "node.js")
	if err != nil {
		return nil, err
	}
	r, err := startRunner(f.command(o, exe, script, o.Language), dir, false)
	if err != nil {
		return nil, err
	}
	if _, err := r.hello(ctx, o.Language); err != nil {
		return nil, err
	}
	return r, nil
}

// startRunner starts a command with the descriptors of our protocol. A shell gets its requests as
// its input too.
func startRunner(cmd *exec.Cmd, dir string, isShell bool) (*runner, error) {
	var ours, theirs [4]*os.File // requests, lines, stdout, stderr
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
		defer theirs[i].Close()
	}
	if cmd.ExtraFiles = theirs[:2]; isShell {
		cmd.Stdin = theirs[0]
	}
	cmd.Stdout, cmd.Stderr = theirs[2], theirs[3]
	p, err := start(cmd, dir)
	if err != nil {
		for _, f := range ours {
			_ = f.Close()
		}
		return nil, err
	}
	r := &runner{process: p, requests: ours[0], lines: make(chan line), encode: encodeJSON}
	go func() { <-p.done; _ = ours[0].Close() }()
	go func() { readLines(ours[1], r.lines, p.done); _ = ours[1].Close() }()
	r.out, r.err = newOutput(ours[2], Stdout, nil), newOutput(ours[3], Stderr, p.tail)
	return r, nil
}

// encodeJSON is the request of a runner in Python or JavaScript.
func encodeJSON(r request) ([]byte, error) {
	raw, err := json.Marshal(r)
	return append(raw, '\n'), err
}

// hello waits for a runner's first line.
func (r *runner) hello(ctx context.Context, language string) (line, error) {
	select {
	case l, ok := <-r.lines:
		if ok {
			return l, nil
		}
		<-r.done
		r.err.drain() // its last words
		return line{}, r.failure(language)
	case <-ctx.Done():
		r.Close()
		return line{}, fmt.Errorf("the %s kernel did not start in time: %w%s", language, ctx.Err(),
			r.tail)
	}
}

// connect connects to the kernel in the process, which is killed if that fails.
func (n *notebook) connect(ctx context.Context, conn jupyter.Connection, language string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-n.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	client, err := jupyter.Connect(ctx, conn)
	if err == nil {
		n.client = client
		return nil
	}
	reason := n.Reason()
	n.process.Close()
	if reason != "" {
		return n.failure(language)
	}
	return fmt.Errorf("%s kernel: %w%s", language, err, n.tail)
}

// kernelspec is a kernel.json.
type kernelspec struct {
	Argv      []string          `json:"argv"`
	Language  string            `json:"language"`
	Env       map[string]string `json:"env"`
	Interrupt string            `json:"interrupt_mode"`
	dir       string
}

// specDirs are the directories of kernelspecs.
func (f Finder) specDirs() []string {
	var out []string
	for _, d := range filepath.SplitList(os.Getenv("JUPYTER_PATH")) {
		out = append(out, filepath.Join(d, "kernels"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, filepath.Join(home, ".local/share/jupyter/kernels"))
	}
	if exe, err := f.program(Python, "python3", "python"); err == nil {
		out = append(out, filepath.Join(filepath.Dir(exe), "../share/jupyter/kernels"))
	}
	return append(out, "/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")
}

// spec finds the kernelspec of a language, by its directory's name or by what it says.
func (f Finder) spec(language string) (kernelspec, error) {
	var byLanguage *kernelspec
	for _, dir := range f.specDirs() {
		files, _ := fs.Glob(os.DirFS(dir), "*/kernel.json")
		for _, file := range files {
			raw, err := os.ReadFile(filepath.Join(dir, file))
			var s kernelspec
			if err != nil || json.Unmarshal(raw, &s) != nil || len(s.Argv) == 0 {
				continue
			}
			s.dir = filepath.Join(dir, filepath.Dir(file))
			if strings.EqualFold(filepath.Base(s.dir), language) {
				return s, nil
			}
			if byLanguage == nil && strings.EqualFold(s.Language, language) {
				byLanguage = &s
			}
		}
	}
	if byLanguage == nil {
		return kernelspec{}, fmt.Errorf("%w: %q: the image has no Jupyter kernel for it", ErrUnknown,
			language)
	}
	return *byLanguage, nil
}

// notebook starts the kernel of a kernelspec.
func (f Finder) notebook(ctx context.Context, o Options, dir string, s kernelspec) (Kernel, error) {
	conn, err := jupyter.PortConnection()
	if err != nil {
		return nil, err
	}
	file, err := conn.Write(dir)
	if err != nil {
		return nil, err
	}
	argv := slices.Clone(s.Argv)
	for i, a := range argv {
		a = strings.ReplaceAll(a, "{connection_file}", file)
		argv[i] = strings.ReplaceAll(a, "{resource_dir}", s.dir)
	}
	cmd := f.command(o, argv[0], argv[1:]...)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		cmd.Env = append(cmd.Env, k+"="+s.Env[k])
	}
	p, err := start(cmd, dir)
	if err != nil {
		return nil, fmt.Errorf("%s kernel: %w", o.Language, err)
	}
	n := &notebook{process: p, byMessage: s.Interrupt == "message"}
	if n.vars = variablesOf(s.Language); n.vars != nil {
		n.vars.start(cmd.Environ())
	}
	if err := n.connect(ctx, conn, o.Language); err != nil {
		return nil, err
	}
	return n, nil
}

var _ io.Writer = (*tail)(nil)
