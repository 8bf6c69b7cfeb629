package agent

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
)

// maxComposeBody bounds the body of a /files/compose request, which holds paths.
const maxComposeBody = 1 << 20

// composeRequest is the body of POST /files/compose.
type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    *string  `json:"username"`
}

// compose serves POST /files/compose: it joins files that were uploaded in pieces into one, and
// removes the pieces. It replaces the destination in one step, when all data is there.
func (f *fileService) compose(w http.ResponseWriter, r *http.Request) {
	var req composeRequest
	body := http.MaxBytesReader(w, io.NopCloser(newStallingBody(w, r)), maxComposeBody)
	if err := json.NewDecoder(body).Decode(&req); err != nil {
		status := http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		writeError(w, status, fmt.Sprintf("invalid request body: %v", err))
		return
	}
	switch {
	case len(req.SourcePaths) == 0:
		writeError(w, http.StatusBadRequest, "source_paths must not be empty")
		return
	case req.Destination == "":
		writeError(w, http.StatusBadRequest, "destination is required")
		return
	}
	var name string
	if req.Username != nil {
		name = *req.Username
	}
	u, ok := f.account(w, name)
	if !ok {
		return
	}
	c := composition{f: f, user: u}
	dest, err := c.compose(&req)
	if err != nil {
		writeError(w, err.status, err.text)
		return
	}
	writeJSON(w, http.StatusOK, written{Name: text(path.Base(dest)), Path: text(dest), Type: "file"})
}

// composition is the work of one request.
type composition struct {
	f       *fileService
	user    User
	dest    string
	sources []string
}

// compose checks the request, joins the files and returns the destination's path.
func (c *composition) compose(req *composeRequest) (string, *statusError) {
	if err := c.check(req); err != nil {
		return "", err
	}
	sys := c.f.a.sys
	if err := c.f.a.ensureDirs(path.Dir(c.dest), c.user); err != nil {
		return "", refuseFault("error ensuring directories", err)
	}
	if e, err := sys.Stat(c.dest); err == nil && e.Mode.IsDir() {
		return "", refuse(http.StatusBadRequest, "path is a directory: %s", c.dest)
	}
	tmp := path.Join(path.Dir(c.dest), ".carrel-compose-"+rand.Text())
	if err := c.join(tmp); err != nil {
		c.remove(tmp)
		return "", err
	}
	if err := sys.Rename(tmp, c.dest); err != nil {
		c.remove(tmp)
		return "", refuseFault("error finalizing compose", err)
	}
	for _, src := range c.sources {
		c.remove(src)
	}
	return c.dest, nil
}

// check resolves the paths and looks at the sources.
func (c *composition) check(req *composeRequest) *statusError {
	var err error
	if c.dest, err = c.f.a.resolve("destination", req.Destination, c.user); err != nil {
		return refuse(http.StatusBadRequest, "error resolving destination path: %v", err)
	}
	for i, src := range req.SourcePaths {
		resolved, err := c.f.a.resolve(fmt.Sprintf("source_paths[%d]", i), src, c.user)
		if err != nil {
			return refuse(http.StatusBadRequest, "error resolving source path %q: %v", short(src), err)
		}
		if resolved == c.dest {
			return refuse(http.StatusBadRequest, "source path %q cannot be the same as destination", src)
		}
		e, err := c.f.a.sys.Stat(resolved)
		if err != nil {
			return refuse(http.StatusNotFound, "source file not found: %s", src)
		}
		if !e.Mode.IsRegular() {
			return refuse(http.StatusBadRequest, "source path is not a regular file: %s", src)
		}
		c.sources = append(c.sources, resolved)
	}
	return nil
}

// join writes all sources into one new file.
func (c *composition) join(name string) (serr *statusError) {
	dst, err := c.f.a.sys.Create(name, c.user)
	if err != nil {
		if faultOf(err) == faultSpace {
			return refuse(http.StatusInsufficientStorage, noSpace)
		}
		return refuseFault("error creating destination file", err)
	}
	defer func() {
		if err := dst.Close(); err != nil && serr == nil {
			serr = refuseFault("error closing destination file", err)
		}
	}()
	for _, src := range c.sources {
		if err := c.append(dst, src); err != nil {
			return err
		}
	}
	return nil
}

// append adds one source. If the System can copy from file to file without this process, it uses
// that.
func (c *composition) append(dst File, name string) *statusError {
	src, err := c.f.a.sys.Open(name)
	if err != nil {
		return refuseFault("error opening source file "+name, err)
	}
	defer func() { _ = src.Close() }() // it was only read
	if direct, ok := dst.(io.ReaderFrom); ok {
		_, err = direct.ReadFrom(src)
	} else {
		buf := c.f.buffers.get()
		_, err = copyChunks(dst, src, *buf)
		c.f.buffers.put(buf)
	}
	switch {
	case err == nil:
		return nil
	case faultOf(err) == faultSpace:
		return refuse(http.StatusInsufficientStorage, noSpace)
	}
	return refuseFault("error composing source "+name, err)
}

// remove removes a file that is no longer needed. If that fails, the file stays and does no harm.
func (c *composition) remove(name string) {
	if err := c.f.a.sys.Remove(name); err != nil {
		c.f.a.log.Debug("composing files", "path", name, "err", err)
	}
}
