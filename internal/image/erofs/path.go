package erofs

import (
	"bytes"
	"io/fs"
	"strings"
)

// Lookup finds the node at a slash-separated path below n, or returns nil. It does not follow
// links.
func (n *Node) Lookup(path string) *Node {
	for _, name := range split(path) {
		if n = n.Child(name); n == nil {
			return nil
		}
	}
	return n
}

// MkdirAll returns the directory at a path below n. It makes missing directories, owned by root. It
// returns nil when another kind of file is in the way. It does not follow links.
func (n *Node) MkdirAll(path string, perm fs.FileMode) *Node {
	for _, name := range split(path) {
		c := n.Child(name)
		if c == nil {
			c = NewDir(perm)
			n.Set(name, c)
		}
		if !c.IsDir() {
			return nil
		}
		n = c
	}
	return n
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// AddFile puts a small file into directory dir and replaces an existing entry of that name.
func (w *Writer) AddFile(dir *Node, name string, perm fs.FileMode, content []byte) (*Node, error) {
	e, err := w.Reserve(int64(len(content)))
	if err != nil {
		return nil, err
	}
	if _, err := w.Fill(e, bytes.NewReader(content)); err != nil {
		return nil, err
	}
	n := &Node{Mode: perm, Data: e}
	dir.Set(name, n).Release(w.Discard)
	return n, nil
}
