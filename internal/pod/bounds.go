package pod

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"sync"
)

// room bounds the output of one command. What is over the bound is counted and dropped, so that
// the command is not stopped by it.
type room struct {
	mu      sync.Mutex
	left    int
	dropped int64
}

type roomWriter struct {
	room *room
	out  io.Writer
}

// writer returns a writer that writes to out as long as there is room.
func (r *room) writer(out io.Writer) io.Writer { return roomWriter{r, out} }

func (w roomWriter) Write(p []byte) (int, error) {
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	kept := p[:min(len(p), w.room.left)]
	w.room.left -= len(kept)
	w.room.dropped += int64(len(p) - len(kept))
	if _, err := w.out.Write(kept); err != nil {
		return 0, err
	}
	return len(p), nil
}

// note says how much was dropped; it is empty if nothing was.
func (r *room) note() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped == 0 {
		return ""
	}
	return fmt.Sprintf("\ncarrel: %d more bytes of output were dropped\n", r.dropped)
}

// fileName is the path that a form gives a file. The standard library's own method keeps only its
// last part.
func fileName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", invalid("file", "%w", err)
	}
	name := params["filename"]
	if name == "" {
		return "", invalid("file", "it has no file name")
	}
	return name, nil
}
