package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// download serves GET /files: a file's contents, whole or in ranges, gzipped if the client asks for
// that.
func (f *fileService) download(w http.ResponseWriter, r *http.Request) {
	q, u, ok := f.begin(w, r, signRead)
	if !ok {
		return
	}
	name, err := f.a.resolve("path", q.path, u)
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("error expanding and resolving path '%s': %v", short(q.path), err))
		return
	}
	e, err := f.a.sys.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		writeError(w, http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", name))
	case err != nil:
		writeError(w, faultOf(err).status(), fmt.Sprintf("error checking if path exists '%s': %v", name, err))
	case e.Mode.IsDir():
		writeError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", name))
	case !e.Mode.IsRegular():
		writeError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", name))
	default:
		f.serve(w, r, name)
	}
}

// short cuts a client's text to a length fit for an error.
func short(s string) string {
	if len(s) > 256 {
		s = s[:256] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// serve sends a file in the form that the request's headers ask for.
func (f *fileService) serve(w http.ResponseWriter, r *http.Request, name string) {
	accept, err := negotiate(strings.Join(r.Header.Values("Accept-Encoding"), ","))
	if err != nil {
		writeError(w, http.StatusNotAcceptable, err.Error())
		return
	}
	w.Header().Set("Vary", "Accept-Encoding") // caches keep one variant for each
	if partial(r.Header) {
		if !accept.identity {
			writeError(w, http.StatusNotAcceptable, "identity encoding not acceptable for Range or conditional request")
			return
		}
		accept.coding = identityCoding // ranges are of plain bytes
	}
	file, err := f.a.sys.Open(name)
	if err != nil {
		writeError(w, faultOf(err).status(), fmt.Sprintf("error opening file '%s': %v", name, err))
		return
	}
	defer func() { _ = file.Close() }() // it was only read
	e, err := file.Stat()
	if err != nil {
		writeError(w, faultOf(err).status(), fmt.Sprintf("error opening file '%s': %v", name, err))
		return
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	sw := newStallingWriter(w, r, &f.buffers)
	defer sw.done()
	switch {
	case accept.coding == gzipCoding:
		f.serveGzip(sw, r, name, file)
	case e.Size == 0:
		f.serveUnsized(sw, r, name, file)
	default:
		http.ServeContent(sw, r, name, e.Modified, file)
	}
}

// partial reports whether a request is for a part of a file, or has a condition.
func partial(h http.Header) bool {
	for _, name := range []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// contentType returns a file's type by its name.
func contentType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// serveGzip sends a file compressed. It compresses lightly: the link is fast, and the sandbox pays
// for the processor time.
func (f *fileService) serveGzip(w *stallingWriter, r *http.Request, name string, file File) {
	w.Header().Set("Content-Encoding", gzipCoding)
	w.Header().Set("Content-Type", contentType(name))
	if r.Method == http.MethodHead {
		return
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		f.abort(name, err)
	}
	buf := f.buffers.get()
	defer f.buffers.put(buf)
	if _, err := copyChunks(z, file, *buf); err != nil {
		f.abort(name, err)
	}
	if err := z.Close(); err != nil {
		f.abort(name, err)
	}
}

// serveUnsized sends a file whose reported size is 0. Files of /proc and /sys report 0 whatever
// they hold, and http.ServeContent would believe it.
func (f *fileService) serveUnsized(w *stallingWriter, r *http.Request, name string, file File) {
	buf := f.buffers.get()
	defer f.buffers.put(buf)
	n, err := fill(file, *buf)
	if err != nil && err != io.EOF {
		w.Header().Del("Content-Disposition")
		writeError(w, faultOf(err).status(), fmt.Sprintf("error reading file '%s': %v", name, err))
		return
	}
	w.Header().Set("Content-Type", contentType(name))
	if err == io.EOF {
		w.Header().Set("Content-Length", fmt.Sprint(n))
	}
	if r.Method == http.MethodHead {
		return
	}
	_, werr := w.Write((*buf)[:n])
	if werr == nil && err == nil {
		_, werr = copyChunks(writerOnly{w}, file, *buf)
	}
	if werr != nil {
		f.abort(name, werr)
	}
}

// abort breaks off an answer, so that the client sees that it is incomplete.
func (f *fileService) abort(name string, err error) {
	f.a.log.Debug("sending a file", "path", name, "err", err)
	panic(http.ErrAbortHandler)
}
