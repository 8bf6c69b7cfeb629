package settings

import (
	"path"
	"slices"
	"strings"
)

// Access decides about one absolute path, by its text: links are not looked at. The rule says by what; its Path is "" for a default.
func (b *Box) Access(p string) (Access, PathRule) {
	p = path.Clean(p)
	rule := b.ruleOf(p)
	if rule.Access != Writable || slices.Contains(b.Private, rule.Path) {
		return rule.Access, rule
	}
	for i := range b.Protected {
		g := &b.Protected[i]
		if len(rule.Path) < len(p) && g.matches(p) && !g.excepted(p) {
			return Readable, PathRule{Path: p, Access: Readable, Rule: g.Rule, Source: g.Source, Allow: g.Allow}
		}
	}
	return Writable, rule
}

// ruleOf finds the rule of the longest prefix.
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

// matches reports whether a protected name is a path, or holds it.
func (g *Protected) matches(p string) bool {
	if strings.HasPrefix(g.Pattern, "/") {
		return inside(p, g.Pattern) || strings.Contains(g.Pattern, "*") && prefixMatches(g.Pattern[1:], p[1:])
	}
	rel := strings.TrimPrefix(p, "/")
	if g.Dir != "" {
		if !inside(p, g.Dir) || p == g.Dir {
			return false
		}
		rel = strings.TrimPrefix(p[len(g.Dir):], "/")
	}
	if !g.Deep {
		return prefixMatches(g.Pattern, rel)
	}
	for {
		if prefixMatches(g.Pattern, rel) {
			return true
		}
		_, rest, ok := strings.Cut(rel, "/")
		if !ok {
			return false
		}
		rel = rest
	}
}

// prefixMatches reports whether a pattern matches the first elements of a path, all of its own.
func prefixMatches(pattern, p string) bool {
	for {
		first, more, ok := strings.Cut(pattern, "/")
		elem, rest, deeper := strings.Cut(p, "/")
		if !matchName1(first, elem) {
			return false
		}
		if !ok {
			return true
		}
		if !deeper {
			return false
		}
		pattern, p = more, rest
	}
}

func (g *Protected) excepted(p string) bool {
	for _, e := range g.Except {
		if inside(p, e) {
			return true
		}
	}
	return false
}
