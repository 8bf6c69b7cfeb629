package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// buildFollower shows a build until its end.
type buildFollower struct {
	*app
	svc        carrel.Service
	quiet      bool
	dockerfile string
	begun      time.Time
	id         string            // of the build
	steps      int               // how many the build has; 0 is not known yet
	lines      []carrel.BuildLog // kept while quiet, to show them if the build fails
}

// keptLogLines is how much of a quiet build's log is shown when it fails.
const keptLogLines = 50

// run follows a build to its end and prints the result. If it is interrupted, it cancels the build.
func (f *buildFollower) run(ctx context.Context, b carrel.Build) error {
	var failed error
	f.id = b.ID
	for l, err := range f.svc.BuildLogs(ctx, b.ID,
		carrel.BuildLogOptions{Follow: true, MinLevel: "info"}) {
		if err != nil {
			failed = err
			break
		}
		l.Message = f.number(ctx, l) + l.Message
		f.show(l)
	}
	if ctx.Err() != nil {
		return f.cancel(ctx, b)
	}
	if failed != nil {
		return failed
	}
	id := b.ID
	b, err := f.svc.GetBuild(ctx, id)
	switch {
	case ctx.Err() != nil:
		return f.cancel(ctx, carrel.Build{ID: id})
	case err != nil:
		return err
	case b.State == carrel.BuildReady:
		return f.result(ctx, b)
	case b.State == carrel.BuildCancelled:
		return &carrel.Error{Op: "build template", Kind: carrel.Conflict,
			Err: errors.New("the build was cancelled")}
	}
	for _, l := range f.lines {
		f.print(l)
	}
	return f.withExcerpt(f.dockerfile, buildFailure(b))
}

// show prints a line, or keeps it.
func (f *buildFollower) show(l carrel.BuildLog) {
	if !f.quiet {
		f.print(l)
		return
	}
	if f.lines = append(f.lines, l); len(f.lines) > keptLogLines {
		f.lines = f.lines[1:]
	}
}

func (f *buildFollower) print(l carrel.BuildLog) { fmt.Fprintln(f.err, buildLine(l)) }

// number is the number of the step that a line of the engine begins, as "[3/7] ".
func (f *buildFollower) number(ctx context.Context, l carrel.BuildLog) string {
	n, err := strconv.Atoi(l.Step)
	if l.Source != "build" || l.Level != "info" || err != nil {
		return ""
	}
	if f.steps == 0 {
		if b, err := f.svc.GetBuild(ctx, f.id); err == nil {
			f.steps = len(b.Steps)
		}
	}
	return fmt.Sprintf("[%d/%d] ", n, max(n, f.steps))
}

// buildLine writes a line of a build's log for people. Output of a step is indented.
func buildLine(l carrel.BuildLog) string {
	text := printable(strings.TrimRight(l.Message, "\r\n"))
	switch {
	case l.Source == "stdout" || l.Source == "stderr":
		return "    " + text
	case l.Level == "warn" || l.Level == "error":
		return l.Level + ": " + text
	}
	return text
}

// cancel ends the build of an interrupted command.
func (f *buildFollower) cancel(ctx context.Context, b carrel.Build) error {
	fmt.Fprintln(f.err, "carrel: cancelling the build")
	detached, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer stop()
	if _, err := f.svc.CancelBuild(detached, b.ID); err != nil {
		return &carrel.Error{Op: "cancel build", Kind: carrel.KindOf(err), Err: err,
			Hint: "end it with: carrel build cancel " + b.ID}
	}
	return ctx.Err()
}

// result prints the template that a build made.
func (f *buildFollower) result(ctx context.Context, b carrel.Build) error {
	t, err := f.svc.GetTemplate(ctx, first(b.Image, b.TemplateID))
	if err != nil {
		return err
	}
	if f.json {
		return f.printJSON(map[string]any{"build": b, "template": t})
	}
	if f.quiet {
		fmt.Fprintln(f.out, b.TemplateID)
		return nil
	}
	cached := 0
	for _, s := range b.Steps {
		if s.Cached {
			cached++
		}
	}
	fmt.Fprintf(f.err, "built %s in %s: %d steps, %d of them from the cache\n", printable(b.Name),
		f.now().Sub(f.begun).Round(10*time.Millisecond),
		len(b.Steps), cached)
	fmt.Fprintln(f.out, b.TemplateID, first(t.Digest, t.ID))
	return nil
}

// buildFailure is the error of a failed build.
func buildFailure(b carrel.Build) error {
	e := &carrel.Error{Op: "build template", Kind: carrel.Internal,
		Err: errors.New("the build failed")}
	if b.Reason == nil {
		return e
	}
	where := ""
	if b.Reason.Line > 0 {
		where = fmt.Sprintf("line %d: ", b.Reason.Line)
	}
	if strings.Contains(b.Reason.Message, strings.TrimSuffix(where, ": ")) {
		where = "" // it says so itself
	}
	e.Err, e.Hint = errors.New(where+b.Reason.Message), b.Reason.Hint
	if e.Hint == "" {
		e.Hint = "the whole log: carrel build logs " + b.ID
	}
	return e
}

// errorLine finds the line of a Dockerfile in an error's text.
var errorLine = regexp.MustCompile(`\bline (\d+)\b`)

// withExcerpt prints the lines of a Dockerfile around that of an error, and returns the error.
func (a *app) withExcerpt(dockerfile string, err error) error {
	m := errorLine.FindStringSubmatch(err.Error())
	if m == nil || dockerfile == "" {
		return err
	}
	at, _ := strconv.Atoi(m[1])
	lines := strings.Split(dockerfile, "\n")
	if at < 1 || at > len(lines) {
		return err
	}
	for n := max(1, at-2); n <= min(len(lines), at+2); n++ {
		mark := " "
		if n == at {
			mark = ">"
		}
		text := printable(strings.ReplaceAll(strings.TrimRight(lines[n-1], "\r"), "\t", "    "))
		if text != "" || n == at {
			fmt.Fprintf(a.err, "%s %4d | %s\n", mark, n, text)
		}
	}
	return err
}
