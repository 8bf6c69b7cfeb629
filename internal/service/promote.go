package service

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opPromote     = "promote sandbox"
	eventPromoted = "sandbox.promoted"
)

// Promote implements carrel.Moments.
func (m *moments) Promote(ctx context.Context, id carrel.ID, o carrel.PromoteOptions) (carrel.Sandbox, error) {
	b, err := m.table.find(opPromote, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	p, err := m.planPromotion(ctx, b, o)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	// The caller may hang up, but the promotion is finished.
	ctx, release, err := m.table.take(context.WithoutCancel(ctx), opPromote, b)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer release()
	if err := m.move(ctx, b, p); err != nil {
		err = b.momentError(ctx, opPromote, err)
		m.log.Warn("promote sandbox", "sandbox", id, "tier", p.tier, "err", err)
		return carrel.Sandbox{}, err
	}
	m.journal.tell(carrel.Event{Type: eventPromoted, ID: id, Message: fmt.Sprintf("moved from tier %s to %s", carrel.Sim, p.tier),
		Fields: map[string]string{"tier": string(p.tier)}})
	return b.public(), nil
}

// promotion is a checked request.
type promotion struct {
	tier carrel.Tier
	img  image.Image
	root string // the name of the image's link
}

// planPromotion checks a request before anything is changed.
func (m *moments) planPromotion(ctx context.Context, b *box, o carrel.PromoteOptions) (*promotion, error) {
	fail := func(kind carrel.Kind, field string, err error, hint string) (*promotion, error) {
		return nil, &carrel.Error{Op: opPromote, Kind: kind, ID: b.id, Field: field, Err: err, Hint: hint}
	}
	if have := b.public().Tier; have != carrel.Sim {
		return fail(carrel.Conflict, "", fmt.Errorf("it is in tier %s and runs real programs already", have), "")
	}
	tier := o.Tier
	if tier == "" {
		if tier = m.opts.DefaultTier; tier == carrel.Sim {
			tier = carrel.GVisor
		}
	}
	if tier == carrel.Sim {
		return fail(carrel.Invalid, "tier", errors.New("it is in tier sim already"), "name a tier that runs real programs: gvisor or ns")
	}
	found, err := m.resolver.template(ctx, opPromote, cmp.Or(o.Template, image.Base))
	if err != nil {
		return nil, err
	}
	img, err := m.templates.image(ctx, found, tier, m.opts.Images.Get)
	if err != nil {
		return fail(carrel.KindOf(err), "template", err, carrel.HintOf(err))
	}
	drv, err := m.creator.driver(ctx, tier, img)
	if err != nil {
		return nil, err
	}
	if !drv.Info().Capabilities.RealProcesses {
		return fail(carrel.Invalid, "tier", fmt.Errorf("tier %s runs no real programs", tier), "name one that does: gvisor or ns")
	}
	p := &promotion{tier: drv.Info().Tier, img: img}
	rec := b.record()
	rec.Sandbox.Tier, rec.Sandbox.Template, rec.Sandbox.TemplateOf, rec.Sandbox.Alias = p.tier, img.ID, img.Of, img.Name
	if err := m.rules.mayWake(ctx, opPromote, rec, 0); err != nil {
		return nil, err
	}
	if p.root, _, err = m.roots.keepRoot(img); err != nil {
		return fail(carrel.KindOf(err), "template", err, carrel.HintOf(err))
	}
	return p, nil
}

// move is the part of Promote that holds box.turn. The sandbox pauses in its old tier and wakes in
// the new one.
func (m *moments) move(ctx context.Context, b *box, p *promotion) (err error) {
	// Wait before the pause, so that a refused sandbox runs on.
	ctx, pass, err := m.gates.enterWake(ctx, opPromote, b)
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	ran := false
	switch b.public().State {
	case carrel.Running:
		if !b.setState(carrel.Running, carrel.Pausing) {
			return b.running(opPromote)
		}
		if err := m.pause(ctx, b, wish{cause: carrel.CausePromote, filesOnly: true, detail: "to tier " + string(p.tier)}); err != nil {
			return err
		}
		ran = true
	case carrel.Paused:
	default:
		return b.running(opPromote)
	}
	before := b.record()
	moved := before
	moved.Sandbox.Tier, moved.Sandbox.Template, moved.Sandbox.Alias, moved.Root = p.tier, p.img.ID, p.img.Name, p.root
	err = m.rerecord(ctx, b, moved)
	if err == nil {
		err = m.resume(ctx, b, comeback{})
	}
	if err == nil {
		return nil
	}
	// It goes on where it was.
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if rerr := m.rerecord(undo, b, before); rerr != nil {
		return fmt.Errorf("it is paused, in tier %s: %w (%w)", b.public().Tier, err, rerr)
	}
	if ran {
		if rerr := m.resume(context.WithoutCancel(ctx), b, comeback{}); rerr != nil {
			m.staysPaused(b)
			return fmt.Errorf("it is paused, in tier %s: %w (%w)", carrel.Sim, err, rerr)
		}
	}
	return err
}

// rerecord replaces the record of a paused sandbox.
func (m *moments) rerecord(ctx context.Context, b *box, rec state.Record) error {
	b.save.Lock()
	defer b.save.Unlock()
	if err := m.opts.Store.PutSandbox(ctx, rec); err != nil {
		m.records.takeBack(ctx, b, nil)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	generation := b.rec.Sandbox.Generation
	b.rec = rec
	b.rec.Sandbox.Generation = max(generation, rec.Sandbox.Generation)
	b.enrollLocked()
	return nil
}

// pour writes the files of another driver's snapshot into a sandbox whose guest is up.
func (m *moments) pour(ctx context.Context, b *box, from *origin) error {
	var files io.ReadCloser
	mark := "" // prefix of files that have no meaning here
	err := error(&carrel.Error{Kind: carrel.Unsupported, Err: fmt.Errorf("there is no driver %q to read the snapshot with", from.info.Driver)})
	for _, drv := range m.opts.Drivers.All() {
		if drv.Info().Name != from.info.Driver {
			continue
		}
		r, rerr := restorer(drv)
		if rerr != nil {
			return rerr
		}
		mark = drv.Info().ProgramMark
		files, err = r.SnapshotFiles(ctx, from.files.Dir(), from.info, driver.Spec{ID: b.id, Dir: b.dir, Limits: b.public().Limits})
	}
	if err != nil {
		return err
	}
	defer files.Close()
	conn := b.guest()
	pipe, into := io.Pipe()
	var gone []string
	sifted := make(chan error, 1)
	go func() {
		var err error
		gone, err = sift(into, files, mark)
		_ = into.CloseWithError(err)
		sifted <- err
	}()
	res, err := conn.Run(ctx, carrel.Command{Args: []string{"tar", "-x", "-p", "-f", "-", "-C", "/"}, User: "root", Dir: "/", Stdin: pipe})
	_ = pipe.CloseWithError(io.ErrClosedPipe) // nobody reads any more
	if serr := <-sifted; serr != nil && !errors.Is(serr, io.ErrClosedPipe) {
		return fmt.Errorf("read its files: %w", serr)
	}
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("tar ended with status %d: %s", res.ExitCode, bytes.TrimSpace(res.Stderr))
	}
	if err != nil {
		return &carrel.Error{Kind: carrel.KindOf(err), Err: fmt.Errorf("put its files in place: %w", err), Hint: "the template must have a shell's usual programs, tar among them"}
	}
	const batch = 500 // names in one command line
	for names := range slices.Chunk(gone, batch) {
		if _, err := conn.Run(ctx, carrel.Command{Args: append([]string{"rm", "-rf", "--"}, names...), User: "root", Dir: "/"}); err != nil {
			return fmt.Errorf("remove what it had removed: %w", err)
		}
	}
	return nil
}

// system lists the directories and files that belong to the tier, not to the sandbox's user.
var system = []string{"dev", "proc", "sys", "run/carrel", ".carrel", "etc/passwd", "etc/group", "etc/shadow", "etc/hosts", "etc/hostname", "etc/resolv.conf"}

// sift copies a tar stream. It leaves out the files of the old tier: those in system, and those
// whose name begins with mark. gone lists the paths that were deleted in the old tier.
func sift(w io.Writer, r io.Reader, mark string) (gone []string, err error) {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	dropped := map[string]bool{}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return gone, tw.Close()
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch {
		case name == "" || slices.ContainsFunc(system, func(s string) bool { return name == s || strings.HasPrefix(name, s+"/") }):
			continue
		case h.Typeflag == tar.TypeChar:
			if h.Devmajor == 0 && h.Devminor == 0 && !strings.HasPrefix(name, "usr/bin/") {
				gone = append(gone, "/"+name)
			}
			continue
		case h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeLink && dropped[strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")]:
			continue
		}
		head := make([]byte, min(h.Size, int64(len(mark))))
		if h.Typeflag == tar.TypeReg {
			if _, err := io.ReadFull(tr, head); err != nil {
				return nil, err
			}
			if mark != "" && string(head) == mark {
				dropped[name] = true
				continue
			}
		}
		h.Name, h.PAXRecords, h.Format = name, nil, tar.FormatUnknown
		if h.Typeflag == tar.TypeLink {
			h.Linkname = strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := tw.Write(head); err != nil {
				return nil, err
			}
			if _, err := io.Copy(tw, tr); err != nil {
				return nil, err
			}
		}
	}
}
