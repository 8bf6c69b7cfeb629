package pod

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

const (
	// maxCommand is the longest body of /execute.
	maxCommand = 1 << 20
	// maxOutput is the most output of one command, both streams together. The clients take 16 MiB
	// of JSON.
	maxOutput = 8 << 20
	// maxUpload is the largest file.
	maxUpload = 1 << 30
	// execTime is how long a command may run.
	execTime = 5 * time.Minute
)

// statuses are the answers for the kinds of errors; others are 500.
var statuses = map[carrel.Kind]int{
	carrel.Invalid:     http.StatusBadRequest,
	carrel.NotFound:    http.StatusNotFound,
	carrel.Forbidden:   http.StatusForbidden,
	carrel.Denied:      http.StatusForbidden,
	carrel.Conflict:    http.StatusConflict,
	carrel.Exhausted:   http.StatusInsufficientStorage,
	carrel.Unavailable: http.StatusServiceUnavailable,
	carrel.TimedOut:    http.StatusGatewayTimeout,
}

// Handler serves the protocol of the package's documentation, and /live for a liveness probe.
func (k *Keeper) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", k.probe(k.Ready))
	mux.HandleFunc("GET /live", k.probe(k.Alive))
	mux.HandleFunc("POST /execute", k.execute)
	mux.HandleFunc("POST /upload", k.upload)
	paths := map[string]http.HandlerFunc{
		"/download/": k.withPath(k.download), "/list/": k.withPath(k.list), "/exists/": k.withPath(k.exists)}
	// The multiplexer would clean paths and redirect. A path is the sandbox's here: it is taken as
	// it was sent.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, serve := range paths {
			escaped, found := strings.CutPrefix(r.URL.EscapedPath(), prefix)
			if !found {
				continue
			}
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				writeJSON(w, http.StatusMethodNotAllowed, answer{Message: "use GET"})
				return
			}
			name, err := url.PathUnescape(escaped)
			if err != nil {
				refuse(w, invalid("path", "%w", err))
				return
			}
			r.SetPathValue("path", name)
			serve(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// answer is the body of an answer that has nothing else to say.
type answer struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Field   string `json:"field,omitempty"`
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has left
}

func refuse(w http.ResponseWriter, err error) {
	status, ok := statuses[carrel.KindOf(err)]
	if !ok {
		status = http.StatusInternalServerError
	}
	body := answer{Message: err.Error(), Hint: carrel.HintOf(err)}
	var e *carrel.Error
	if errors.As(err, &e) {
		body.Field = e.Field
	}
	writeJSON(w, status, body)
}

// invalid is the error for a bad request.
func invalid(field, format string, args ...any) error {
	return &carrel.Error{Op: "read request", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// probe answers 200 if check finds nothing wrong, else 503.
func (k *Keeper) probe(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := check(r.Context()); err != nil {
			writeJSON(w, http.StatusServiceUnavailable, answer{Message: err.Error(), Hint: carrel.HintOf(err)})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "sandbox": string(k.id)})
	}
}

// inside turns a path of a request into one in the sandbox. A relative path of [carrel.Files] begins
// at the user's home.
func (k *Keeper) inside(name string) (string, error) {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", invalid("path", "%q has characters that no path may have", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", &carrel.Error{Op: "read request", Kind: carrel.Forbidden, Field: "path",
				Err:  fmt.Errorf("%q leads out of the working directory", name),
				Hint: "use a path without \"..\""}
		}
	}
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if k.opts.Dir != "" {
		return path.Join(k.opts.Dir, clean), nil
	}
	if clean == "" {
		return ".", nil
	}
	return clean, nil
}

// withPath gives a handler the sandbox's files and the path of the request.
func (k *Keeper) withPath(serve func(http.ResponseWriter, *http.Request, carrel.Files, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := k.inside(r.PathValue("path"))
		if err != nil {
			refuse(w, err)
			return
		}
		pc, err := k.opts.Service.Computer(r.Context(), k.id)
		if err != nil {
			refuse(w, err)
			return
		}
		if err := serve(w, r, pc.Files(""), name); err != nil {
			refuse(w, err)
		}
	}
}

func (k *Keeper) execute(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeJSON(w, http.StatusRequestEntityTooLarge, answer{Field: "command",
			Message: fmt.Sprintf("a command may have %d bytes", maxCommand), Hint: "upload a script and run that"})
		return
	}
	if err != nil {
		refuse(w, invalid("body", "%w", err))
		return
	}
	var request struct {
		Command *string `json:"command"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		refuse(w, invalid("body", "%w", err))
		return
	}
	if request.Command == nil || strings.TrimSpace(*request.Command) == "" {
		refuse(w, invalid("command", "there is none"))
		return
	}
	pc, err := k.opts.Service.Computer(r.Context(), k.id)
	if err != nil {
		refuse(w, err)
		return
	}
	room := &room{left: maxOutput}
	var stdout, stderr bytes.Buffer
	result, err := pc.Run(r.Context(), carrel.Command{Shell: *request.Command, Dir: k.opts.Dir, Timeout: execTime,
		Stdout: room.writer(&stdout), Stderr: room.writer(&stderr)})
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"stdout": stdout.String(), "stderr": stderr.String() + room.note(), "exit_code": result.ExitCode})
}

func (k *Keeper) upload(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	form, err := r.MultipartReader()
	if err != nil {
		refuse(w, invalid("body", "%w", err))
		return
	}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			refuse(w, invalid("file", "the form has no such field"))
			return
		}
		if err != nil {
			refuse(w, invalid("body", "%w", err))
			return
		}
		if part.FormName() == "file" {
			k.store(w, r, part)
			return
		}
	}
}

// store writes the uploaded file.
func (k *Keeper) store(w http.ResponseWriter, r *http.Request, part *multipart.Part) {
	given, err := fileName(part)
	if err != nil {
		refuse(w, err)
		return
	}
	name, err := k.inside(given)
	if err != nil {
		refuse(w, err)
		return
	}
	pc, err := k.opts.Service.Computer(r.Context(), k.id)
	if err != nil {
		refuse(w, err)
		return
	}
	_, err = pc.Files("").Write(r.Context(), name, part)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeJSON(w, http.StatusRequestEntityTooLarge, answer{Field: "file",
			Message: fmt.Sprintf("a file may have %d bytes", maxUpload)})
		return
	}
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer{Message: fmt.Sprintf("%q is written", given)})
}

func (k *Keeper) download(w http.ResponseWriter, r *http.Request, files carrel.Files, name string) error {
	info, err := files.Stat(r.Context(), name)
	if err != nil {
		return err
	}
	if !info.Mode.IsRegular() {
		return &carrel.Error{Op: "read file", Kind: carrel.NotFound, ID: k.id,
			Err: fmt.Errorf("%q is no regular file", name)}
	}
	in, err := files.Read(r.Context(), name)
	if err != nil {
		return err
	}
	defer in.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = io.Copy(w, in)
	if err != nil {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

// entry is one line of a listing.
type entry struct {
	Name     string  `json:"name"`
	Size     int64   `json:"size"`
	Type     string  `json:"type"`
	Modified float64 `json:"mod_time"` // seconds since 1970
}

func (k *Keeper) list(w http.ResponseWriter, r *http.Request, files carrel.Files, name string) error {
	infos, err := files.List(r.Context(), name, 1)
	if err != nil {
		return err
	}
	out := make([]entry, 0, len(infos))
	for _, info := range infos {
		e := entry{Name: info.Name, Size: info.Size, Type: "file", Modified: float64(info.Modified.UnixMilli()) / 1000}
		if info.Mode.IsDir() {
			e.Type = "directory"
		}
		out = append(out, e)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (k *Keeper) exists(w http.ResponseWriter, r *http.Request, files carrel.Files, name string) error {
	_, err := files.Stat(r.Context(), name)
	if err != nil && carrel.KindOf(err) != carrel.NotFound {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"path": r.PathValue("path"), "exists": err == nil})
	return nil
}
