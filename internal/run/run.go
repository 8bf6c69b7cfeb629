package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/refusal"
	"github.com/carrel-dev/carrel/internal/settings"
)

// Exit statuses of our own; all others come from the command.
const (
	ExitTimeout  = 124 // --timeout, as timeout(1) does it
	exitOwn      = 125 // Carrel itself failed
	exitCantExec = 126
	exitNoSuch   = 127
)

// ErrLater means that Run needs a part that its Deps lack. It has done nothing.
var ErrLater = errors.New("this needs the whole program")

// Deps are the parts that are too heavy for the fast path.
type Deps struct {
	// Stage opens the program that builds a box from inside; nil starts this binary again.
	Stage func() (*os.File, error)
	// Last means that this process ends after the run. It leaves the clean-up of its resources to
	// the kernel.
	Last bool
	// Wire makes what a box with a network needs. Where it is nil, Whole opens the whole program,
	// which can do that beside this one.
	Wire  func(WireOptions) (Wire, error)
	Whole func() (*os.File, error)
	// Tier runs a command in a sandbox of another tier.
	Tier func(context.Context, *Job) (code int, sig syscall.Signal, err error)
}

// WireOptions are the options of Deps.Wire.
type WireOptions struct {
	Policy  carrel.Policy
	Table   string                      // file with an artificial internet, for tests
	Lookup  func(string) (string, bool) // returns a secret: a variable of the caller's environment
	Decided func(carrel.Decision)
}

// Wire is a box's way out.
type Wire interface {
	// Authority is the certificate that the box must trust, nil if TLS is never opened.
	Authority() []byte
	// Env are variables that hold placeholders for secrets.
	Env() map[string]string
	// Attach starts on the host's end of a link.
	Attach(ctx context.Context, link *os.File) error
	Close() error
}

// Job is one run.
type Job struct {
	Box    *settings.Box
	Args   []string
	Env    []string // of the command
	Caller []string // of the caller
	In     *os.File
	Out    *os.File
	Err    *os.File
	Log    *refusal.Log
	Deps   Deps
	Copy   int64 // of --copy-max, in bytes; 0 is the tier's default
	Quiet  bool

	opts    *Options
	walls   *walls
	notes   []string
	layers  []layer
	started time.Time
	keep    bool         // keep the layers after the run
	guarded func() error // checks what the box left; nil for no check

	report, diffFile *resultFile // nil where there is none
}

// Run runs the command in args and returns the exit status for this process. It may end this
// process by the signal that ended the command. Its errors are Carrel's, not the command's.
func Run(ctx context.Context, o *Options, args []string, d Deps) (int, error) {
	line, err := o.args(args)
	if err != nil && !o.dryRun && !o.explain && !o.helpsProfiles() {
		return exitOwn, err
	}
	if o.helpsProfiles() {
		return 0, printProfiles(os.Stdout)
	}
	w, err := o.ahead(d)
	if err != nil {
		return exitOwn, err
	}
	defer w.close()
	b, err := o.resolve()
	if err != nil {
		return exitOwn, err
	}
	if o.dryRun || o.explain {
		return 0, o.describe(os.Stdout, b, line)
	}
	if err := o.possible(b, d); err != nil {
		return exitOwn, err
	}
	j := &Job{Box: b, Args: line, Caller: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Log: refusal.New(refusal.Options{}), Deps: d, opts: o, walls: w, Quiet: o.quiet}
	if j.Copy, err = o.copyLimit(b); err != nil {
		return exitOwn, err
	}
	for _, n := range b.Notes {
		if n, loud := strings.CutPrefix(n, "!"); loud && !o.quiet {
			fmt.Fprintf(os.Stderr, "carrel: %s\n", n)
		}
	}
	for _, v := range b.Env {
		if v.Kept {
			j.Env = append(j.Env, v.Name+"="+v.Value)
		}
	}
	if err := j.results(); err != nil {
		return exitOwn, err
	}
	j.started = time.Now()
	code, sig, err := j.run(ctx)
	if reportErr := j.finish(code, sig); err == nil {
		err = reportErr
	}
	if err != nil {
		return j.failed(err)
	}
	if sig != 0 {
		return dieBy(sig), nil
	}
	return code, nil
}

// searchElsewhere bounds the search for secrets outside of the directories that the box writes. In
// this time an idle machine with two processors checks some hundred thousand names.
const searchElsewhere = 500 * time.Millisecond

// resolve decides about the box.
func (o *Options) resolve() (*settings.Box, error) {
	flags, err := o.layer()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, &carrel.Error{Op: "run", Kind: carrel.Invalid, Err: err, Hint: "the working directory must exist: cd to one"}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	request := settings.Request{
		Dir: dir, Home: home, Env: os.Environ(), UID: os.Getuid(), Flags: flags,
		File: o.settingsFile, NoFiles: o.noSettings, Trust: o.trust, OS: system, Elsewhere: searchElsewhere,
	}
	b, err := settings.Resolve(request)
	if err != nil || len(b.Missing) == 0 || o.dryRun || o.explain {
		return b, err
	}
	var notes []string
	for _, dir := range b.Missing {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			notes = append(notes, fmt.Sprintf("!a profile needs %s, which can't be made: %v", dir, err))
		}
	}
	if b, err = settings.Resolve(request); err != nil {
		return nil, err
	}
	b.Notes = append(b.Notes, notes...)
	return b, nil
}

// possible checks, before anything is done, that all needed parts are there.
func (o *Options) possible(b *settings.Box, d Deps) error {
	other := b.Tier != "" && b.Tier != carrel.NS
	if (o.apply || o.diff != "") && !b.Overlay {
		return invalid("--apply", errors.New("--diff and --apply are for --overlay"))
	}
	if other && d.Tier == nil || !other && !b.Closed && !b.Host && d.Wire == nil && (d.Whole == nil || !carried(b.Policy)) {
		return ErrLater
	}
	return nil
}

// run chooses the walls.
func (j *Job) run(ctx context.Context) (int, syscall.Signal, error) {
	if j.Box.Tier != "" && j.Box.Tier != carrel.NS {
		return j.tiered(ctx)
	}
	return j.box(ctx)
}

// finish says what was refused.
func (j *Job) finish(code int, sig syscall.Signal) error {
	list, dropped := j.Log.List()
	if !j.opts.quiet {
		if text := refusal.Summary(refusal.Abbreviate(list, j.Box.Home), dropped, 10); text != "" {
			fmt.Fprint(j.Err, text)
		}
	}
	if j.opts.report == "" {
		return nil
	}
	r := refusal.Report{Version: 1, Command: j.Args, Dir: j.Box.Dir, Tier: string(j.tier()), Started: j.started, Ended: time.Now(),
		ExitCode: code, Refused: list, Dropped: dropped, Notes: j.notes}
	if r.Refused == nil {
		r.Refused = []refusal.Refusal{}
	}
	if sig != 0 {
		r.Signal, r.ExitCode = signalName(sig), 128+int(sig)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	return j.report.write(text)
}

// results opens the directories of the files to write after the command.
func (j *Job) results() (err error) {
	if j.opts.report != "" {
		if j.report, err = openResult(j.Box, "--report", j.opts.report); err != nil {
			return err
		}
	}
	if j.opts.diff != "" && j.opts.diff != "-" {
		j.diffFile, err = openResult(j.Box, "--diff", j.opts.diff)
	}
	return err
}

// Keeps reports whether changes that could not be carried out must stay where they are.
func (j *Job) Keeps() bool { return j.keep }

// Note adds to the report something that this host could not do.
func (j *Job) Note(text string) { j.notes = append(j.notes, text) }

// tier is the walls' name.
func (j *Job) tier() carrel.Tier {
	if j.Box.Tier == "" {
		return carrel.NS
	}
	return j.Box.Tier
}

// failed turns an error into an exit status. If the command could not be executed, it is a shell's
// status for that.
func (j *Job) failed(err error) (int, error) {
	var exec *os.PathError
	if errors.As(err, &exec) && exec.Op == "exec" {
		code := exitCantExec
		if errors.Is(err, syscall.ENOENT) {
			code = exitNoSuch
		}
		fmt.Fprintf(j.Err, "carrel: %s: %v\n", printable(exec.Path), exec.Err)
		return code, nil
	}
	return exitOwn, err
}

// describe prints the box.
func (o *Options) describe(w io.Writer, b *settings.Box, line []string) error {
	if o.JSON {
		return json.NewEncoder(w).Encode(struct {
			Command []string `json:"command,omitempty"`
			Dir     string   `json:"dir"`
			Lines   []string `json:"lines"`
		}{line, b.Dir, b.Explain(o.explain)})
	}
	text := strings.Join(b.Explain(o.explain), "\n") + "\n"
	if len(line) > 0 {
		for i := range line {
			line[i] = printable(line[i])
		}
		text = "command: " + strings.Join(line, " ") + "\n" + text
	}
	_, err := io.WriteString(w, text)
	return err
}

// helpsProfiles reports whether the user asked for the list of profiles and not for a run.
func (o *Options) helpsProfiles() bool { return len(o.profiles) == 1 && o.profiles[0] == "help" }

// printProfiles lists the values of --profile.
func printProfiles(w io.Writer) error {
	for _, p := range settings.Profiles() {
		if _, err := fmt.Fprintf(w, "%-14s %s\n", p.Name, p.Description); err != nil {
			return err
		}
	}
	return nil
}

// diffTarget opens the target of --diff.
func (j *Job) diffTarget() (io.WriteCloser, error) {
	if j.opts.diff == "-" {
		return nopCloser{j.Out}, nil
	}
	return j.diffFile.create()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// printable makes a text safe for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != utf8.RuneError && unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// printableLines makes a text of several lines safe for a terminal.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
