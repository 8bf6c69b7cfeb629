package policy

import "slices"

// match says whether a rule matches a flow.
type match uint8

const (
	no    match = iota
	maybe       // more must be known
	yes
)

// miss is the reason why a rule that names a flow's destination does not match the flow. The
// nearest to a match is last.
type miss uint8

const (
	noMiss miss = iota
	missPort
	missProtocol
	missQUIC
	missSilent // it says no name
	missNoName // TLS without a server name
	missNotGot // the address was not got for the name
	missMethod
	missPath
	missAmbiguous // the path
)

// matchRule matches one rule. h says how the flow met its destination.
func matchRule(r *rule, h hit, f *known) (match, miss) {
	if !r.hasPort(f.Port) {
		return no, missPort
	}
	how, why := matchProtocol(r, f)
	if how == no {
		return no, why
	}
	where, why := matchDestination(r, h, f)
	if where == no {
		return no, why
	}
	if r.aboutRequests() {
		what, why := matchRequest(r, f)
		return min(how, where, what), why
	}
	return min(how, where), noMiss
}

// matchProtocol matches a rule's protocol.
func matchProtocol(r *rule, f *known) (match, miss) {
	if f.stage == atUDP {
		if r.protocol == onlyUDP || r.protocol == anyProtocol && !r.aboutRequests() {
			return yes, noMiss
		}
		return no, missProtocol
	}
	switch r.protocol {
	case onlyUDP:
		return no, missProtocol
	case onlyTCP:
		return yes, noMiss
	case anyProtocol:
		if !r.aboutRequests() {
			return yes, noMiss
		}
	}
	// Only HTTP and TLS are left.
	switch f.stage {
	case atStart:
		return maybe, noMiss
	case atTLS:
		if r.protocol != onlyHTTP {
			return yes, noMiss
		}
	case atHTTP, atRequest:
		if r.protocol == anyProtocol || (r.protocol == onlyHTTPS) == f.Opened {
			return yes, noMiss
		}
	}
	return no, missProtocol
}

// matchDestination matches a rule's destinations.
func matchDestination(r *rule, h hit, f *known) (match, miss) {
	if r.any || h.addr {
		return yes, noMiss
	}
	if !r.allow {
		// For a deny rule, any one sign of the destination is enough.
		switch {
		case h.carried, h.got != "", h.said:
			return yes, noMiss
		}
		return no, noMiss
	}
	if r.protocol == onlyTCP || r.protocol == onlyUDP {
		if h.got != "" {
			return yes, noMiss
		}
		return no, missNotGot
	}
	switch f.stage {
	case atStart:
		if h.got != "" {
			return maybe, noMiss
		}
		return no, noMiss
	case atUDP:
		return no, missQUIC
	case atOther:
		return no, missSilent
	}
	switch {
	case h.said && f.got:
		return yes, noMiss
	case h.said:
		return no, missNotGot
	case f.stage == atHTTP && h.got != "":
		return maybe, noMiss // a later request may say it
	case f.name == "" && h.got != "":
		return no, missNoName
	}
	return no, noMiss
}

// matchRequest matches methods and paths.
func matchRequest(r *rule, f *known) (match, miss) {
	if f.stage != atRequest {
		return maybe, noMiss
	}
	if len(r.methods) > 0 && !slices.Contains(r.methods, f.Method) {
		return no, missMethod
	}
	if len(r.paths) == 0 {
		return yes, noMiss
	}
	path, err := cleanPath(f.Path)
	if err != nil {
		return no, missAmbiguous
	}
	if slices.ContainsFunc(r.paths, func(p pattern) bool { return p.matches(path) }) {
		return yes, noMiss
	}
	return no, missPath
}
