package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// memory is a Blobs in memory.
type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
	times map[string]time.Time
	// fail is called before each operation, if it is set.
	fail func(op, name string) error
	puts int
}

var _ snapshot.Blobs = (*memory)(nil)

func newMemory() *memory { return &memory{blobs: map[string][]byte{}, times: map[string]time.Time{}} }

func (m *memory) check(op, name string) error {
	m.mu.Lock()
	fail := m.fail
	m.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op, name)
}

func (m *memory) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := m.check("put", name); err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if int64(len(b)) != size {
		return fmt.Errorf("%d bytes instead of %d", len(b), size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[name], m.times[name] = b, time.Now()
	m.puts++
	return ctx.Err()
}

func (m *memory) Get(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := m.check("get", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.blobs[name]
	if !ok {
		return nil, &carrel.Error{Op: "get blob", Kind: carrel.NotFound, Err: fmt.Errorf("no blob %s", name)}
	}
	b = b[min(offset, int64(len(b))):]
	if length >= 0 {
		b = b[:min(length, int64(len(b)))]
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) List(_ context.Context, prefix string, fn func(snapshot.BlobInfo) error) error {
	if err := m.check("list", prefix); err != nil {
		return err
	}
	m.mu.Lock()
	var list []snapshot.BlobInfo
	for name, b := range m.blobs {
		if strings.HasPrefix(name, prefix) {
			list = append(list, snapshot.BlobInfo{Name: name, Size: int64(len(b)), Modified: m.times[name]})
		}
	}
	m.mu.Unlock()
	for _, b := range list {
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	if err := m.check("delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, name)
	return nil
}

func (m *memory) Close() error { return nil }

// names lists the blobs with a prefix.
func (m *memory) names(prefix string) []string {
	var names []string
	_ = m.List(context.Background(), prefix, func(b snapshot.BlobInfo) error {
		names = append(names, b.Name)
		return nil
	})
	return names
}

// bytes is the total size of the blobs with a prefix.
func (m *memory) bytes(prefix string) (n int64) {
	_ = m.List(context.Background(), prefix, func(b snapshot.BlobInfo) error {
		n += b.Size
		return nil
	})
	return n
}

// change replaces a blob's content by the result of fn; nil removes the blob.
func (m *memory) change(name string, fn func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := fn(bytes.Clone(m.blobs[name]))
	if b == nil {
		delete(m.blobs, name)
		return
	}
	m.blobs[name] = b
}
