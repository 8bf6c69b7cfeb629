package interpreter

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/jupyter"
	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

// maxContexts bounds the contexts of a sandbox. Each is a process.
const maxContexts = 128

var (
	errNoContext = errors.New("no such context")
	errTooMany   = fmt.Errorf("there are %d contexts already", maxContexts)
	errDir       = errors.New("cwd")
)

// contexts are the contexts of a server.
type contexts struct {
	finder Finder
	dir    string // where contexts work that name no directory

	mu     sync.Mutex
	all    map[string]*Context // by ID
	first  map[string]*Context // the default ones, by language
	order  []string            // IDs, oldest first
	closed bool
}

// get finds a context.
func (s *contexts) get(id string) (*Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.all[id]
	if !ok {
		return nil, fmt.Errorf("%w: %q", errNoContext, id)
	}
	return c, nil
}

// byLanguage returns the default context of a language and makes it if there is none.
func (s *contexts) byLanguage(language string) (*Context, error) {
	language = kernel.Name(language)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.first[language]; c != nil {
		return c, nil
	}
	c, err := s.add(language, s.dir)
	if err == nil {
		s.first[language] = c
	}
	return c, err
}

// create makes a context.
func (s *contexts) create(language, dir string) (*Context, error) {
	if dir = cmp.Or(dir, s.dir); !filepath.IsAbs(dir) {
		dir = filepath.Join(s.dir, dir)
	}
	if err := s.finder.Check(kernel.Name(language)); err != nil {
		return nil, err // before a directory is made for it
	}
	if err := s.finder.Enter(dir); err != nil {
		return nil, fmt.Errorf("%w: %q is not a directory that a cell can enter: %w", errDir, dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(kernel.Name(language), dir)
}

// add makes a context. The caller holds mu.
func (s *contexts) add(language, dir string) (*Context, error) {
	if err := s.finder.Check(language); err != nil {
		return nil, err
	}
	if s.closed || len(s.all) >= maxContexts {
		return nil, errTooMany
	}
	c := newContext(jupyter.NewID(), language, dir, s.finder)
	s.all[c.ID] = c
	s.order = append(s.order, c.ID)
	return c, nil
}

// list returns all contexts, oldest first.
func (s *contexts) list() []*Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Context, 0, len(s.order))
	for _, id := range s.order {
		out = append(out, s.all[id])
	}
	return out
}

// remove ends a context.
func (s *contexts) remove(id string) error {
	s.mu.Lock()
	c, ok := s.all[id]
	if !ok {
		s.mu.Unlock()
		return fmt.Errorf("%w: %q", errNoContext, id)
	}
	delete(s.all, id)
	s.order = slices.DeleteFunc(s.order, func(o string) bool { return o == id })
	if s.first[c.Language] == c {
		delete(s.first, c.Language)
	}
	s.mu.Unlock()
	c.Remove()
	return nil
}

// close ends all contexts and makes no more.
func (s *contexts) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, c := range s.list() {
		_ = s.remove(c.ID) // another may have been quicker
	}
}
