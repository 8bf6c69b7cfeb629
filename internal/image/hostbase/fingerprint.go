package hostbase

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// Increase format when this code makes another image of an unchanged machine.
const format = 4

// Fingerprint returns a short text that changes when the image should be built again: when packages
// were installed or removed, when files were added to or removed from the directories that hold
// programs, or when our own rules changed. It is cheap: it looks at a few hundred directories and
// reads no contents.
func Fingerprint(opts Options) (string, error) {
	opts = opts.withDefaults()
	h := sha256.New()
	fmt.Fprintf(h, "format %d %s %q %q\n", format, runtime.GOARCH, Resolv, Hosts)
	fmt.Fprintln(h, opts.Root, strings.Join(opts.Exclude, "\n"))
	fmt.Fprintln(h, kept, localKept, localScripts, setIDKept, etcCopied)
	for _, name := range []string{"/var/lib/dpkg/status", "/var/lib/rpm", "/var/lib/pacman/local", "/lib/apk/db/installed", "/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs",
		"/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/trusted.gpg.d", "/etc/apt/keyrings"} {
		stamp(h, opts.Root, name)
	}
	r := newRules(opts.Exclude)
	for _, top := range append([]string{"/usr", "/usr/local"}, topPaths()...) {
		stamp(h, opts.Root, top)
		if err := stampChildren(h, opts.Root, r, top, 2); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:20], nil
}

func topPaths() []string {
	out := make([]string, len(topDirs))
	for i, d := range topDirs {
		out[i] = "/" + d
	}
	return out
}

// stampChildren adds the directories below dir to the fingerprint, levels deep.
func stampChildren(h io.Writer, root string, r *rules, dir string, levels int) error {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if !e.IsDir() || r.excluded(p) {
			continue
		}
		stamp(h, root, p)
		if levels > 1 {
			if err := stampChildren(h, root, r, p, levels-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamp adds a file's status to the fingerprint, not its content.
func stamp(h io.Writer, root, p string) {
	info, err := os.Lstat(filepath.Join(root, p))
	if err != nil {
		fmt.Fprintln(h, p, "none")
		return
	}
	fmt.Fprintln(h, p, info.Mode(), info.Size(), info.ModTime().UnixNano())
}
