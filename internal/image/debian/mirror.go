package debian

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mirror holds the addresses of Debian's archives.
type Mirror struct {
	Main, Security string // without a slash at the end
}

// ParseMirror returns the mirror at an address. The archive of security updates is beside it, at
// the same address with "-security" at the end.
func ParseMirror(address string) (Mirror, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return Mirror{}, errors.New("it is no address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return Mirror{}, errors.New("it does not begin with http:// or https:// and a host")
	case u.RawQuery != "" || u.Fragment != "":
		return Mirror{}, errors.New("it has a query or a fragment")
	}
	main := strings.TrimRight(u.String(), "/")
	return Mirror{Main: main, Security: main + "-security"}, nil
}

// HostMirror returns the mirror that this machine's apt uses. root is the machine's "/". The error
// says that there is none. A machine with another distribution, as Ubuntu, has none: its archive
// has other packages.
func HostMirror(root string) (Mirror, error) {
	var m Mirror
	for _, s := range aptSources(root) {
		main, err := ParseMirror(s.uri)
		if err != nil || !slices.Contains(s.components, "main") {
			continue
		}
		switch {
		case m.Main == "" && strings.HasSuffix(main.Main, "/"+Main):
			m.Main = main.Main
		case m.Security == "" && strings.HasSuffix(main.Main, "/"+Security):
			m.Security = main.Main
		}
	}
	if m.Main == "" {
		return m, errors.New("this machine's apt uses no Debian mirror")
	}
	if m.Security == "" {
		m.Security = m.Main + "-security"
	}
	return m, nil
}

// url returns the address of a package.
func (m Mirror) url(p Pin) string {
	base := m.Main
	if p.Archive == Security {
		base = m.Security
	}
	return base + "/" + (&url.URL{Path: p.Path}).EscapedPath()
}

// aptSource is one source of packages of this machine's apt.
type aptSource struct {
	uri        string
	components []string
}

// aptSources reads apt's lists of sources. It passes over what it does not understand.
func aptSources(root string) (out []aptSource) {
	dir := filepath.Join(root, "etc/apt")
	files := []string{filepath.Join(dir, "sources.list")}
	more, _ := filepath.Glob(filepath.Join(dir, "sources.list.d/*")) // the pattern is correct
	for _, name := range append(files, more...) {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		switch filepath.Ext(name) {
		case ".list":
			out = append(out, oneLineSources(string(raw))...)
		case ".sources":
			out = append(out, deb822Sources(string(raw))...)
		}
	}
	return out
}

// oneLineSources reads lines as "deb [option=value] http://example.com/debian trixie main".
func oneLineSources(text string) (out []aptSource) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) > 2 {
			out = append(out, aptSource{f[0], f[2:]})
		}
	}
	return out
}

// deb822Sources reads paragraphs with fields.
func deb822Sources(text string) (out []aptSource) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		f := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if k, v, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
				f[strings.ToLower(k)] = strings.TrimSpace(v)
			}
		}
		if !slices.Contains(strings.Fields(f["types"]), "deb") || strings.EqualFold(f["enabled"], "no") {
			continue
		}
		for _, uri := range strings.Fields(f["uris"]) {
			out = append(out, aptSource{uri, strings.Fields(f["components"])})
		}
	}
	return out
}
