package bench

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

// The templates whose creates are compared.
const (
	builtPlain   = "bench-built"
	builtStarted = "bench-started"
)

// builtMore is what the Dockerfile of each built template has after its step.
var builtMore = map[string]string{
	builtPlain: "",
	builtStarted: "CMD exec python3 -m http.server 8080\n" +
		"HEALTHCHECK --start-interval=100ms CMD python3 -c " +
		`'import socket; socket.create_connection(("127.0.0.1", 8080))'` + "\n",
}

// benchBuilt measures creates, in turns: of the base, of a template that was built from a
// Dockerfile, and of one with a start command, whose sandboxes go on from a server that listens
// already. A template should cost nothing at its creates. They are measured without a pool, and
// with the pool that a daemon has by default.
func benchBuilt(ctx context.Context, s *session) ([]row, error) {
	cold, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.raceBuilt(ctx, cold, "built", 0)
	if err != nil || !s.serveHas(ctx, "--warm-floor") {
		return rows, err
	}
	warm, err := s.daemon(ctx, "--warm", "8", "--warm-floor", "base=1")
	if err != nil {
		return nil, err
	}
	defer warm.stop()
	more, err := s.raceBuilt(ctx, warm, "built.warm", 3)
	for i := range more {
		more[i].Name = "with the pool: " + strings.TrimSpace(more[i].Name)
	}
	return append(rows, more...), err
}

// raceBuilt builds the templates in a daemon and races creates from them. kinds is how many
// sandboxes its pool has ready before each create.
func (s *session) raceBuilt(ctx context.Context, d *daemon, prefix string,
	kinds int) ([]row, error) {
	for name, more := range builtMore {
		err := d.makeTemplate(ctx, name, "FROM template://base\nRUN echo built > ~/built\n"+more)
		if err != nil {
			return nil, err
		}
	}
	const warmUp = 2
	returned := make([][]float64, 3)
	var list []*runner
	for i, name := range []string{"base", builtPlain, builtStarted} {
		opts := base(carrel.GVisor)
		opts.Template = name
		r := d.starting(name, opts, &returned[i])
		r.gap = createGap
		if kinds > 0 {
			if err := d.ask(ctx, opts); err != nil {
				return nil, err
			}
			r = d.rested(r, kinds)
		}
		list = append(list, r)
	}
	if err := race(ctx, warmUp, s.o.samples(40), list...); err != nil {
		return nil, err
	}
	var rows []row
	for i, what := range []string{"the base", "a template of a Dockerfile",
		"a template with a start command"} {
		key := prefix + "." + []string{"base", "plain", "started"}[i]
		rows = append(rows,
			summarise("create from "+what+" → first command's output", "ms", list[i].times).key(key),
			summarise("  of which until create returned", "ms", returned[i][warmUp:]).key(key+".returned"))
		if i > 0 {
			rows = append(rows, atMost(ratio("  ÷ the base", list[i].times, list[0].times),
				1.1).key(key+"/base"))
		}
	}
	return rows, nil
}

// ask makes a sandbox and ends it, so that the pool knows its kind.
func (d *daemon) ask(ctx context.Context, opts carrel.CreateOptions) error {
	sb, err := d.svc.Create(ctx, opts)
	if err != nil {
		return err
	}
	return d.svc.Kill(ctx, sb.ID)
}

// makeTemplate builds a template of a Dockerfile.
func (d *daemon) makeTemplate(ctx context.Context, name, dockerfile string) error {
	b, err := d.svc.StartBuild(ctx, carrel.BuildSpec{Name: name, Dockerfile: dockerfile,
		Tier: carrel.GVisor})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for l, err := range d.svc.BuildLogs(ctx, b.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			return err
		}
		fmt.Fprintln(&text, l.Message)
	}
	if b, err = d.svc.GetBuild(ctx, b.ID); err == nil && b.State != carrel.BuildReady {
		err = fmt.Errorf("template %s could not be built:\n%s", name, &text)
	}
	return err
}
