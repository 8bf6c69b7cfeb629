package policy

import (
	"slices"

	"github.com/carrel-dev/carrel"
)

// injection is one made ready.
type injection struct {
	carrel.Injection
	paths []pattern
	port  uint16 // the only port; 0 is all
}

// injections finds the injections for requests to a host.
type injections struct {
	list   []injection
	exact  map[string][]int
	suffix map[string][]int
}

func (x *injections) add(in injection, d destination) {
	i := len(x.list)
	x.list = append(x.list, in)
	if d.name != "" {
		if x.exact == nil {
			x.exact = map[string][]int{}
		}
		x.exact[d.name] = append(x.exact[d.name], i)
		return
	}
	if x.suffix == nil {
		x.suffix = map[string][]int{}
	}
	x.suffix[d.suffix] = append(x.suffix[d.suffix], i)
}

// forHost returns the injections for a host at a port. The host's name must be canonical and plain.
// It takes those of the exact name, or of the longest pattern, never of both. If some of a name are
// for this port alone, only those count.
func (x *injections) forHost(name string, port uint16) []int {
	if len(x.list) == 0 {
		return nil
	}
	if l := x.atPort(x.exact[name], port); l != nil {
		return l
	}
	for i := range len(name) {
		if name[i] == '.' {
			if l := x.atPort(x.suffix[name[i+1:]], port); l != nil {
				return l
			}
		}
	}
	return nil
}

// atPort returns the injections of a list that are for this port alone. If there are none, it
// returns those for all ports.
func (x *injections) atPort(list []int, port uint16) []int {
	for _, want := range []uint16{port, 0} {
		other := func(i int) bool { return x.list[i].port != want }
		if !slices.ContainsFunc(list, other) {
			if len(list) > 0 {
				return list
			}
			continue
		}
		if l := slices.DeleteFunc(slices.Clone(list), other); len(l) > 0 {
			return l
		}
	}
	return nil
}

// cleartext reports whether any of them is used in requests without TLS.
func (x *injections) cleartext(list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool { return x.list[i].Cleartext })
}

// wouldInject reports whether requests of a flow get an injection, or may get one later. The flow
// is allowed, or may be. Only connections to an address that was got for the host count, so
// credentials go nowhere else.
func (p *Policy) wouldInject(f *known, d *finding) bool {
	if len(p.inject.list) == 0 {
		return false
	}
	if d.rule.allow && d.rule.protocol == onlyTCP && !d.rule.any && d.mayAllow == nil {
		return false // "tcp" with a name or an address: its bytes are not inspected
	}
	switch f.stage {
	case atStart, atUDP, atHTTP:
		for _, n := range f.names {
			n, plain := canonical(n)
			if !plain {
				continue
			}
			if l := p.inject.forHost(n, f.Port); len(l) > 0 && (f.stage != atHTTP || f.Opened || p.inject.cleartext(l)) {
				return true
			}
		}
	case atTLS:
		return f.got && len(p.inject.forHost(f.name, f.Port)) > 0
	case atRequest:
		if !f.got {
			return false
		}
		l := p.inject.forHost(f.name, f.Port)
		return len(l) > 0 && (f.Opened || p.inject.cleartext(l))
	}
	return false
}

// injectionFor returns the injection for a request; nil for none.
func (p *Policy) injectionFor(f *known) *carrel.Injection {
	path, err := cleanPath(f.Path)
	for _, i := range p.inject.forHost(f.name, f.Port) {
		in := &p.inject.list[i]
		switch {
		case !f.Opened && !in.Cleartext:
		case len(in.Methods) > 0 && !slices.Contains(in.Methods, f.Method):
		case len(in.paths) > 0 && (err != nil || !slices.ContainsFunc(in.paths, func(p pattern) bool { return p.matches(path) })):
		default:
			return &in.Injection
		}
	}
	return nil
}
