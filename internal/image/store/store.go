package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/image/registry"
)

// The IDs of the built-in templates. They never change.
const (
	BaseID = "carrelbase0000000000"
	HostID = "carrelhost0000000000"
	SimID  = "carrelsim00000000000"
	// Sim is the name of the template of the simulated tier.
	Sim = image.Sim
)

// Options configures a Store. Only Dir is required.
type Options struct {
	Dir string // directory of the templates; made if missing
	// CacheDir is the directory of the built-in templates. The stores of one user share it. "" is a
	// directory inside Dir.
	CacheDir string
	// MaxBytes and MaxEntries bound one template; 0 is 64 GiB and 2,000,000.
	MaxBytes   int64
	MaxEntries int64
	// Host says how to make the built-in template host.
	Host hostbase.Options
	// BuiltIns are more built-in templates. The one with BaseID is made only by Make and
	// PrepareBase. Until then host stands in for it.
	BuiltIns []image.BuiltIn
	// NoFirstUse makes all of them only by Make, and not at their first use.
	NoFirstUse bool
	// HostBase lets host stand in for base for ever.
	HostBase bool

	Logger *slog.Logger
	// Registries is the access to registries. Its Cache and Logger are the store's.
	Registries registry.Config
	// LayerCache bounds the kept layers of pulled images, in bytes; 0 is 4 GiB, a negative one keeps
	// none.
	LayerCache int64
	// Now replaces time.Now in tests.
	Now func() time.Time
}

// Store keeps templates in a directory.
type Store struct {
	opts       Options
	limits     archive.Limits
	host       *cached
	builtIns   *builtIns
	registries *registry.Client
	lock       *os.File // DIR/.lock

	checks   checks
	lazies   *lazies
	bases    keyLocks   // one pull of a base at a time
	thinning sync.Mutex // one Thin at a time
	wholes   keyLocks   // one making of a thin template's image at a time
	shares   struct {   // sharesBlocks
		once sync.Once
		able bool
	}
	opened time.Time

	mu     sync.Mutex
	byID   map[string]*entry
	held   map[string]int         // images that Collect must leave, and how many hold each
	lent   map[string]image.Image // by ID
	packed map[string]packed      // templates as layers, by ID
	used   map[string]time.Time   // the last Get, by ID
}

var _ image.Store = (*Store)(nil)

// entry is a template and its order among those of one name.
type entry struct {
	image.Image
	Sums string `json:"sums,omitempty"` // digest of the image's checksums
	old  bool   // another has taken its name
}

// ownName is a name within a project, with its tag; "" is the default one.
type ownName struct{ project, name, tag string }

func (e *entry) own() ownName { return ownName{e.Project, e.Name, e.Tag} }

const (
	imageFile    = "image.erofs"
	manifestFile = "template.json"
)

// Open opens or makes a store and removes leftovers of crashes.
func Open(ctx context.Context, opts Options) (*Store, error) {
	const op = "open template store"
	if opts.Dir == "" {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "Dir", Err: errors.New("no directory given")}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, archive.Classify(op, err)
	}
	opts.Dir = dir
	opts.CacheDir = cmp.Or(opts.CacheDir, filepath.Join(dir, ".cache"))
	if opts.CacheDir, err = filepath.Abs(opts.CacheDir); err != nil {
		return nil, archive.Classify(op, err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Registries.Cache = registry.NewCache(filepath.Join(opts.CacheDir, "layers"), opts.LayerCache,
		opts.Logger)
	opts.Registries.Logger = opts.Logger
	registries, err := registry.New(opts.Registries)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, archive.Classify(op, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, archive.Classify(op, err)
	}
	s := &Store{opts: opts, lock: lock, registries: registries, byID: map[string]*entry{},
		held: map[string]int{}, lent: map[string]image.Image{}, packed: map[string]packed{},
		used: map[string]time.Time{}, opened: opts.Now(),
		host:     newHost(opts),
		lazies:   newLazies(),
		builtIns: newBuiltIns(opts),
		limits:   archive.Limits{MaxBytes: opts.MaxBytes, MaxEntries: opts.MaxEntries}}
	err = s.load(ctx)
	if err == nil {
		err = s.openBuiltIns(ctx)
	}
	if err != nil {
		_ = s.builtIns.close()
		_ = lock.Close()
		return nil, archive.Classify(op, err)
	}
	fills(s).openLazy()
	return s, nil
}

// load reads the manifests and sweeps leftovers.
func (s *Store) load(ctx context.Context) error {
	if err := lockFile(ctx, s.lock, true); err != nil {
		return err
	}
	defer unlockFile(s.lock)
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return err
	}
	newest := map[ownName]*entry{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		t, err := s.readManifest(e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // never finished, or half removed
			s.sweep(e.Name(), err)
			continue
		case err != nil:
			// Manifests appear whole. So this one was damaged later, or can't be read just now.
			// Keep the image: it may be the only copy of somebody's work.
			s.opts.Logger.Warn("a template can't be used and is left alone", "id", e.Name(), "err", err)
			continue
		}
		if strings.HasPrefix(t.Name, image.DraftMark) {
			s.sweep(t.ID, errors.New("its build did not end"))
			continue
		}
		s.byID[t.ID] = t
		if n := newest[t.own()]; n == nil || t.Created.After(n.Created) {
			newest[t.own()] = t
		}
	}
	for id, t := range s.byID {
		if newest[t.own()] != t {
			delete(s.byID, id)
			s.sweep(id, errors.New("another template has taken its name"))
		}
	}
	return nil
}

// readManifest reads the template whose directory is named id.
func (s *Store) readManifest(id string) (*entry, error) {
	raw, err := os.ReadFile(filepath.Join(s.opts.Dir, id, manifestFile))
	if err != nil {
		return nil, err
	}
	t := &entry{}
	if err := json.Unmarshal(raw, &t.Template); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &struct {
		Sums *string `json:"sums"`
	}{&t.Sums}); err != nil {
		return nil, err
	}
	if t.ID != id {
		return nil, fmt.Errorf("the manifest is of %q", t.ID)
	}
	t.Project = cmp.Or(t.Project, carrel.DefaultProject) // it is older than projects
	t.Path = filepath.Join(s.opts.Dir, id, imageFile)
	dir := filepath.Dir(t.Path)
	if _, err := os.Stat(t.Path); err != nil && !isThin(dir) {
		return nil, err
	}
	return t, removeHalves(dir)
}

// sweep removes a directory that is no template, unless a process is making it. It removes only
// files that this package made.
func (s *Store) sweep(id string, why error) {
	if !isID(id) {
		return
	}
	dir := filepath.Join(s.opts.Dir, id)
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if !tryLock(f, true) {
		return
	}
	s.opts.Logger.Info("removing a leftover template", "id", id, "why", why)
	if err := removeTemplate(dir); err != nil {
		s.opts.Logger.Warn("removing a leftover template", "id", id, "err", err)
	}
}

// removeTemplate removes the manifest first. So a crash leaves a leftover and not half a template.
func removeTemplate(dir string) error {
	if err := os.Remove(filepath.Join(dir, manifestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Close releases the store. Images in use stay usable.
func (s *Store) Close() error {
	s.lazies.close()
	s.registries.Close()
	return errors.Join(s.builtIns.close(), s.host.close(), closeOnce(s.lock))
}

func closeOnce(f *os.File) error {
	if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// List returns all templates, by name. A built-in template other than base, host and sim is in it
// once it has been made. A template without the default tag is in it with its newest tag.
func (s *Store) List(ctx context.Context) ([]image.Image, error) {
	all := []image.Image{s.listedBase(), s.host.listed(), simTemplate()}
	for _, t := range s.builtIns.all {
		if img := t.listed(); img.Path != "" && img.ID != BaseID {
			all = append(all, img)
		}
	}
	s.mu.Lock()
	all = append(all, s.listedOwn()...)
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b image.Image) int { return strings.Compare(a.Name, b.Name) })
	return all, ctx.Err()
}

// listedOwn returns the templates that projects made, each once: what has the default tag, or else
// the newest one of its tags. The caller holds mu.
func (s *Store) listedOwn() []image.Image {
	best := map[ownName]*entry{}
	for _, t := range s.byID {
		if t.old || strings.HasPrefix(t.Name, image.HiddenMark) {
			continue
		}
		name := t.own()
		name.tag = ""
		had := best[name]
		if had == nil || t.Tag == "" || had.Tag != "" && t.Created.After(had.Created) {
			best[name] = t
		}
	}
	all := make([]image.Image, 0, len(best))
	for _, t := range best {
		all = append(all, t.Image)
	}
	return all
}

// ByID implements image.Store.
func (s *Store) ByID(id string) (carrel.Template, bool) {
	switch id {
	case BaseID:
		return s.listedBase().Template, true
	case HostID:
		return s.host.listed().Template, true
	case SimID:
		return simTemplate().Template, true
	}
	if t := s.builtIns.find(id, ""); t != nil {
		return t.listed().Template, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.find(id, ""); t != nil {
		return t.Template, true
	}
	img, ok := s.lent[id]
	return img.Template, ok
}

// find finds an image by its own ID, or by the lasting ID of its template and a tag. The caller
// holds mu.
func (s *Store) find(id, tag string) *entry {
	if t := s.byID[id]; t != nil && tag == "" {
		return t
	}
	for _, t := range s.byID {
		if !t.old && id != "" && t.Of == id && t.Tag == tag {
			return t
		}
	}
	return nil
}

// Named implements image.Store. The names base and sim are reserved. Every other built-in template
// comes last, after the project's own one and a public one of the default project: those had the
// name first.
func (s *Store) Named(project, name string) (carrel.Template, bool) {
	switch name {
	case image.Base:
		return s.listedBase().Template, true
	case Sim:
		return simTemplate().Template, true
	}
	if t, ok := s.ownNamed(project, name); ok {
		return t, true
	}
	if t, ok := s.ownNamed(carrel.DefaultProject, name); ok && t.Public {
		return t, true
	}
	if t := s.builtIns.find("", name); t != nil {
		return t.listed().Template, true
	}
	if name == image.Host {
		return s.host.listed().Template, true
	}
	return carrel.Template{}, false
}

// ownNamed describes the template with a name that a project made itself.
func (s *Store) ownNamed(project, name string) (carrel.Template, bool) {
	plain, tag, _ := strings.Cut(name, ":")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byID {
		if !t.old && t.own() == (ownName{project, plain, tag}) {
			return t.Template, true
		}
	}
	if tag == "" {
		return carrel.Template{}, false
	}
	if t := s.find(plain, tag); t != nil && t.Project == project {
		return t.Template, true
	}
	if t := s.builtAs(project, plain, tag); t != nil {
		return t.Template, true
	}
	return carrel.Template{}, false
}

// builtAs finds the result of a build of the template with a name or a lasting ID. It also finds
// one that another build has replaced, while it is kept. The caller holds mu.
func (s *Store) builtAs(project, nameOrID, build string) *entry {
	var found *entry
	for _, t := range s.byID {
		if t.Build == build && t.Project == project && (t.Name == nameOrID || t.Of == nameOrID) &&
			!strings.HasPrefix(t.Name, image.HiddenMark) && (found == nil || found.old) {
			found = t
		}
	}
	return found
}

// Get implements image.Store.
func (s *Store) Get(ctx context.Context, id string) (image.Image, error) {
	switch id {
	case BaseID:
		return s.getBase(ctx)
	case HostID:
		return s.getHost(ctx)
	case SimID:
		return simTemplate(), nil
	}
	if t := s.builtIns.find(id, ""); t != nil {
		return s.getBuiltIn(ctx, t)
	}
	if img, ok := s.lentImage(id); ok {
		return img, nil
	}
	s.mu.Lock()
	t := s.find(id, "")
	s.mu.Unlock()
	if t == nil {
		return image.Image{}, notFound("get template", id)
	}
	if img, ok := fills(s).lazy(t); ok {
		return image.Image{}, half("open template", img)
	}
	defer thins(s).use(t)()
	dir := filepath.Dir(t.Path)
	err := thins(s).whole(ctx, t)
	if err == nil {
		err = s.checks.quick(ctx, dir)
		if errors.Is(err, errDamaged) && isThin(dir) {
			s.opts.Logger.Warn("a template's image is damaged, and is made again from its delta", "template",
				t.Name, "id", t.ID, "err", err)
			err = thins(s).again(ctx, t)
		}
	}
	switch {
	case err == nil:
		return t.Image, nil
	case s.isGone(t): // deleted meanwhile: a file that lacks is no fault of the disk
		return image.Image{}, notFound("get template", id)
	case errors.Is(err, errDamaged):
		return image.Image{}, damaged(t.Name, err)
	}
	return image.Image{}, archive.Classify("open template", err)
}

// isGone reports whether a template that was found is no longer in the store.
func (s *Store) isGone(t *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[t.ID] == nil
}

// getHost returns the built-in host, and makes it again if it is damaged.
func (s *Store) getHost(ctx context.Context) (image.Image, error) {
	img, err := s.host.get(ctx, false, nil)
	if err != nil {
		return img, err
	}
	return s.intact(ctx, s.host, img)
}

// getBuiltIn returns a template of packages, and makes it again if it is damaged.
func (s *Store) getBuiltIn(ctx context.Context, t *builtIn) (image.Image, error) {
	img, err := s.builtIns.get(ctx, t, false, nil)
	if err != nil {
		return img, err
	}
	return s.intact(ctx, t.cached, img)
}

// intact returns the image of a built-in template, and makes it again if it is damaged.
func (s *Store) intact(ctx context.Context, b *cached, img image.Image) (image.Image, error) {
	dir := filepath.Dir(img.Path)
	err := s.checks.quick(ctx, dir)
	if errors.Is(err, errDamaged) {
		s.opts.Logger.Error("a built-in template is damaged, and is made again", "template", img.Name,
			"image", img.Path, "err", err)
		img, err = b.remake(ctx, img)
		s.checks.forget(dir)
	}
	return img, archive.Classify("open template", err)
}

// CheckImages reads all images as a whole, with a pause after each megabyte, and remembers those
// that are damaged: a create from them is refused. It returns the number of damaged ones.
func (s *Store) CheckImages(ctx context.Context, pause time.Duration) (bad int) {
	images := []image.Image{s.host.listed()}
	for _, t := range s.builtIns.all {
		images = append(images, t.listed())
	}
	s.mu.Lock()
	for _, t := range s.byID {
		images = append(images, t.Image)
	}
	s.mu.Unlock()
	for _, img := range images {
		if img.Path == "" || img.Lazy != nil || ctx.Err() != nil {
			continue
		}
		dir := filepath.Dir(img.Path)
		err := s.checks.whole(ctx, dir, pause)
		if isThin(dir) && ctx.Err() == nil {
			err = errors.Join(err, checkThin(ctx, dir, pause))
		}
		if errors.Is(err, errDamaged) {
			bad++
			s.opts.Logger.Error("a template's image is damaged", "template", img.Name, "id", img.ID, "image",
				img.Path, "err", err,
				"hint", carrel.HintOf(damaged(img.Name, err)))
		}
	}
	return bad
}

// Prepare makes the built-in host before its first use, and reports progress. If this machine has
// changed since host was made, Prepare makes it again. It does nothing if base, which most callers
// want, has its own image.
func (s *Store) Prepare(ctx context.Context, progress func(carrel.Progress)) error {
	if s.ownBase() != nil {
		return nil
	}
	_, err := s.host.get(ctx, true, progress)
	return err
}

func notFound(op, id string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "template", Err: fmt.Errorf("no template has the ID %.100q", id),
		Hint: "'carrel template ls' lists them, 'carrel template import' and 'pull' make more"}
}

// Delete removes a template and older ones of its name. Errors: NotFound, Forbidden (a built-in
// template).
func (s *Store) Delete(ctx context.Context, id string) error {
	const op = "delete template"
	if t, ok := s.ByID(id); ok && t.BuiltIn {
		return &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "template", Err: fmt.Errorf("%q is built in", t.Name)}
	}
	s.mu.Lock()
	var gone []string
	if t := s.find(id, ""); t != nil {
		for other, o := range s.byID {
			if o == t || !t.old && o.own() == t.own() || !t.old && t.Tag == "" && t.Of != "" &&
				o.Of == t.Of {
				gone = append(gone, other)
				delete(s.byID, other)
				delete(s.packed, other)
				delete(s.used, other)
			}
		}
	}
	s.mu.Unlock()
	if len(gone) == 0 {
		return notFound(op, id)
	}
	// Older ones first: a crash in between must not bring one of them back.
	slices.Reverse(gone)
	var errs []error
	for _, id := range gone {
		s.checks.forget(filepath.Join(s.opts.Dir, id))
		errs = append(errs, removeTemplate(filepath.Join(s.opts.Dir, id)))
	}
	errs = append(errs, atomicfile.SyncDir(s.opts.Dir))
	return archive.Classify(op, errors.Join(errs...))
}

func simTemplate() image.Image {
	return image.Image{Template: carrel.Template{ID: SimID, Name: Sim, Tier: carrel.Sim, Source: "built in", BuiltIn: true}}
}

// isBuiltIn reports whether a name is the name or the ID of a built-in template. An ID would be
// misleading as a name.
func isBuiltIn(name string) bool {
	return slices.Contains([]string{image.Base, BaseID, HostID, Sim, SimID}, name)
}
