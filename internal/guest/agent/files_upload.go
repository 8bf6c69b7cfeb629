package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"syscall"
)

// maxUploadFiles bounds the files of one request, because the answer needs all their names in
// memory.
const maxUploadFiles = 100_000

// written is the answer's entry for one uploaded file.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// statusError is an error with the HTTP status of its answer.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// refuse makes a statusError.
func refuse(status int, format string, args ...any) *statusError {
	return &statusError{status, fmt.Sprintf(format, args...)}
}

// refuseFault returns a statusError with the status that fits its cause.
func refuseFault(what string, err error) *statusError {
	return refuse(faultOf(err).status(), "%s: %v", what, err)
}

// upload serves POST /files: one file as the body, or any number in a form.
//
// A file appears whole or not at all, and an upload that breaks off leaves the old one (see aside).
// Here Carrel differs from envd, which writes into the destination from the first byte on.
func (f *fileService) upload(w http.ResponseWriter, r *http.Request) {
	q, u, ok := f.begin(w, r, signWrite)
	if !ok {
		return
	}
	up := &upload{f: f, q: q, user: u, length: r.ContentLength}
	files, err := up.receive(r, newStallingBody(w, r))
	if err != nil {
		writeError(w, err.status, err.text)
		return
	}
	writeJSON(w, http.StatusOK, files)
}

// upload is one request's work.
type upload struct {
	f      *fileService
	q      *fileQuery
	user   User
	meta   map[string]string
	length int64 // the body's, −1 if unknown

	files []written
	seen  map[string]bool
}

// receive stores the files of a request.
func (up *upload) receive(r *http.Request, body io.Reader) ([]written, *statusError) {
	plain, err := decoded(r, body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if up.meta, err = metadataOf(r.Header); err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	header := r.Header.Get("Content-Type")
	media, params, _ := mime.ParseMediaType(header) // of no type: refused below
	switch {
	case media == "application/octet-stream":
		return up.receiveRaw(plain)
	case strings.HasPrefix(media, "multipart/"):
		return up.receiveForm(plain, params["boundary"])
	}
	return nil, refuse(http.StatusBadRequest, "unsupported content type: %s, expected multipart/form-data or application/octet-stream", short(header))
}

// receiveRaw stores a body that is one file.
func (up *upload) receiveRaw(body io.Reader) ([]written, *statusError) {
	if !up.q.hasPath {
		return nil, refuse(http.StatusBadRequest, "path query parameter is required for raw body upload")
	}
	if err := up.add(up.q.path, body); err != nil {
		return nil, err
	}
	return up.files, nil
}

// receiveForm stores the files of a form: its parts named "file".
func (up *upload) receiveForm(body io.Reader, boundary string) ([]written, *statusError) {
	if boundary == "" {
		return nil, refuse(http.StatusBadRequest, "error parsing multipart form: %v", http.ErrMissingBoundary)
	}
	up.files = []written{}
	// multipart reads 4 KiB at a time; the buffer turns that into larger reads.
	form := multipart.NewReader(bufio.NewReaderSize(body, chunkSize/4), boundary)
	for {
		// NextRawPart leaves the contents alone, whatever encoding the part's headers claim.
		part, err := form.NextRawPart()
		if err == io.EOF {
			return up.files, nil
		}
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "error reading form: %v", err)
		}
		name, isFile, err := partPath(part.Header.Get("Content-Disposition"))
		if !isFile {
			continue
		}
		if up.q.hasPath {
			name, err = up.q.path, nil
		}
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "error getting multipart custom part file name: %v", err)
		}
		if err := up.add(name, part); err != nil {
			return nil, err
		}
	}
}

// partPath reads a part's Content-Disposition. It returns whether the part is a file, and the path
// in its file name. multipart.Part.FileName would drop the directories.
func partPath(disposition string) (name string, isFile bool, err error) {
	kind, params, err := mime.ParseMediaType(disposition)
	if err != nil || kind != "form-data" || params["name"] != "file" {
		return "", false, nil
	}
	name, ok := params["filename"]
	if !ok {
		return "", true, errors.New("filename not found in Content-Disposition header")
	}
	return name, true, nil
}

// add stores one file.
func (up *upload) add(name string, src io.Reader) *statusError {
	file, err := up.f.a.resolve("path", name, up.user)
	if err != nil {
		return refuse(http.StatusBadRequest, "error resolving path: %v", err)
	}
	if up.seen[file] {
		return up.refuseTwice(file)
	}
	if len(up.files) >= maxUploadFiles {
		return refuse(http.StatusBadRequest, "too many files in one request: more than %d", maxUploadFiles)
	}
	if err := up.store(file, src); err != nil {
		return err
	}
	if up.seen == nil {
		up.seen = map[string]bool{}
	}
	up.seen[file] = true
	info := written{Name: text(path.Base(file)), Path: text(file), Type: "file"}
	// Read back: a file system without attributes has stored none.
	info.Metadata = up.f.a.metadata(Entry{Path: file})
	up.files = append(up.files, info)
	return nil
}

// refuseTwice returns the error for two files with one path.
func (up *upload) refuseTwice(file string) *statusError {
	err := refuse(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", file)
	var others []string
	for _, w := range up.files {
		if w.Path != file && len(others) < 100 {
			others = append(others, w.Path)
		}
	}
	if len(others) > 1 {
		err.text += ", also the following files were uploaded: " + strings.Join(others, ", ")
	}
	return err
}

// store writes one file and its metadata.
func (up *upload) store(name string, src io.Reader) *statusError {
	sys := up.f.a.sys
	if err := up.f.a.ensureDirs(path.Dir(name), up.user); err != nil {
		return refuseFault("error ensuring directories", err)
	}
	old, err := sys.Stat(name)
	switch e := old; {
	case errors.Is(err, fs.ErrNotExist):
		old = Entry{}
	case err != nil:
		return refuseFault("error getting file info", err)
	case e.Mode.IsDir():
		return refuse(http.StatusBadRequest, "path is a directory: %s", name)
	case !e.Mode.IsRegular():
		return refuse(http.StatusBadRequest, "path is not a regular file: %s", name)
	}
	dst, err := up.f.a.openAside(name, old, up.user)
	if err != nil {
		if faultOf(err) == faultSpace {
			return refuseFault("not enough inodes available", err)
		}
		return refuseFault("error opening file", err)
	}
	buf := up.f.buffers.get()
	_, err = copyChunks(dst.file, src, *buf)
	up.f.buffers.put(buf)
	if cerr := dst.file.Close(); err == nil {
		err = cerr // a full disk may show only now
	}
	if err != nil {
		dst.discard()
		return up.refuseContents(err)
	}
	if err := up.storeMetadata(dst.path()); err != nil {
		dst.discard()
		return err
	}
	if err := dst.commit(); err != nil {
		dst.discard()
		return up.refuseContents(err)
	}
	return nil
}

// refuseContents returns the error when a file's contents could not be received or written.
func (up *upload) refuseContents(err error) *statusError {
	var rerr *readError
	switch {
	case errors.As(err, &rerr): // the client's body is broken, or the client left
		return refuse(http.StatusBadRequest, "error writing file: %v", err)
	case faultOf(err) == faultSpace && up.length > 0:
		return refuse(http.StatusInsufficientStorage, "attempted to write %d bytes: %s", up.length, noSpace)
	case faultOf(err) == faultSpace:
		return refuse(http.StatusInsufficientStorage, noSpace)
	}
	return refuseFault("error writing file", err)
}

// noSpace is the error text for a full disk.
const noSpace = "not enough disk space available"

// storeMetadata replaces a file's metadata with that of this request. A file system without
// attributes is no failure: the answer shows the stored metadata.
func (up *upload) storeMetadata(name string) *statusError {
	err := up.f.a.sys.SetAttrs(name, up.meta)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTSUP):
		up.f.a.log.Debug("no attributes on this file system: metadata is not kept", "path", name)
		return nil
	case faultOf(err) == faultSpace, errors.Is(err, syscall.E2BIG):
		return refuse(http.StatusInsufficientStorage, "not enough space for file metadata: %v", err)
	}
	return refuseFault("error writing file metadata", err)
}
