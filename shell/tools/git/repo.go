package git

import (
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/carrel-dev/carrel/shell/tool"
)

// repo is an open repository.
type repo struct {
	*git
	store *filesystem.Storage
	git_  string // its .git
	top   string // its work tree, "" for none
	conf  *settings
}

const maxBlob = 256 << 20 // bytes of one file

// open finds the repository of the current directory.
func (g *git) open() (*repo, error) {
	if g.gitDir == "" {
		g.gitDir = g.Getenv("GIT_DIR")
	}
	if g.workTree == "" {
		g.workTree = g.Getenv("GIT_WORK_TREE")
	}
	if g.gitDir != "" {
		dir := g.path(g.gitDir)
		if !g.isRepo(dir) {
			return nil, fatalf("not a git repository: '%s'", g.gitDir)
		}
		top := g.dir
		if g.workTree != "" {
			top = g.path(g.workTree)
		}
		return g.at(dir, top), nil
	}
	for dir := g.dir; ; dir = path.Dir(dir) {
		if d := path.Join(dir, ".git"); g.isRepo(d) {
			return g.at(d, dir), nil
		}
		if g.isRepo(dir) && strings.HasSuffix(dir, ".git") && path.Base(dir) == ".git" {
			return g.at(dir, path.Dir(dir)), nil
		}
		if g.isRepo(dir) {
			return g.at(dir, ""), nil
		}
		if dir == "/" {
			return nil, fatalf("not a git repository (or any of the parent directories): .git")
		}
	}
}

func (g *git) isRepo(dir string) bool {
	i, err := g.FS().Stat(path.Join(dir, "objects"))
	if err != nil || !i.Mode.IsDir() {
		return false
	}
	_, err = g.FS().Lstat(path.Join(dir, "HEAD"))
	return err == nil
}

func (g *git) at(dir, top string) *repo {
	r := &repo{git: g, git_: dir, top: top}
	r.store = filesystem.NewStorageWithOptions(&disk{g.Call, dir}, cache.NewObjectLRU(4<<20), filesystem.Options{LargeObjectThreshold: 32 << 20})
	r.conf = g.config(r)
	return r
}

// needTree returns an error in a bare repository.
func (r *repo) needTree() error {
	if r.top == "" {
		return fatalf("this operation must be run in a work tree")
	}
	return nil
}

// rel converts a user's path to a path below the top of the work tree. The top itself is "".
func (r *repo) rel(name string) (string, error) {
	abs := r.path(name)
	if abs == r.top {
		return "", nil
	}
	rel, ok := strings.CutPrefix(abs, strings.TrimSuffix(r.top, "/")+"/")
	if !ok {
		return "", fatalf("%s: '%s' is outside repository at '%s'", name, name, r.top)
	}
	return rel, nil
}

// shown converts a path below the top to a path relative to the current directory.
func (r *repo) shown(name string) string {
	here, _ := r.rel(r.dir)
	if here == "" {
		return name
	}
	if rest, ok := strings.CutPrefix(name, here+"/"); ok {
		return rest
	}
	up := 0
	for here != "" && here != "." && !strings.HasPrefix(name, here+"/") {
		here = path.Dir(here)
		up++
	}
	if here == "." {
		here = ""
	}
	return strings.Repeat("../", up) + strings.TrimPrefix(strings.TrimPrefix(name, here), "/")
}

// head returns HEAD: the branch's full name ("" when detached), and the commit, zero if there is
// none.
func (r *repo) head() (branch string, at plumbing.Hash) {
	ref, err := r.store.Reference(plumbing.HEAD)
	if err != nil {
		return "", plumbing.ZeroHash
	}
	if ref.Type() == plumbing.HashReference {
		return "", ref.Hash()
	}
	branch = string(ref.Target())
	if ref, err = r.store.Reference(ref.Target()); err == nil {
		at = ref.Hash()
	}
	return branch, at
}

// moveHead sets the current branch, or a detached HEAD, to a commit.
func (r *repo) moveHead(to plumbing.Hash) error {
	branch, old := r.head()
	name := plumbing.ReferenceName(branch)
	if branch == "" {
		name = plumbing.HEAD
	}
	if old != to && !old.IsZero() {
		_ = r.write("ORIG_HEAD", old.String()+"\n") // a convenience
	}
	return r.setRef(name, to)
}

func (r *repo) setRef(name plumbing.ReferenceName, to plumbing.Hash) error {
	return r.store.SetReference(plumbing.NewHashReference(name, to))
}

func (r *repo) ref(name string) (plumbing.Hash, bool) {
	ref, err := storer.ResolveReference(r.store, plumbing.ReferenceName(name))
	if err != nil {
		return plumbing.ZeroHash, false
	}
	return ref.Hash(), true
}

// refs lists references below a prefix, sorted.
func (r *repo) refs(prefix string) (out []*plumbing.Reference) {
	iter, err := r.store.IterReferences()
	if err != nil {
		return nil
	}
	_ = iter.ForEach(func(ref *plumbing.Reference) error { // the store's own, in memory
		if strings.HasPrefix(string(ref.Name()), prefix) {
			out = append(out, ref)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b *plumbing.Reference) int { return strings.Compare(string(a.Name()), string(b.Name())) })
	return out
}

// write writes a small file of the repository. read reads it, and returns "" if it is missing.
func (r *repo) write(name, text string) error {
	return r.FS().WriteFile(path.Join(r.git_, name), []byte(text), 0o666&^r.Umask())
}

func (r *repo) read(name string) string {
	b, err := r.FS().ReadFile(path.Join(r.git_, name))
	if err != nil || len(b) > 1<<20 {
		return ""
	}
	return string(b)
}

func (r *repo) forget(names ...string) {
	for _, n := range names {
		_ = r.FS().RemoveAll(path.Join(r.git_, n)) // it need not be there
	}
}

func (r *repo) commit(h plumbing.Hash) (*object.Commit, error) {
	if !r.Step(20) {
		return nil, tool.ErrStop
	}
	return object.GetCommit(r.store, h)
}

// blob reads a file's contents.
func (r *repo) blob(h plumbing.Hash) ([]byte, error) {
	if h.IsZero() {
		return nil, nil
	}
	b, err := object.GetBlob(r.store, h)
	if err != nil {
		return nil, fatalf("unable to read %s", h)
	}
	if b.Size > maxBlob {
		return nil, fatalf("%s is too large", h)
	}
	if err := r.Pay(b.Size); err != nil {
		return nil, err
	}
	defer func() { _ = r.Pay(-b.Size) }()
	in, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was read
	if !r.Step(10 + int(b.Size>>8)) {
		return nil, tool.ErrStop
	}
	out, err := io.ReadAll(io.LimitReader(in, b.Size+1))
	if err == nil && int64(len(out)) != b.Size {
		err = fatalf("%s is corrupt", h)
	}
	return out, err
}

// putObject stores an object.
func (r *repo) putObject(t plumbing.ObjectType, data []byte) (plumbing.Hash, error) {
	if !r.Step(10 + len(data)>>6) {
		return plumbing.ZeroHash, tool.ErrStop
	}
	h := plumbing.ComputeHash(t, data)
	if r.store.HasEncodedObject(h) == nil {
		return h, nil
	}
	o := r.store.NewEncodedObject()
	o.SetType(t)
	o.SetSize(int64(len(data)))
	w, err := o.Writer()
	if err == nil {
		if _, err = w.Write(data); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return r.store.SetEncodedObject(o)
}

// identity returns an author or committer from the environment or the configuration.
func (r *repo) identity(role string) (object.Signature, error) {
	name, email := r.Getenv("GIT_"+role+"_NAME"), r.Getenv("GIT_"+role+"_EMAIL")
	if name == "" {
		name = r.conf.get("user.name")
	}
	if email == "" {
		email = r.conf.get("user.email")
	}
	if email == "" {
		email = r.Getenv("EMAIL")
	}
	if name == "" || email == "" {
		kind := "Author"
		if role == "COMMITTER" {
			kind = "Committer"
		}
		r.warnf("%s identity unknown\n\n*** Please tell me who you are.\n\nRun\n\n  git config --global user.email \"you@example.com\"\n"+
			"  git config --global user.name \"Your Name\"\n\nto set your account's default identity.\n"+
			"Omit --global to set the identity only in this repository.\n", kind)
		if email == "" {
			return object.Signature{}, fatalf("unable to auto-detect email address (got '%s@%s.(none)')", r.Machine().UserName(r.UID()), r.Machine().Hostname())
		}
		return object.Signature{}, fatalf("empty ident name (for <%s>) not allowed", email)
	}
	when := r.Now().UTC()
	if d := r.Getenv("GIT_" + role + "_DATE"); d != "" {
		t, ok := parseDate(d, when)
		if !ok {
			return object.Signature{}, fatalf("invalid date format: %s", d)
		}
		when = t
	}
	return object.Signature{Name: clean(name), Email: clean(email), When: when.Truncate(time.Second)}, nil
}

// clean removes characters that are not allowed in a name.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '<' || r == '>' || r == '\n' || r == 0 {
			return -1
		}
		return r
	}, s)
	return strings.Trim(s, " .,:;\"'\\")
}

// parseDate reads dates in git's formats.
func parseDate(s string, now time.Time) (time.Time, bool) {
	s = strings.TrimSpace(s)
	sec, zone, _ := strings.Cut(strings.TrimPrefix(s, "@"), " ")
	if n, err := strconv.ParseInt(sec, 10, 48); err == nil && (len(sec) > 8 || s[0] == '@' || zone != "") {
		loc := time.UTC
		if t, err := time.Parse("-0700", zone); err == nil {
			loc = t.Location()
		}
		return time.Unix(n, 0).In(loc), true
	}
	for _, l := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 -07:00", "2006-01-02 15:04:05",
		"2006-01-02 15:04 -0700", "2006-01-02 15:04", "2006-01-02", "2006-01-02T15:04", "2006/01/02", "Mon Jan 2 15:04:05 2006 -0700", "Mon, 2 Jan 2006 15:04:05 -0700",
		"2 Jan 2006 15:04:05 -0700", "Jan 2 15:04:05 2006", "Jan 2 2006", "Jan 2, 2006"} {
		if t, err := time.Parse(l, s); err == nil {
			return t, true
		}
	}
	switch s {
	case "now":
		return now, true
	case "yesterday":
		return now.AddDate(0, 0, -1), true
	}
	f := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '.' })
	if len(f) == 3 && f[2] == "ago" {
		n, err := strconv.Atoi(f[0])
		if err != nil || n < 0 || n > 1e6 {
			return time.Time{}, false
		}
		switch strings.TrimSuffix(f[1], "s") {
		case "second":
			return now.Add(-time.Duration(n) * time.Second), true
		case "minute":
			return now.Add(-time.Duration(n) * time.Minute), true
		case "hour":
			return now.Add(-time.Duration(n) * time.Hour), true
		case "day":
			return now.AddDate(0, 0, -n), true
		case "week":
			return now.AddDate(0, 0, -7*n), true
		case "month":
			return now.AddDate(0, -n, 0), true
		case "year":
			return now.AddDate(-n, 0, 0), true
		}
	}
	return time.Time{}, false
}

// short returns an abbreviated hash that is unique.
func (r *repo) short(h plumbing.Hash) string {
	return h.String()[:7]
}

var errBadRevision = errors.New("bad revision")
