package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
)

const (
	maxHeaders = 100
	maxValue   = 8 << 10 // bytes of a header's or parameter's value
)

// hostText writes a destination that is a name as text.
func (d destination) hostText() string {
	if d.suffix != "" {
		return "*." + d.suffix
	}
	return d.name
}

// addInjections checks and adds injections.
func (p *Policy) addInjections(list []carrel.Injection) *fault {
	if len(list) > maxInjections {
		return faultf("inject", "", "%d entries, at most %d may be", len(list), maxInjections)
	}
	always := map[destination]int{} // injections for all requests to a host
	for i, src := range list {
		at := fmt.Sprintf("inject[%d]", i)
		in, d, err := readInjection(at, src)
		if err != nil {
			return err
		}
		if first, there := always[d]; there {
			return faultf(at, "give the first one methods or paths, or make one of both",
				"it can never be used: inject %d is for all requests to %s", first+1, in.Host)
		}
		if len(in.Methods) == 0 && len(in.paths) == 0 {
			always[d] = i
		}
		p.inject.add(in, d)
	}
	return nil
}

func readInjection(at string, src carrel.Injection) (injection, destination, *fault) {
	in := injection{Injection: cloneInjection(src)}
	d, err := injectionHost(at+".host", src.Host)
	if err != nil {
		return in, d, err
	}
	in.Host = d.hostText()
	if in.Methods, err = readMethods(at+".methods", src.Methods); err != nil {
		return in, d, err
	}
	if in.paths, err = readPaths(at+".paths", src.Paths); err != nil {
		return in, d, err
	}
	return in, d, checkInjected(at, src)
}

// cloneInjection copies an injection, because the caller may change its lists.
func cloneInjection(in carrel.Injection) carrel.Injection {
	in.Methods, in.Paths = slices.Clone(in.Methods), slices.Clone(in.Paths)
	in.Headers, in.Query, in.Env = maps.Clone(in.Headers), maps.Clone(in.Query), maps.Clone(in.Env)
	if in.Basic != nil {
		b := *in.Basic
		in.Basic = &b
	}
	return in
}

// checkInjected checks the content of an injection.
func checkInjected(at string, src carrel.Injection) *fault {
	if src.Bearer == "" && src.Basic == nil && len(src.Headers) == 0 && len(src.Query) == 0 {
		return faultf(at, "give bearer, basic, headers or query", "nothing is put in")
	}
	if src.Bearer != "" {
		if err := checkSecretName(at+".bearer", src.Bearer); err != nil {
			return err
		}
	}
	if src.Basic != nil {
		if src.Bearer != "" {
			return faultf(at+".basic", "make two entries with methods or paths of it", "bearer and basic set the same header")
		}
		if strings.Contains(src.Basic.User, ":") || strings.ContainsFunc(src.Basic.User, isControl) {
			return faultf(at+".basic.user", "", "%s has a colon or a control character", clip(src.Basic.User))
		}
		if err := checkSecretName(at+".basic.secret", src.Basic.Secret); err != nil {
			return err
		}
	}
	if len(src.Headers) > maxHeaders || len(src.Query) > maxHeaders || len(src.Env) > maxHeaders {
		return faultf(at, "", "more than %d headers, query parameters or variables", maxHeaders)
	}
	seen := map[string]bool{"authorization": src.Bearer != "" || src.Basic != nil}
	for _, name := range slices.Sorted(maps.Keys(src.Headers)) {
		if err := checkHeader(at+".headers", name, src.Headers[name]); err != nil {
			return err
		}
		if lower := strings.ToLower(name); seen[lower] {
			return faultf(at+".headers."+name, "", "the header %s is set twice", clip(name))
		} else {
			seen[lower] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(src.Query)) {
		value := src.Query[name]
		if name == "" || len(name) > maxText || strings.ContainsFunc(name+value, isControl) {
			return faultf(at+".query", "", "%s: a parameter has a name, and no control characters", clip(name))
		}
		if err := checkText(at+".query."+name, value); err != nil {
			return err
		}
	}
	return checkEnv(at+".env", src.Env)
}

func checkEnv(at string, env map[string]string) *fault {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		bad := func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_'
		}
		switch {
		case name == "" || len(name) > maxText || strings.ContainsFunc(name, bad) || name[0] >= '0' && name[0] <= '9':
			return faultf(at, "", "%s is no name of a variable", clip(name))
		case len(env[name]) > maxValue || strings.ContainsFunc(env[name], isControl):
			return faultf(at+"."+name, "", "a value has at most %d bytes and no control characters", maxValue)
		case strings.Contains(env[name], "${"):
			return faultf(at+"."+name, "", "a variable is a placeholder and holds no secret")
		}
	}
	return nil
}

// injectionHost reads the host of an injection.
func injectionHost(at, host string) (destination, *fault) {
	d, hint, err := parseDestination(host)
	switch {
	case err != nil:
		return d, &fault{at: at, reason: err.Error(), hint: hint}
	case d.any:
		return d, faultf(at, `name the hosts, or "*.example.com"`, "credentials for every host would be anybody's")
	case d.prefix.IsValid():
		return d, faultf(at, "", "%s is no name: only a name's certificate shows who gets the credentials", clip(host))
	}
	return d, nil
}

// kept lists headers that belong to the connection, or that say where a request goes and how long
// it is. An injection can't set them, because that would change the judged request.
var kept = []string{
	"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade",
	"expect", "http2-settings", "proxy-authorization", "proxy-authenticate",
}

func checkHeader(at, name, value string) *fault {
	if err := checkToken(name); err != nil || len(name) > maxText {
		return faultf(at, "", "%s is no name of a header", clip(name))
	}
	if slices.Contains(kept, strings.ToLower(name)) {
		return faultf(at+"."+name, "", "the header %s can't be set: it belongs to the connection or says where the request goes", name)
	}
	if strings.ContainsFunc(value, func(c rune) bool { return isControl(c) && c != '\t' }) {
		return faultf(at+"."+name, "", "the value has a control character")
	}
	if value != strings.Trim(value, " \t") {
		return faultf(at+"."+name, "", "the value begins or ends with white space")
	}
	return checkText(at+"."+name, value)
}

// checkText checks a text with references.
func checkText(at, text string) *fault {
	if len(text) > maxValue {
		return faultf(at, "", "longer than %d bytes", maxValue)
	}
	if err := checkReferences(text); err != nil {
		return faultf(at, "write ${secrets.NAME} or ${tokens.NAME}", "%s", err)
	}
	return nil
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
