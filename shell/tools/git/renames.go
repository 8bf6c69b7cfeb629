package git

import (
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

const maxRenames = 1000

// renames pairs removed files with added files of similar content.
func (r *repo) renames(cs []change, old, new side) ([]change, error) {
	var gone, came []int
	for i, c := range cs {
		switch {
		case c.kind == 'D' && c.from.mode != filemode.Submodule:
			gone = append(gone, i)
		case c.kind == 'A' && c.to.mode != filemode.Submodule:
			came = append(came, i)
		}
	}
	if len(gone) == 0 || len(came) == 0 {
		return cs, nil
	}
	used := map[int]int{} // of came, by gone
	taken := map[int]bool{}
	join := func(g, c, score int) {
		used[c] = g
		taken[g] = true
		cs[c].kind, cs[c].old, cs[c].from, cs[c].score = 'R', cs[g].old, cs[g].from, score
	}
	for _, c := range came {
		best := -1
		for _, g := range gone {
			if !taken[g] && cs[g].from.hash == cs[c].to.hash && cs[g].from.hash != emptyBlob {
				if best < 0 || baseName(cs[g].old) == baseName(cs[c].new) && baseName(cs[best].old) != baseName(cs[c].new) {
					best = g
				}
			}
		}
		if best >= 0 {
			join(best, c, 100)
		}
	}
	if len(gone)*len(came) <= maxRenames {
		type pair struct{ g, c, score int }
		var pairs []pair
		for _, c := range came {
			if _, ok := used[c]; ok {
				continue
			}
			b, err := new(cs[c].new, cs[c].to)
			if err != nil {
				return nil, err
			}
			for _, g := range gone {
				if taken[g] {
					continue
				}
				a, err := old(cs[g].old, cs[g].from)
				if err != nil {
					return nil, err
				}
				if s := r.similar(a, b); s >= 50 {
					pairs = append(pairs, pair{g, c, s})
				}
			}
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return b.score - a.score })
		for _, p := range pairs {
			if _, ok := used[p.c]; !ok && !taken[p.g] {
				join(p.g, p.c, p.score)
			}
		}
	}
	var out []change
	for i, c := range cs {
		if !taken[i] {
			out = append(out, c)
		}
	}
	return out, nil
}

var emptyBlob = plumbing.ComputeHash(plumbing.BlobObject, nil)

func baseName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// similar returns the similarity of two texts in percent.
func (r *repo) similar(a, b []byte) int {
	if len(a) == 0 || len(b) == 0 || min(len(a), len(b))*2 < max(len(a), len(b)) || !r.Step(10+(len(a)+len(b))>>4) {
		return 0
	}
	chunks := map[string]int{}
	each := func(text []byte, fn func(chunk string)) {
		for _, l := range splitLines(text) {
			for len(l) > 64 {
				fn(string(l[:64]))
				l = l[64:]
			}
			fn(string(l))
		}
	}
	each(a, func(c string) { chunks[c]++ })
	same := 0
	each(b, func(c string) {
		if chunks[c] > 0 {
			chunks[c]--
			same += len(c)
		}
	})
	return same * 100 / max(len(a), len(b))
}
