package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// incoming is a request's body. It remembers when the body broke off, which is the client's fault
// and not the sandbox's.
type incoming struct {
	io.ReadCloser
	broken atomic.Bool
}

// Read implements io.Reader.
func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.broken.Store(true)
	}
	return n, err
}
