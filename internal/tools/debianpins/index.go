package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/image/debian"
)

// candidate is a package of an index: its pin, and its relations to other packages.
type candidate struct {
	debian.Pin
	essential bool
	depends   []clause // Pre-Depends and Depends
	conflicts []clause // Conflicts and Breaks
	provides  []option
}

// clause is one requirement: any of its options meets it.
type clause []option

// option is a package name with a bound on its version; op "" is any version.
type option struct{ name, op, version string }

// readIndex reads a Packages file of one archive.
func readIndex(r io.Reader, archive string) ([]*candidate, error) {
	var out []*candidate
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 4<<20)
	fields := map[string]string{}
	add := func() error {
		if len(fields) == 0 {
			return nil
		}
		c, err := newCandidate(fields, archive)
		if err != nil {
			return err
		}
		out = append(out, c)
		fields = map[string]string{}
		return nil
	}
	for sc.Scan() {
		line := sc.Text()
		switch {
		case line == "":
			if err := add(); err != nil {
				return nil, err
			}
		case line[0] == ' ' || line[0] == '\t': // more of a field that this program does not need
		default:
			if k, v, ok := strings.Cut(line, ":"); ok {
				fields[k] = strings.TrimSpace(v)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return out, add()
}

func newCandidate(f map[string]string, archive string) (*candidate, error) {
	size, err := strconv.ParseInt(f["Size"], 10, 64)
	if err != nil || f["Package"] == "" || len(f["SHA256"]) != 64 {
		return nil, fmt.Errorf("package %q: no size, name or SHA-256", f["Package"])
	}
	return &candidate{
		Pin: debian.Pin{Name: f["Package"], Version: f["Version"], Arch: f["Architecture"],
			Archive: archive,
			Path:    f["Filename"], Size: size, SHA256: f["SHA256"]},
		essential: f["Essential"] == "yes",
		depends:   append(parseClauses(f["Pre-Depends"]), parseClauses(f["Depends"])...),
		conflicts: append(parseClauses(f["Conflicts"]), parseClauses(f["Breaks"])...),
		provides:  flatten(parseClauses(f["Provides"])),
	}, nil
}

// parseClauses parses a relation field: "a (>= 1) | b, c:any".
func parseClauses(field string) (out []clause) {
	for part := range strings.SplitSeq(field, ",") {
		var c clause
		for text := range strings.SplitSeq(part, "|") {
			name, bound, _ := strings.Cut(strings.TrimSpace(text), "(")
			name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
			if name == "" {
				continue
			}
			o := option{name: name}
			if f := strings.Fields(strings.TrimSuffix(strings.TrimSpace(bound), ")")); len(f) == 2 {
				o.op, o.version = f[0], f[1]
			}
			c = append(c, o)
		}
		if len(c) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func flatten(clauses []clause) (out []option) {
	for _, c := range clauses {
		out = append(out, c...)
	}
	return out
}

// allows reports whether a version is inside the option's bound. version "" has no bound inside: it
// is a virtual package without a version.
func (o option) allows(version string) bool {
	if o.op == "" {
		return true
	}
	if version == "" {
		return false
	}
	c := compareVersions(version, o.version)
	switch o.op {
	case "<<":
		return c < 0
	case "<=":
		return c <= 0
	case "=":
		return c == 0
	case ">=":
		return c >= 0
	case ">>":
		return c > 0
	}
	return false
}
