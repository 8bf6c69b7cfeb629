package debian

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/image/locale"
)

// languages are the C library's languages among the files of packages. Debian has C.UTF-8 in a
// directory; a template has an archive of it, too, because each program opens that sooner.
type languages struct {
	found  map[string]map[string]*bytes.Buffer // by language and file
	packed bool                                // a package has an archive of its own
}

// watch returns a reader of a file's content that keeps what it reads, if the file is a language's.
func (l *languages) watch(h *tar.Header, body io.Reader) io.Reader {
	name, ok := strings.CutPrefix(h.Name, locale.Dir+"/")
	if !ok || h.Typeflag != tar.TypeReg {
		return body
	}
	if name == locale.Archive {
		l.packed = true
		return body
	}
	language, file, _ := strings.Cut(name, "/")
	if !slices.Contains(locale.Files[:], file) || h.Size > locale.MaxBytes {
		return body
	}
	if l.found == nil {
		l.found = map[string]map[string]*bytes.Buffer{}
	}
	if l.found[language] == nil {
		l.found[language] = map[string]*bytes.Buffer{}
	}
	kept := new(bytes.Buffer)
	l.found[language][path.Clean(file)] = kept
	return io.TeeReader(body, kept)
}

// pack returns the archive, or nil if there is none to write.
func (l *languages) pack() []byte {
	if l.packed {
		return nil
	}
	all := map[string]locale.Language{}
	for name, files := range l.found {
		var one locale.Language
		for i, file := range locale.Files {
			if kept := files[file]; file != "" && kept != nil {
				one[i] = kept.Bytes()
			}
		}
		all[name] = one
	}
	return locale.Pack(all)
}
