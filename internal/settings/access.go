package settings

import (
	"path"
	"slices"
	"strings"
)

// Access decides about one absolute path by its text alone: it does not look at links. It also
// returns the rule that decided; the rule's Path is "" for a default.
func (b *Box) Access(p string) (Access, PathRule) {
	p = path.Clean(p)
	rule := b.ruleOf(p)
	if rule.Access != Writable || slices.Contains(b.Private, rule.Path) {
		return rule.Access, rule
	}
	for i := range b.Protected {
		g := &b.Protected[i]
		if g.covers(p, rule.Path) {
			return Readable, PathRule{Path: p, Access: Readable, Rule: g.Rule, Source: g.Source, Allow: g.Allow}
		}
	}
	return Writable, rule
}

// ruleOf returns the rule with the longest prefix of a path.
func (b *Box) ruleOf(p string) PathRule {
	var best *PathRule
	for i := range b.Paths {
		if r := &b.Paths[i]; inside(p, r.Path) && (best == nil || len(r.Path) > len(best.Path)) {
			best = r
		}
	}
	for _, d := range b.Private {
		if inside(p, d) && (best == nil || len(d) > len(best.Path)) {
			return PathRule{Path: d, Access: Writable, Rule: "built-in: the box's own " + d, Source: "built-in"}
		}
	}
	switch {
	case best != nil:
		return *best
	case b.ReadDefault == Denied:
		return PathRule{Access: Denied, Rule: "read.default: deny", Source: "settings", Allow: "--read " + show(p)}
	case b.WriteDefault == Writable:
		return PathRule{Access: Writable, Rule: "write.default: allow", Source: "settings"}
	}
	return PathRule{Access: Readable, Rule: "built-in: only the working directory is written", Source: "built-in", Allow: "--write " + show(p)}
}

// covers reports whether a protected name is path p or above it, below the opened directory root.
// The root's own name may be the first element of the match (".claude/settings.json" in ~/.claude).
// A match that ends at the root or above it does not count, because the user opened that by its
// name.
func (g *Protected) covers(p, root string) bool {
	if strings.HasPrefix(g.Pattern, "/") {
		return matchAt(g.Pattern[1:], p, 1) > len(root)
	}
	first := strings.LastIndexByte(root, '/') + 1
	if g.Dir != "" {
		if !inside(p, g.Dir) || p == g.Dir {
			return false
		}
		first = len(g.Dir) + 1 // wherever in p the writable directory is
		if g.Dir == "/" {
			first = 1
		}
	}
	for start := max(first, 1); start < len(p); {
		if matchAt(g.Pattern, p, start) > len(root) {
			return true
		}
		next := strings.IndexByte(p[start:], '/')
		if next < 0 || !g.Deep {
			return false
		}
		start += next + 1
	}
	return false
}

// matchAt matches a pattern with the elements of p from start on. It returns the end of the match,
// or 0 for none.
func matchAt(pattern, p string, start int) int {
	for {
		first, more, deeper := strings.Cut(pattern, "/")
		end := len(p)
		if i := strings.IndexByte(p[start:], '/'); i >= 0 {
			end = start + i
		}
		switch {
		case !matchName1(first, p[start:end]):
			return 0
		case !deeper:
			return end
		case end == len(p):
			return 0
		}
		pattern, start = more, end+1
	}
}
