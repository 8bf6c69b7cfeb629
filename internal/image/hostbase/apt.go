package hostbase

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
)

// maxSources is how much of one list of package sources is read.
const maxSources = 64 << 10

// aptSources returns this machine's lists of package sources, as files of the image. They are not copied: only lines that
// apt reads get in, and no list of which a source may carry a credential or lies on this machine. The keys
// that they are checked by come with /usr and [etcCopied].
func (b *builder) aptSources() map[string]text {
	names := []string{"/etc/apt/sources.list"}
	entries, _ := os.ReadDir(b.host("/etc/apt/sources.list.d")) // a machine without apt has none
	for _, e := range entries {
		if ext := path.Ext(e.Name()); ext == ".list" || ext == ".sources" {
			names = append(names, path.Join("/etc/apt/sources.list.d", e.Name()))
		}
	}
	out := map[string]text{}
	for _, name := range names {
		info, err := os.Lstat(b.host(name))
		if err != nil || !info.Mode().IsRegular() || !readable(info.Mode()) || info.Size() > maxSources {
			continue
		}
		content, err := os.ReadFile(b.host(name))
		if err != nil || len(content) > maxSources {
			continue
		}
		if kept := publicSources(string(content)); kept != "" {
			out[strings.TrimPrefix(name, "/")] = text{perm: 0o644, text: kept}
		}
	}
	return out
}

// publicSources returns a list of sources without its comments, or "" when it names none, or one that is not for everybody.
func publicSources(list string) string {
	var out strings.Builder
	found := false
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
			continue // whoever wrote it wrote for this machine's people
		}
		if head, _, ok := strings.Cut(line, " #"); ok && strings.HasPrefix(line, "deb") {
			line = strings.TrimRight(head, " \t")
		}
		for _, word := range strings.Fields(line) {
			scheme, _, ok := strings.Cut(word, ":/")
			if !ok || !schemeForm.MatchString(scheme) {
				continue
			}
			if !publicSource(word) {
				return ""
			}
			found = true
		}
		out.WriteString(line + "\n")
	}
	if !found {
		return ""
	}
	return strings.TrimLeft(out.String(), "\n")
}

var (
	schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)
	// A part of a path that is long and mixes letters with digits is what private repositories have for a password.
	tokenForm  = regexp.MustCompile(`^[A-Za-z0-9_=-]{16,}$`)
	hasLetter  = regexp.MustCompile(`[A-Za-z]`)
	hasDigit   = regexp.MustCompile(`[0-9]`)
	snapshotOf = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`) // a moment, in the archive of all versions
)

// publicSource reports whether a source's address is one that everybody may know and reach.
func publicSource(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if tokenForm.MatchString(part) && hasLetter.MatchString(part) && hasDigit.MatchString(part) && !snapshotOf.MatchString(part) {
			return false
		}
	}
	return true
}

// aptDirs are the directories that apt wants to find.
var aptDirs = map[string]fs.FileMode{
	"etc/apt": 0o755, "etc/apt/sources.list.d": 0o755, "etc/apt/apt.conf.d": 0o755, "etc/apt/preferences.d": 0o755,
	"var/lib/apt": 0o755, "var/lib/apt/lists": 0o755, "var/lib/apt/lists/partial": 0o755,
	"var/cache/apt": 0o755, "var/cache/apt/archives": 0o755, "var/cache/apt/archives/partial": 0o755, "var/log/apt": 0o755,
}
