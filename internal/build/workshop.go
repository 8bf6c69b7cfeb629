package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/driver"
)

// workshop is the sandbox of a stage.
type workshop struct {
	sandboxes Sandboxes
	id        carrel.ID
	inside    carrel.Computer
	network   carrel.Network
	opens     bool // the network's rules make the guest trust an authority
	count     int  // of names given by temp
}

const (
	endTime   = time.Minute // for the end of a workshop
	orderTime = 30 * time.Minute
	// answerTime bounds one question that a living sandbox answers at once.
	answerTime = 2 * time.Second
	// muteTime is how long a sandbox may answer nothing before explain takes it for one that lives.
	// goneTime bounds the wait for one whose end is under way: the service gives that end half a
	// minute.
	muteTime     = 10 * time.Second
	goneTime     = 40 * time.Second
	explainPause = 50 * time.Millisecond
)

// openWorkshop makes a sandbox.
func (r *run) openWorkshop(ctx context.Context, image string,
	layer carrel.SnapshotID) (*workshop, error) {
	limits := carrel.Limits{CPUs: r.spec.CPUs, MemoryMB: r.spec.MemoryMB, DiskMB: r.diskMB()}
	network := r.network()
	sb, err := r.e.opts.Sandboxes.CreateWorkshop(ctx, r.j.public().ID, image, layer,
		carrel.CreateOptions{Tier: r.tier, NoTimeout: true, Limits: limits, Network: network})
	if err != nil {
		return nil, err
	}
	w := &workshop{sandboxes: r.e.opts.Sandboxes, id: sb.ID, network: network}
	w.opens = len(network.Rules) > 0 || network.Policy != nil && len(network.Policy.Rules) > 0
	if w.inside, err = r.e.opts.Sandboxes.Computer(ctx, sb.ID); err != nil {
		w.close(ctx)
		return nil, err
	}
	return w, nil
}

// close ends the sandbox.
func (w *workshop) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	_ = w.sandboxes.Kill(ctx, w.id) // it may have ended by itself; the next engine ends the rest
}

// explain returns why the sandbox ended, if it ended by itself during a step, and else err. The
// connection to a sandbox breaks before anybody knows that the sandbox has ended, and the reason is
// known last. So explain waits until the sandbox answers, which means that it lives, or is gone.
func (w *workshop) explain(ctx context.Context, err error) error {
	began := time.Now()
	for ctx.Err() == nil {
		_, gone := w.sandboxes.Computer(ctx, w.id)
		limit := goneTime // its end is under way
		switch {
		case carrel.KindOf(gone) == carrel.NotFound:
			return &carrel.Error{Kind: carrel.Exhausted,
				Err: fmt.Errorf("the sandbox of the build ended: %w", gone), Hint: carrel.HintOf(gone)}
		case gone == nil && w.answers(ctx):
			return err
		case gone == nil:
			limit = muteTime
		}
		if time.Since(began) >= limit {
			return err
		}
		select {
		case <-time.After(explainPause):
		case <-ctx.Done():
		}
	}
	return err
}

// answers reports whether the sandbox's guest answers.
func (w *workshop) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := w.inside.Files("root").Stat(ctx, "/")
	return err == nil
}

// temp returns a name for a temporary file inside.
func (w *workshop) temp() string {
	w.count++
	return fmt.Sprintf("/.carrel-build-%d.tar", w.count)
}

// order has the guest carry an order out. It returns the output.
func (w *workshop) order(ctx context.Context, o bundle.Order) ([]byte, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	res, err := w.inside.Run(ctx, carrel.Command{Args: []string{driver.GuestPath, "bundle",
		string(raw)}, User: "root", Dir: "/", Timeout: orderTime})
	if err != nil {
		return nil, err
	}
	if res.ExitCode != 0 {
		text := strings.TrimPrefix(strings.TrimSpace(string(res.Stderr)), "carrel-guest: ")
		if text == "" {
			text = res.Status
		}
		return nil, &carrel.Error{Kind: carrel.Invalid, Err: errors.New(text)}
	}
	return res.Stdout, nil
}

// settle kills every process that a step left.
func (w *workshop) settle(ctx context.Context) error {
	_, err := w.order(ctx, bundle.Order{Settle: true})
	return err
}

// unpack unpacks a stream inside.
func (w *workshop) unpack(ctx context.Context, r io.Reader, at bundle.Placement) error {
	name := w.temp()
	if _, err := w.inside.Files("root").Write(ctx, name, r); err != nil {
		return err
	}
	_, err := w.order(ctx, bundle.Order{Unpack: &bundle.UnpackOrder{Placement: at, Archive: name}})
	return err
}

// pack packs files inside and hands the stream to use.
func (w *workshop) pack(ctx context.Context, sel bundle.Selection, missing bool,
	use func(bundle.Packed, io.Reader) error) error {
	name := w.temp()
	out, err := w.order(ctx, bundle.Order{Pack: &bundle.PackOrder{Selection: sel, Archive: name,
		Missing: missing}})
	if err != nil {
		return err
	}
	// it would only take space
	defer func() { _, _ = w.order(ctx, bundle.Order{Remove: []string{name}}) }()
	var packed bundle.Packed
	if err := json.Unmarshal(out, &packed); err != nil {
		return fmt.Errorf("the guest's answer: %w", err)
	}
	f, err := w.inside.Files("root").Read(ctx, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return use(packed, f)
}

// keep keeps the files as a layer, which stays at least until release. Nothing of the network's
// rules is in it.
func (w *workshop) keep(ctx context.Context,
	key string) (sn carrel.Snapshot, release func(), err error) {
	if w.opens {
		if _, err := w.order(ctx, bundle.Order{Distrust: true}); err != nil {
			return carrel.Snapshot{}, nil, err
		}
	}
	sn, release, err = w.sandboxes.KeepLayer(ctx, w.id, key)
	if !w.opens {
		return sn, release, err
	}
	if _, terr := w.order(ctx, bundle.Order{Trust: true}); terr != nil {
		if release != nil {
			release()
		}
		return carrel.Snapshot{}, nil, errors.Join(err, terr)
	}
	return sn, release, err
}

// cut takes the network away.
func (w *workshop) cut(ctx context.Context) error {
	_, err := w.sandboxes.SetNetwork(ctx, w.id, carrel.Network{})
	return err
}

// join gives it back.
func (w *workshop) join(ctx context.Context) error {
	_, err := w.sandboxes.SetNetwork(ctx, w.id, w.network)
	return err
}

// logWriter writes a command's output into the log, line by line.
type logWriter struct {
	j             *job
	level, source string
	step          string
	redact        *strings.Replacer

	mu   sync.Mutex
	part []byte
	tail *tail // of both outputs
}

// Write implements io.Writer.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail.add(p)
	w.part = append(w.part, p...)
	for {
		i := bytes.IndexAny(w.part, "\n\r")
		if i < 0 && len(w.part) < maxLogLine {
			return len(p), nil
		}
		rest := i + 1
		if i < 0 {
			i, rest = maxLogLine, maxLogLine
		}
		w.line(w.part[:i])
		w.part = w.part[rest:]
	}
}

// flush writes what is left.
func (w *logWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line(w.part)
	w.part = nil
}

// line writes one line. Empty lines are left out.
func (w *logWriter) line(raw []byte) {
	text := w.redact.Replace(strings.TrimRight(strings.ToValidUTF8(string(raw), "�"), " \t"))
	if text == "" {
		return
	}
	w.j.write(carrel.BuildLog{Time: time.Now().UTC(), Level: w.level, Source: w.source, Message: text,
		Step: w.step})
}

// tail keeps the end of an output.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 2000

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if len(t.data) > tailBytes {
		t.data = append([]byte(nil), t.data[len(t.data)-tailBytes:]...)
	}
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(t.data), "�"),
		func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(lines[i]); text != "" {
			const most = 300
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") + "…"
			}
			return text
		}
	}
	return ""
}
