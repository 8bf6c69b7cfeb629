package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// universe holds the newest version of every package, and who provides which names.
type universe struct {
	byName    map[string]*candidate
	providers map[string][]*candidate // sorted by name
}

// newUniverse takes the newest version of each package.
func newUniverse(all []*candidate) *universe {
	u := &universe{byName: map[string]*candidate{}, providers: map[string][]*candidate{}}
	for _, c := range all {
		if old := u.byName[c.Name]; old == nil || compareVersions(c.Version, old.Version) > 0 {
			u.byName[c.Name] = c
		}
	}
	for _, c := range u.byName {
		for _, p := range c.provides {
			u.providers[p.name] = append(u.providers[p.name], c)
		}
	}
	for _, list := range u.providers {
		slices.SortFunc(list, func(a, b *candidate) int { return strings.Compare(a.Name, b.Name) })
	}
	return u
}

// essential returns the names of the packages that every Debian system has.
func (u *universe) essential() (names []string) {
	for name, c := range u.byName {
		if c.essential {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// meets reports whether a package meets an option, by its name or by a name that it provides.
func meets(c *candidate, o option) bool {
	if c.Name == o.name && o.allows(c.Version) {
		return true
	}
	return slices.ContainsFunc(c.provides, func(p option) bool {
		return p.name == o.name &&
			o.allows(p.version)
	})
}

// resolve returns the packages that roots need, sorted by name. It takes the first alternative that
// can be met, unless a chosen package meets another one. It never undoes a choice: a set that needs
// more than that is refused, and its roots must name the right alternative.
func (u *universe) resolve(roots []string) ([]*candidate, error) {
	chosen := map[string]*candidate{}
	var todo []*candidate
	choose := func(c *candidate) {
		if chosen[c.Name] == nil {
			chosen[c.Name] = c
			todo = append(todo, c)
		}
	}
	for _, name := range roots {
		c := u.byName[name]
		if c == nil {
			return nil, fmt.Errorf("no package %s", name)
		}
		choose(c)
	}
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		for _, need := range c.depends {
			if met(chosen, need) {
				continue
			}
			next := u.choice(need)
			if next == nil {
				return nil, fmt.Errorf("%s needs %s, which nothing meets", c.Name, need)
			}
			choose(next)
		}
	}
	out := make([]*candidate, 0, len(chosen))
	for _, c := range chosen {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *candidate) int { return cmp.Compare(a.Name, b.Name) })
	return out, conflict(out)
}

// met reports whether a chosen package meets a requirement.
func met(chosen map[string]*candidate, need clause) bool {
	for _, o := range need {
		if c := chosen[o.name]; c != nil && o.allows(c.Version) {
			return true
		}
		for _, c := range chosen {
			if meets(c, o) {
				return true
			}
		}
	}
	return false
}

// choice returns the package that meets a requirement best; nil for none.
func (u *universe) choice(need clause) *candidate {
	for _, o := range need {
		if c := u.byName[o.name]; c != nil && o.allows(c.Version) {
			return c
		}
		for _, c := range u.providers[o.name] {
			if meets(c, o) {
				return c
			}
		}
	}
	return nil
}

// conflict returns an error if two packages of a set can't be installed together.
func conflict(set []*candidate) error {
	for _, c := range set {
		for _, bad := range flatten(c.conflicts) {
			for _, other := range set {
				if other != c && meets(other, bad) {
					return fmt.Errorf("%s and %s can't be installed together", c.Name, other.Name)
				}
			}
		}
	}
	return nil
}
