package erofs

import (
	"bytes"
	"io/fs"
	"strings"
)

// Lookup finds the node at a slash-separated path below n. Links are not
// followed. It returns nil when there is none.
func (n *Node) Lookup(path string) *Node {
	for _, name := range split(path) {
		if n = n.Child(name); n == nil {
			return nil
		}
	}
	return n
}

// MkdirAll returns the directory at a path below n and makes what is missing,
// owned by root. It returns nil when something else is in the way. Links are not
// followed.
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

// AddFile puts a small file into directory dir, in the place of whatever has
// that name.
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
