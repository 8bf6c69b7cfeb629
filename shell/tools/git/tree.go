package git

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
)

// entry is a file of a tree, of the index or of the work tree.
type entry struct {
	mode filemode.FileMode
	hash plumbing.Hash
}

// snapshot is all files of a tree by path.
type snapshot map[string]entry

const (
	maxTreeDepth = 500
	maxFiles     = 500_000
)

// files flattens a tree.
func (r *repo) files(tree plumbing.Hash) (snapshot, error) {
	out := snapshot{}
	if tree.IsZero() {
		return out, nil
	}
	type item struct {
		at    plumbing.Hash
		name  string
		depth int
	}
	for todo := []item{{at: tree}}; len(todo) > 0; {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t, err := object.GetTree(r.store, it.at)
		if err != nil {
			return nil, fatalf("unable to read tree %s", it.at)
		}
		if !r.Step(10 + 4*len(t.Entries)) {
			return nil, tool.ErrStop
		}
		if it.depth > maxTreeDepth || len(out) > maxFiles {
			return nil, fatalf("tree %s is too deep or too large", tree)
		}
		if err := r.Pay(int64(len(t.Entries)) * 100); err != nil {
			return nil, err
		}
		for _, e := range t.Entries {
			if !goodName(e.Name) {
				return nil, fatalf("invalid path '%s' in tree %s", e.Name, it.at)
			}
			name := path.Join(it.name, e.Name)
			if e.Mode == filemode.Dir {
				todo = append(todo, item{e.Hash, name, it.depth + 1})
			} else {
				out[name] = entry{e.Mode, e.Hash}
			}
		}
	}
	return out, nil
}

// goodName refuses names that lead out of a directory or into the repository itself.
func goodName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.EqualFold(s, ".git") && !strings.ContainsAny(s, "/\x00")
}

// treeOf returns the tree of a commit. Without a commit it is empty.
func (r *repo) treeOf(commit plumbing.Hash) (snapshot, error) {
	if commit.IsZero() {
		return snapshot{}, nil
	}
	c, err := r.commit(commit)
	if err != nil {
		return nil, fatalf("bad object %s", commit)
	}
	return r.files(c.TreeHash)
}

// names lists the paths in order.
func (s snapshot) names() []string {
	out := make([]string, 0, len(s))
	for n := range s {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// putTree stores a snapshot as trees.
func (r *repo) putTree(s snapshot) (plumbing.Hash, error) {
	return r.putDir(s, s.names(), 0, 0)
}

func (r *repo) putDir(s snapshot, names []string, prefix, depth int) (plumbing.Hash, error) {
	if depth > maxTreeDepth {
		return plumbing.ZeroHash, fatalf("directories are nested too deeply")
	}
	var entries []object.TreeEntry
	for i := 0; i < len(names); {
		name, _, dir := strings.Cut(names[i][prefix:], "/")
		if !dir {
			e := s[names[i]]
			entries = append(entries, object.TreeEntry{Name: name, Mode: e.mode, Hash: e.hash})
			i++
			continue
		}
		end := i
		for end < len(names) && strings.HasPrefix(names[end][prefix:], name+"/") {
			end++
		}
		h, err := r.putDir(s, names[i:end], prefix+len(name)+1, depth+1)
		if err != nil {
			return h, err
		}
		entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: h})
		i = end
	}
	key := func(e object.TreeEntry) string {
		if e.Mode == filemode.Dir {
			return e.Name + "/"
		}
		return e.Name
	}
	slices.SortFunc(entries, func(a, b object.TreeEntry) int { return strings.Compare(key(a), key(b)) })
	var b bytes.Buffer
	for _, e := range entries {
		b.WriteString(strings.TrimLeft(e.Mode.String(), "0") + " " + e.Name + "\x00")
		b.Write(e.Hash[:])
	}
	return r.putObject(plumbing.TreeObject, b.Bytes())
}

// staging is the index.
type staging struct {
	*index.Index
	at map[string]int // of stage 0, by path; nil when it must be made again
}

func (r *repo) index() (*staging, error) {
	x, err := r.store.Index()
	if err != nil {
		return nil, fatalf("index file corrupt")
	}
	if !r.Step(10 + 2*len(x.Entries)) {
		return nil, tool.ErrStop
	}
	return &staging{Index: x}, r.Pay(int64(len(x.Entries)) * 200)
}

// find returns the entry of a path, or nil when there is none.
func (x *staging) find(name string, stage index.Stage) *index.Entry {
	if stage == 0 {
		if x.at == nil {
			x.at = map[string]int{}
			for i, e := range x.Entries {
				if e.Stage == 0 {
					x.at[e.Name] = i
				}
			}
		}
		if i, ok := x.at[name]; ok {
			return x.Entries[i]
		}
		return nil
	}
	for _, e := range x.Entries {
		if e.Name == name && e.Stage == stage {
			return e
		}
	}
	return nil
}

// snapshot returns the files that a commit would record.
func (x *staging) snapshot() snapshot {
	out := snapshot{}
	for _, e := range x.Entries {
		if e.Stage == 0 && !e.IntentToAdd {
			out[e.Name] = entry{e.Mode, e.Hash}
		}
	}
	return out
}

// unmerged lists the paths in conflict, with their stages as bits.
func (x *staging) unmerged() map[string]int {
	out := map[string]int{}
	for _, e := range x.Entries {
		if e.Stage != 0 {
			out[e.Name] |= 1 << (e.Stage - 1)
		}
	}
	return out
}

// remove removes a path in all stages.
func (x *staging) remove(name string) bool {
	n := len(x.Entries)
	x.Entries = slices.DeleteFunc(x.Entries, func(e *index.Entry) bool { return e.Name == name })
	x.at = nil
	return len(x.Entries) < n
}

// put records a path. It removes entries in conflict with it: a parent of the path that was a file,
// or files below the path.
func (x *staging) put(e *index.Entry) {
	if old := x.find(e.Name, 0); old != nil {
		*old = *e
		return
	}
	x.Entries = slices.DeleteFunc(x.Entries, func(o *index.Entry) bool {
		return o.Name == e.Name || strings.HasPrefix(o.Name, e.Name+"/") || strings.HasPrefix(e.Name, o.Name+"/")
	})
	x.Entries = append(x.Entries, e)
	x.at = nil
}

// drop removes some paths at once.
func (x *staging) drop(names map[string]bool) {
	x.Entries = slices.DeleteFunc(x.Entries, func(e *index.Entry) bool { return names[e.Name] })
	x.at = nil
}

// save writes the index.
func (r *repo) save(x *staging) error {
	slices.SortStableFunc(x.Entries, func(a, b *index.Entry) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Stage) - int(b.Stage)
	})
	x.Version = 2
	x.Cache, x.ResolveUndo, x.EndOfIndexEntry = nil, nil, nil
	if !r.Step(10 + 2*len(x.Entries)) {
		return tool.ErrStop
	}
	return r.store.SetIndex(x.Index)
}
