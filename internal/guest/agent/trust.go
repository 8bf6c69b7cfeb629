package agent

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	// maxAuthority bounds the certificate of the authority.
	maxAuthority = 64 << 10
	// maxBundle bounds a template's bundle; real ones are a quarter of a megabyte.
	maxBundle = 8 << 20
	// trustMark is the line before the authority in a bundle that the guest added it to.
	trustMark = "# Carrel: the authority that opens TLS on the wire"
)

// systemBundles are the paths where systems keep all certificates that they trust in one file.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora and its kin
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // newer ones
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",                                 // Alpine, BSDs
}

// anchorDirs are directories where administrators put certificates for the system's own tool. If
// that tool writes the bundle anew, the bundle contains our authority, too.
var anchorDirs = []struct{ parent, dir, name string }{
	{"/usr/local/share", "/usr/local/share/ca-certificates", "carrel.crt"},
	{"/etc/pki/ca-trust/source", "/etc/pki/ca-trust/source/anchors", "carrel.pem"},
}

// hashDir is where OpenSSL finds certificates by their subject.
const hashDir = "/etc/ssl/certs"

// trust is the authority that the sandbox's programs must trust.
type trust struct {
	later sync.Mutex // held during work in the background, to keep its order

	mu   sync.Mutex
	pem  string            // as installed; "" for none
	envs map[string]string // variables that point programs to it
}

// variables returns the variables for a process, unless its request sets others.
func (t *trust) variables() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.envs
}

// checkAuthority refuses a text that is no certificate.
func checkAuthority(text string) error {
	if text == "" {
		return nil
	}
	b, rest := pem.Decode([]byte(text))
	if len(text) > maxAuthority || b == nil || b.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("authority: not one certificate in PEM")
	}
	if _, err := x509.ParseCertificate(b.Bytes); err != nil {
		return errors.New("authority: " + err.Error())
	}
	return nil
}

// trustAuthority makes programs trust an authority, and no longer the one before. It must be fast:
// the first command waits for it.
func (a *Agent) trustAuthority(authority string) {
	if a.trust.pemIs(authority) {
		return
	}
	block, _ := pem.Decode([]byte(authority))
	if block == nil {
		return // checkAuthority saw to it
	}
	ours := string(pem.EncodeToMemory(block))
	before := a.readText(guest.AuthorityFile)
	file, system := a.systemBundle(before)
	if system == "" {
		system = a.otherBundle(before)
	}
	bundle := withAuthority(system, ours)
	a.writeTrust(guest.AuthorityFile, ours)
	a.writeTrust(guest.BundleFile, bundle)
	if file != "" && a.cfg.Announce { // the sandbox has files of its own
		a.writeTrust(file, bundle)
	}
	java := a.hasJava()
	if java {
		a.writeTrust(guest.TrustStoreFile, string(trustStore(bundle)))
	}
	envs := trustVariables(java)
	a.trust.mu.Lock()
	a.trust.pem, a.trust.envs = authority, envs
	a.trust.mu.Unlock()
	a.spawn(func() { a.trustLater(authority, ours, bundle, block.Bytes, java) })
}

func (t *trust) pemIs(authority string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pem == authority
}

// trustLater adds the authority in places where few programs look. It runs in the background.
func (a *Agent) trustLater(authority, ours, bundle string, der []byte, java bool) {
	a.trust.later.Lock()
	defer a.trust.later.Unlock()
	if !a.trust.pemIs(authority) {
		return // the next one is on its way
	}
	if !java {
		a.writeTrust(guest.TrustStoreFile, string(trustStore(bundle)))
	}
	if !a.cfg.Announce {
		return
	}
	root := User{Name: "root"}
	for _, d := range anchorDirs {
		if _, err := a.sys.Stat(d.parent); err != nil {
			continue
		}
		_ = a.sys.Mkdir(d.dir, root) // it exists, or writing the file returns the error
		a.writeTrust(d.dir+"/"+d.name, ours)
	}
	if _, err := a.sys.Stat(hashDir); err != nil {
		return
	}
	if cert, err := x509.ParseCertificate(der); err == nil {
		if hash, err := subjectHash(cert.RawSubject); err == nil {
			a.writeTrust(hashDir+"/"+hash+".0", ours)
		}
	}
}

// systemBundle finds the template's bundle. It returns the file's path, and its text without an
// authority of ours.
func (a *Agent) systemBundle(before string) (file, text string) {
	for _, name := range systemBundles {
		real, err := a.sys.EvalSymlinks(name)
		if err != nil {
			continue
		}
		if text := a.readText(real); strings.Contains(text, "BEGIN CERTIFICATE") {
			return real, withoutAuthority(text, before)
		}
	}
	return "", ""
}

// otherBundle finds the bundle of Python's packages, in a template whose system has none.
func (a *Agent) otherBundle(before string) string {
	for _, lib := range []string{"/usr/local/lib", "/usr/lib"} {
		entries, err := a.sys.ReadDir(lib)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(path.Base(e.Path), "python3") {
				continue
			}
			for _, name := range []string{"site-packages/certifi", "dist-packages/certifi", "site-packages/pip/_vendor/certifi"} {
				if text := a.readText(e.Path + "/" + name + "/cacert.pem"); text != "" {
					return withoutAuthority(text, before)
				}
			}
		}
	}
	return ""
}

// withAuthority adds the authority to a bundle.
func withAuthority(bundle, ours string) string {
	if bundle != "" && !strings.HasSuffix(bundle, "\n") {
		bundle += "\n"
	}
	return bundle + trustMark + "\n" + ours
}

// withoutAuthority removes the text that withAuthority added, and every copy of the authority
// before.
func withoutAuthority(bundle, before string) string {
	if before != "" {
		bundle = strings.ReplaceAll(bundle, trustMark+"\n"+before, "")
		bundle = strings.ReplaceAll(bundle, before, "")
	}
	for {
		head, tail, found := strings.Cut(bundle, trustMark+"\n")
		if !found {
			return bundle
		}
		if strings.HasPrefix(tail, "-----BEGIN CERTIFICATE-----") {
			const end = "-----END CERTIFICATE-----\n"
			if _, rest, ok := strings.Cut(tail, end); ok {
				tail = rest
			}
		}
		bundle = head + tail
	}
}

// readText reads a file, "" for none.
func (a *Agent) readText(name string) string {
	f, err := a.sys.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err != nil || len(b) > maxBundle {
		return ""
	}
	return string(b)
}

// writeTrust writes a file of certificates. If that fails, some programs fail, with a clear error.
func (a *Agent) writeTrust(name, text string) {
	root := User{Name: "root"}
	if dir := path.Dir(guest.AuthorityFile); strings.HasPrefix(name, dir+"/") {
		_ = a.sys.Mkdir("/run", root)
		_ = a.sys.Mkdir(dir, root)
	}
	if err := a.replaceFile(name, text, root); err != nil {
		a.log.Warn("trust the wire's authority", "path", name, "err", err)
	}
}
