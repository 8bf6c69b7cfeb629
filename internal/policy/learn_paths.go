package policy

import (
	"regexp"
	"strings"
)

// Bounds of the paths of one target that is learned.
const (
	maxSiblings = 5  // more parts at one place become "*"
	maxPatterns = 40 // more patterns are cut to shorter ones, which end in "**"
	maxSegments = 12 // segments; the rest of a longer path becomes "**"
)

// pathTree holds the paths of requests by their segments.
type pathTree struct {
	kids    map[string]*pathTree
	methods map[string]int // how many requests of each method end here
}

// looksID matches a segment that is likely to be another one next time: a number, a UUID, a hash, a
// version or something as long as no person writes it.
var looksID = regexp.MustCompile(`^([0-9]+|v?[0-9]+(\.[0-9]+)+([-+.][0-9A-Za-z.]+)?|[0-9a-fA-F-]{12,}|.{41,})$`)

// add puts a clean path into the tree.
func (t *pathTree) add(method, path string, times int) {
	for i, seg := range strings.Split(path[1:], "/") {
		if i == maxSegments {
			t = t.kid(manyParts)
			break
		}
		if seg != "" && (looksID.MatchString(seg) || strings.ContainsAny(seg, "*%")) {
			seg = "*"
		}
		t = t.kid(seg)
	}
	t.note(method, times)
}

// kid returns the tree of a segment.
func (t *pathTree) kid(seg string) *pathTree {
	if t.kids == nil {
		t.kids = map[string]*pathTree{}
	}
	if t.kids[seg] == nil {
		t.kids[seg] = &pathTree{}
	}
	return t.kids[seg]
}

// note notes requests whose path ends here.
func (t *pathTree) note(method string, times int) {
	if t.methods == nil {
		t.methods = map[string]int{}
	}
	t.methods[method] += times
}

// merge puts other's paths into the tree.
func (t *pathTree) merge(other *pathTree) {
	for m, n := range other.methods {
		t.note(m, n)
	}
	for seg, kid := range other.kids {
		t.kid(seg).merge(kid)
	}
}

// generalise lets "*" stand for the parts of a place that has many.
func (t *pathTree) generalise() {
	var names []string
	for seg := range t.kids {
		if seg != "" && seg != manyParts { // what "*" does not match
			names = append(names, seg)
		}
	}
	if len(names) > maxSiblings {
		whole := &pathTree{}
		for _, seg := range names {
			whole.merge(t.kids[seg])
			delete(t.kids, seg)
		}
		t.kids["*"] = whole
	}
	for _, kid := range t.kids {
		kid.generalise()
	}
}

// patterns returns the patterns of all paths, with the number of requests of each method.
func (t *pathTree) patterns() map[string]map[string]int {
	whole := &pathTree{}
	whole.merge(t)
	whole.generalise()
	for depth := whole.depth(); ; depth-- {
		found := map[string]map[string]int{}
		whole.collect("", depth, found)
		if len(found) <= maxPatterns || depth == 0 {
			return found
		}
	}
}

// depth is the number of segments of the longest path.
func (t *pathTree) depth() (most int) {
	for _, kid := range t.kids {
		most = max(most, 1+kid.depth())
	}
	return most
}

// collect adds the patterns below a prefix. Those with more segments than depth, and those that are
// too long, end in "**".
func (t *pathTree) collect(prefix string, depth int, into map[string]map[string]int) {
	if len(t.methods) > 0 {
		addCounts(into, prefix, t.methods)
	}
	for seg, kid := range t.kids {
		next := prefix + "/" + seg
		if depth == 0 || len(next) > maxPattern/2 {
			kid.all(prefix+"/"+manyParts, into)
			continue
		}
		kid.collect(next, depth-1, into)
	}
}

// all adds the requests of all paths to one pattern.
func (t *pathTree) all(pattern string, into map[string]map[string]int) {
	addCounts(into, pattern, t.methods)
	for _, kid := range t.kids {
		kid.all(pattern, into)
	}
}

func addCounts(into map[string]map[string]int, pattern string, counts map[string]int) {
	if into[pattern] == nil {
		into[pattern] = map[string]int{}
	}
	for m, n := range counts {
		into[pattern][m] += n
	}
}
