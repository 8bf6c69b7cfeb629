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
	"github.com/carrel-dev/carrel/internal/guest"
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
	m.journal.tell(carrel.Event{Type: eventPromoted, ID: id, Message: fmt.Sprintf("moved from tier %s to %s", p.from, p.tier),
		Fields: map[string]string{"tier": string(p.tier)}})
	return b.public(), nil
}

// promotion is a checked request.
type promotion struct {
	from, tier carrel.Tier
	img        image.Image
	root       string // the name of the image's link
}

// planPromotion checks a request before anything is changed.
func (m *moments) planPromotion(ctx context.Context, b *box, o carrel.PromoteOptions) (*promotion, error) {
	fail := func(kind carrel.Kind, field string, err error, hint string) (*promotion, error) {
		return nil, &carrel.Error{Op: opPromote, Kind: kind, ID: b.id, Field: field, Err: err, Hint: hint}
	}
	have, tier, template := b.public().Tier, o.Tier, cmp.Or(o.Template, image.Base)
	if have != carrel.Sim { // a simulated sandbox has no template
		template = cmp.Or(o.Template, b.public().Template)
	}
	if tier == "" && have != carrel.Sim {
		return fail(carrel.Invalid, "tier", fmt.Errorf("it is in tier %s and runs real programs already", have), "name the tier that it moves to")
	}
	if tier == "" {
		if tier = m.opts.DefaultTier; tier == carrel.Sim {
			tier = carrel.GVisor
		}
	}
	switch {
	case tier == have:
		return fail(carrel.Invalid, "tier", fmt.Errorf("it is in tier %s already", have), "name another tier that runs real programs: gvisor, ns or microvm")
	case tier == carrel.Sim:
		return fail(carrel.Invalid, "tier", fmt.Errorf("it is in tier %s, whose programs no simulated sandbox runs", have), "name another tier that runs real programs: gvisor, ns or microvm")
	}
	found, err := m.resolver.template(ctx, opPromote, template)
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
		return fail(carrel.Invalid, "tier", fmt.Errorf("tier %s runs no real programs", tier), "name one that does: gvisor, ns or microvm")
	}
	p := &promotion{from: have, tier: drv.Info().Tier, img: img}
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
			return fmt.Errorf("it is paused, in tier %s: %w (%w)", p.from, err, rerr)
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
	sr, ok := m.snaps.Get(from.id)
	if !ok {
		return &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("snapshot %s is gone", from.id)}
	}
	files, err := m.archive.openFiles(ctx, from, sr)
	if err != nil {
		return err
	}
	defer files.Close()
	old := files.driver.Info()
	how := sieve{mark: old.ProgramMark, real: old.Capabilities.RealProcesses}
	p := &pourer{conn: b.guest(), args: []string{"tar", "-x", "-p", "-f", "-", "-C", "/"}}
	if how.real {
		// Not every tar knows attributes.
		if res, err := p.conn.Run(ctx, carrel.Command{Args: append(p.args[:1:1], "--xattrs", "--version"), User: "root", Dir: "/"}); err == nil && res.ExitCode == 0 {
			p.args = append(p.args, "--xattrs", "--xattrs-include=*")
		}
	}
	how.clear = func(dir string) (io.Writer, error) { return p.clear(ctx, dir) }
	gone, err := sift(p.begin(ctx), files, how)
	if terr := p.end(err); terr != nil {
		return &carrel.Error{Kind: carrel.KindOf(terr), Err: fmt.Errorf("put its files in place: %w", terr), Hint: "the template must have a shell's usual programs, tar among them"}
	}
	if err != nil {
		return fmt.Errorf("read its files: %w", err)
	}
	const batch = 500 // names in one command line
	for names := range slices.Chunk(gone, batch) {
		if err := p.remove(ctx, names...); err != nil {
			return fmt.Errorf("remove what it had removed: %w", err)
		}
	}
	return nil
}

// pourer has a sandbox unpack a stream, in one run of its tar after the other.
type pourer struct {
	conn *guest.Conn
	args []string // of tar
	pipe *io.PipeWriter
	done chan error // gets the end of the present run
	err  error      // of the first run that failed
}

// begin starts a run. What is written is unpacked.
func (p *pourer) begin(ctx context.Context) io.Writer {
	r, w := io.Pipe()
	p.pipe, p.done = w, make(chan error, 1)
	go func() {
		res, err := p.conn.Run(ctx, carrel.Command{Args: p.args, User: "root", Dir: "/", Stdin: r})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("tar ended with status %d: %s", res.ExitCode, bytes.TrimSpace(res.Stderr))
		}
		_ = r.CloseWithError(io.ErrClosedPipe) // nobody reads any more
		p.done <- err
	}()
	return w
}

// end ends the present run, and returns the error of the first one that failed. why is the writer's
// own error.
func (p *pourer) end(why error) error {
	if p.done == nil {
		return p.err
	}
	_ = p.pipe.CloseWithError(why)
	err := <-p.done
	p.done = nil
	if why == nil || errors.Is(why, io.ErrClosedPipe) { // else tar only saw a stream that ended early
		p.err = err
	}
	return p.err
}

// clear ends the run, removes a directory of the template's, and begins another run.
func (p *pourer) clear(ctx context.Context, dir string) (io.Writer, error) {
	err := p.end(nil)
	if err == nil {
		err = p.remove(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
	return p.begin(ctx), nil
}

// remove removes files inside.
func (p *pourer) remove(ctx context.Context, names ...string) error {
	_, err := p.conn.Run(ctx, carrel.Command{Args: append([]string{"rm", "-rf", "--"}, names...), User: "root", Dir: "/"})
	return err
}

// system lists the directories and files that belong to the tier, not to the sandbox's user.
var system = []string{"dev", "proc", "sys", "run/carrel", ".carrel", "etc/hosts", "etc/hostname", "etc/resolv.conf"}

// simulated lists those that a simulated sandbox has as well: its users are not the template's.
var simulated = []string{"etc/passwd", "etc/group", "etc/shadow"}

// Records of a tar stream.
const (
	recordAttr   = "SCHILY.xattr."
	recordOpaque = recordAttr + "trusted.overlay.opaque"
)

// sieve says what sift leaves out.
type sieve struct {
	real bool   // the old tier ran real programs
	mark string // prefix of files that have no meaning here
	// clear removes what the template has in a directory, and returns the writer for the rest of the
	// stream.
	clear func(dir string) (io.Writer, error)
}

// passes reports whether a file belongs to the sandbox's user.
func (s sieve) passes(name string) bool {
	within := func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	return name != "" && !slices.ContainsFunc(system, within) && (s.real || !slices.ContainsFunc(simulated, within))
}

// attributes returns those of a file that a program may have set.
func (s sieve) attributes(records map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range records {
		name, ok := strings.CutPrefix(key, recordAttr)
		if ok && s.real && (strings.HasPrefix(name, "user.") || name == "security.capability") {
			out[key] = value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// sift copies a tar stream. It leaves out the files of the old tier: those in system, and those
// that begin with the mark. gone lists the paths that were deleted in the old tier.
func sift(w io.Writer, r io.Reader, how sieve) (gone []string, err error) {
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
		case !how.passes(name):
			continue
		case h.Typeflag == tar.TypeDir && how.real && h.PAXRecords[recordOpaque] == "y":
			err := tw.Close()
			if err == nil {
				w, err = how.clear("/" + name)
			}
			if err != nil {
				return nil, err
			}
			tw = tar.NewWriter(w)
		case h.Typeflag == tar.TypeChar:
			if h.Devmajor == 0 && h.Devminor == 0 && (how.real || !strings.HasPrefix(name, "usr/bin/")) {
				gone = append(gone, "/"+name)
			}
			continue
		case h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeLink && dropped[strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")]:
			continue
		}
		head := make([]byte, min(h.Size, int64(len(how.mark))))
		if h.Typeflag == tar.TypeReg {
			if _, err := io.ReadFull(tr, head); err != nil {
				return nil, err
			}
			if how.mark != "" && string(head) == how.mark {
				dropped[name] = true
				continue
			}
		}
		h = &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
			ModTime: h.ModTime, PAXRecords: how.attributes(h.PAXRecords)}
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
