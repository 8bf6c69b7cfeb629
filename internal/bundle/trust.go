package bundle

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest"
)

// trustAside keeps the files that distrust changed. It is in memory, so no layer has it.
const trustAside = "/dev/shm/.carrel-trust.json"

// trustFiles are where the guest adds the wire's authority to a system's own files (package agent).
// The patterns are those of package filepath.
var trustFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/ssl/certs/*.0",
	"/usr/local/share/ca-certificates/carrel.crt", "/etc/pki/ca-trust/source/anchors/carrel.pem",
}

// distrust takes the wire's authority out of the system's files. A file that holds nothing else
// goes. What they were is kept for trust.
func distrust() error {
	raw, err := os.ReadFile(guest.AuthorityFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no authority is trusted
	}
	if err != nil {
		return err
	}
	ours := string(raw)
	kept := map[string]string{}
	for _, pattern := range trustFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if name, err = filepath.EvalSymlinks(name); err != nil {
				continue // a link to nothing
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			without, found := cutAuthority(string(text), ours)
			if !found {
				continue
			}
			kept[name] = string(text)
			if without == "" {
				err = os.Remove(name)
			} else {
				err = os.WriteFile(name, []byte(without), 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	if raw, err = json.Marshal(kept); err != nil {
		return err
	}
	return os.WriteFile(trustAside, raw, 0o600)
}

// cutAuthority removes an authority, and the comment before it, from a bundle.
func cutAuthority(text, ours string) (without string, found bool) {
	for {
		at := strings.Index(text, ours)
		if ours == "" || at < 0 {
			return text, found
		}
		head, tail := text[:at], text[at+len(ours):]
		if i := strings.LastIndexByte(strings.TrimSuffix(head, "\n"), '\n'); strings.HasPrefix(head[i+1:],
			"# Carrel: ") {
			head = head[:i+1]
		}
		text, found = head+tail, true
	}
}

// trust brings back what distrust changed.
func trust() error {
	raw, err := os.ReadFile(trustAside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kept := map[string]string{}
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	for name, text := range kept {
		err = errors.Join(err, os.WriteFile(name, []byte(text), 0o644))
	}
	return errors.Join(err, os.Remove(trustAside))
}
