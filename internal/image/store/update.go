package store

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// Bounds of a template's start settings.
const (
	maxStartArgs  = 1000
	maxStartBytes = 64 << 10 // all arguments together; also the ready command
)

// Update changes how a template starts, and which projects may use it. Errors: NotFound, Forbidden
// (a built-in template), Invalid.
func (s *Store) Update(ctx context.Context, id string, u carrel.TemplateUpdate) (image.Image, error) {
	const op = "update template"
	if err := checkUpdate(op, u); err != nil {
		return image.Image{}, err
	}
	if t, ok := s.ByID(id); ok && t.BuiltIn {
		return image.Image{}, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "template", Err: fmt.Errorf("%q is built in", t.Name),
			Hint: "import a template of your own (carrel template import NAME PATH), or keep a sandbox in which the command runs: carrel snapshot ID --name NAME, carrel create NAME"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(id, "")
	if e == nil {
		return image.Image{}, notFound(op, id)
	}
	t := e.Template
	if u.Start != nil {
		t.Start, t.Entry = slices.Clone(*u.Start), 0
	}
	if u.Ready != nil {
		t.Ready, t.ReadyCheck = *u.Ready, carrel.ReadyCheck{}
	}
	if u.Public != nil {
		t.Public = *u.Public
	}
	raw, err := encodeManifest(t, e.Sums)
	if err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	if err := atomicfile.Write(filepath.Join(s.opts.Dir, t.ID, manifestFile), append(raw, '\n'), 0o644); err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	e.Template = t
	return e.Image, nil
}

func checkUpdate(op string, u carrel.TemplateUpdate) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if u.Start != nil {
		size := 0
		for _, a := range *u.Start {
			if size += len(a); strings.ContainsRune(a, 0) {
				return bad("start", "contains a NUL byte")
			}
		}
		switch args := *u.Start; {
		case len(args) > maxStartArgs || size > maxStartBytes:
			return bad("start", "%d arguments of %d bytes, at most %d of %d may be", len(args), size, maxStartArgs, maxStartBytes)
		case len(args) > 0 && args[0] == "":
			return bad("start", "its first word, the program, is empty")
		}
	}
	if u.Ready != nil {
		if strings.ContainsRune(*u.Ready, 0) {
			return bad("ready", "contains a NUL byte")
		}
		if len(*u.Ready) > maxStartBytes {
			return bad("ready", "%d bytes, at most %d may be", len(*u.Ready), maxStartBytes)
		}
	}
	return nil
}
