package hostbase

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
)

// maxSources is the most bytes read of one list of package sources.
const maxSources = 64 << 10

// aptSources returns this machine's lists of package sources, as files of the image. They are not
// copied as they are. Only lines that apt reads are taken. A list is left out if one of its sources
// may carry a credential or is on this machine. The keys that verify the sources come with /usr and
// [etcCopied].
func (b *builder) aptSources() map[string]text {
	names := []string{"/etc/apt/sources.list"}
	entries, _ := os.ReadDir(b.host("/etc/apt/sources.list.d")) // only with apt
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

// publicSources returns a list of sources without its comments. It returns "" when the list names
// no source, or one that is not public.
func publicSources(list string) string {
	var out strings.Builder
	found := false
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
			continue // comments are for this machine's people only
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
	// A long part of a path that mixes letters with digits: private repositories put a password
	// there.
	tokenForm  = regexp.MustCompile(`^[A-Za-z0-9_=-]{16,}$`)
	hasLetter  = regexp.MustCompile(`[A-Za-z]`)
	hasDigit   = regexp.MustCompile(`[0-9]`)
	snapshotOf = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`) // a date of a snapshot archive
)

// publicSource reports whether everybody may know and reach a source's address.
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

// aptDirs are the directories that apt expects.
var aptDirs = map[string]fs.FileMode{
	"etc/apt": 0o755, "etc/apt/sources.list.d": 0o755, "etc/apt/apt.conf.d": 0o755, "etc/apt/preferences.d": 0o755,
	"var/lib/apt": 0o755, "var/lib/apt/lists": 0o755, "var/lib/apt/lists/partial": 0o755,
	"var/cache/apt": 0o755, "var/cache/apt/archives": 0o755, "var/cache/apt/archives/partial": 0o755, "var/log/apt": 0o755,
}
