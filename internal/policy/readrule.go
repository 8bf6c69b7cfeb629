package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// readRule checks one rule of Carrel's form. left is how many more destinations the policy may
// have.
func readRule(at string, src carrel.Rule, left *int) (rule, []destination, *fault) {
	r := rule{allow: len(src.Deny) == 0, inspect: src.Inspect, said: cloneRule(src)}
	if len(src.Name) > maxText || !utf8.ValidString(src.Name) || strings.ContainsFunc(src.Name, unicode.IsControl) {
		return r, nil, faultf(at+".name", "", "%s is no name: at most %d bytes of text on one line", clip(src.Name), maxText)
	}
	list, field, err := verbOf(at, src)
	if err != nil {
		return r, nil, err
	}
	if len(src.Ask) > 0 {
		r.ask = askOf(src)
	}
	if *left -= len(list); *left < 0 {
		return r, nil, faultf(at+field, "", "more than %d destinations in all", maxDestinations)
	}
	dests, err := readDestinations(at+field, list, r.allow)
	if err != nil {
		return r, nil, err
	}
	for _, d := range dests {
		r.names = r.names || d.name != "" || d.suffix != ""
	}
	if r.protocol, err = readProtocol(at+".protocol", src.Protocol); err != nil {
		return r, nil, err
	}
	if r.ports, err = readPorts(at+".ports", src.Ports); err != nil {
		return r, nil, err
	}
	if r.methods, err = readMethods(at+".methods", src.Methods); err != nil {
		return r, nil, err
	}
	if r.paths, err = readPaths(at+".paths", src.Paths); err != nil {
		return r, nil, err
	}
	if err := checkLimits(at+".limits", src.Limits); err != nil {
		return r, nil, err
	}
	if r.ask != "" {
		if err := checkAsk(at, &r, dests); err != nil {
			return r, nil, err
		}
	}
	if r.forHost(dests) {
		r.host, r.names = true, false
		return r, dests, checkForHost(at, &r, dests)
	}
	return r, dests, checkTogether(at, &r, src, dests)
}

// verbOf returns the destinations of a rule, and their field.
func verbOf(at string, src carrel.Rule) (list []string, field string, err *fault) {
	given := 0
	for _, v := range []struct {
		field string
		list  []string
	}{{".allow", src.Allow}, {".deny", src.Deny}, {".ask", src.Ask}} {
		if len(v.list) > 0 {
			list, field = v.list, v.field
			given++
		}
	}
	switch given {
	case 1:
		return list, field, nil
	case 0:
		return nil, "", faultf(at, `for everything write "*"`, "a rule needs destinations: allow, deny or ask")
	}
	return nil, "", faultf(at, "make a rule of each",
		"a rule has one of allow, deny and ask, and this has more")
}

// cloneRule copies a rule, because the caller may change its lists.
func cloneRule(r carrel.Rule) carrel.Rule {
	for _, list := range []*[]string{&r.Allow, &r.Deny, &r.Ask, &r.Ports, &r.Methods, &r.Paths} {
		*list = slices.Clone(*list)
	}
	return r
}

// checkTogether refuses contradictions within a rule.
func checkTogether(at string, r *rule, src carrel.Rule, dests []destination) *fault {
	if r.protocol == onlyTCP || r.protocol == onlyUDP {
		for _, f := range []struct {
			field string
			given bool
		}{{".methods", len(r.methods) > 0}, {".paths", len(r.paths) > 0}, {".inspect", r.inspect}} {
			if f.given {
				return faultf(at+f.field, "leave protocol out, or write https", "protocol %s is not seen into", src.Protocol)
			}
		}
	}
	if !r.allow {
		switch {
		case r.inspect:
			return faultf(at+".inspect", "", "what is denied can't be inspected")
		case src.Limits != (carrel.TrafficLimits{}):
			return faultf(at+".limits", "", "what is denied can't be limited")
		}
		return nil
	}
	if src.Limits.RequestsPerSecond > 0 && (r.protocol == onlyTCP || r.protocol == onlyUDP) {
		return faultf(at+".limits.requestsPerSecond", "", "protocol %s has no requests that are seen", src.Protocol)
	}
	if r.names && r.protocol == anyProtocol && !slices.ContainsFunc(dests, func(d destination) bool { return d.any }) {
		for i, p := range r.ports {
			if what := unnamed[p.from]; what != "" && p.from == p.to {
				return faultf(fmt.Sprintf("%s.ports[%d]", at, i), "add protocol: tcp",
					"names are matched as TLS or HTTP say them, and port %d is for %s, which says none", p.from, what)
			}
		}
	}
	return nil
}

// unnamed lists ports whose protocols do not say the name that they connect to.
var unnamed = map[uint16]string{
	21: "FTP", 22: "SSH", 23: "Telnet", 25: "SMTP", 53: "DNS", 110: "POP3", 143: "IMAP", 389: "LDAP", 445: "SMB", 514: "syslog",
	587: "SMTP", 873: "rsync", 1433: "SQL Server", 1521: "Oracle", 3306: "MySQL", 3389: "RDP", 5432: "PostgreSQL", 5672: "AMQP",
	5900: "VNC", 6379: "Redis", 9092: "Kafka", 9418: "git", 11211: "memcached", 27017: "MongoDB",
}

func readDestinations(at string, list []string, allow bool) ([]destination, *fault) {
	out := make([]destination, 0, len(list))
	seen := make(map[destination]int, len(list))
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		d, hint, err := parseDestination(s)
		if err != nil {
			return nil, &fault{at: at, reason: err.Error(), hint: hint}
		}
		if first, there := seen[d]; there {
			return nil, faultf(at, "", "%s is the same as %s before it", clip(s), clip(list[first]))
		}
		seen[d] = i
		if allow && d.prefix.IsValid() {
			if c, what := classOf(d.prefix); c == never {
				return nil, faultf(at, "", "%s is %s: no sandbox reaches it, whatever the rules say", clip(s), what)
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func readProtocol(at, s string) (protocol, *fault) {
	switch s {
	case "":
		return anyProtocol, nil
	case "tcp":
		return onlyTCP, nil
	case "udp":
		return onlyUDP, nil
	case "http":
		return onlyHTTP, nil
	case "https":
		return onlyHTTPS, nil
	}
	return 0, faultf(at, "", "%s is none of tcp, udp, http and https", clip(s))
}

func readPorts(at string, list []string) ([]ports, *fault) {
	if len(list) > maxList {
		return nil, faultf(at, "", "%d ports, at most %d may be", len(list), maxList)
	}
	var out []ports
	for i, s := range list {
		p, err := parsePorts(s)
		if err != nil {
			return nil, faultf(fmt.Sprintf("%s[%d]", at, i), "", "%s %s", clip(s), err)
		}
		if slices.Contains(out, p) {
			return nil, faultf(fmt.Sprintf("%s[%d]", at, i), "", "%s is given twice", clip(s))
		}
		out = append(out, p)
	}
	return out, nil
}

// parsePorts reads "443" or "8000-8999".
func parsePorts(s string) (ports, error) {
	from, to, isRange := strings.Cut(s, "-")
	a, err := parsePort(from)
	if err != nil {
		return ports{}, err
	}
	if !isRange {
		return ports{a, a}, nil
	}
	b, err := parsePort(to)
	if err != nil {
		return ports{}, err
	}
	if a > b {
		return ports{}, errors.New("is backwards")
	}
	return ports{a, b}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] < '1' || s[0] > '9' {
		return 0, errors.New("is neither a port (1 to 65535) nor a range of them (8000-8999)")
	}
	return uint16(n), nil
}

func readMethods(at string, list []string) ([]string, *fault) {
	if len(list) > maxList {
		return nil, faultf(at, "", "%d methods, at most %d may be", len(list), maxList)
	}
	for i, m := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case len(m) > 32 || checkToken(m) != nil:
			return nil, faultf(at, "", "%s is no method", clip(m))
		case m == "CONNECT":
			return nil, faultf(at, "", "CONNECT opens tunnels and is always denied")
		case m != strings.ToUpper(m) && slices.Contains(commonMethods, strings.ToUpper(m)):
			return nil, faultf(at, "write "+strings.ToUpper(m), "%s: methods are told apart by case", clip(m))
		case slices.Contains(list[:i], m):
			return nil, faultf(at, "", "%s is given twice", clip(m))
		}
	}
	return slices.Clone(list), nil
}

var commonMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

func readPaths(at string, list []string) ([]pattern, *fault) {
	if len(list) > maxList {
		return nil, faultf(at, "", "%d paths, at most %d may be", len(list), maxList)
	}
	var out []pattern
	for i, s := range list {
		p, err := parsePattern(s)
		if err != nil {
			return nil, faultf(fmt.Sprintf("%s[%d]", at, i), "", "%s", err)
		}
		if slices.Contains(list[:i], s) {
			return nil, faultf(fmt.Sprintf("%s[%d]", at, i), "", "%s is given twice", clip(s))
		}
		out = append(out, p)
	}
	return out, nil
}

func checkLimits(at string, l carrel.TrafficLimits) *fault {
	for _, x := range []struct {
		field string
		value float64
	}{
		{"connections", float64(l.Connections)},
		{"connectionsPerSecond", l.ConnectionsPerSecond},
		{"requestsPerSecond", l.RequestsPerSecond},
		{"sendBytesPerSecond", float64(l.SendBytesPerSecond)},
		{"receiveBytesPerSecond", float64(l.ReceiveBytesPerSecond)},
	} {
		switch {
		case x.value < 0:
			return faultf(at+"."+x.field, "", "%v is negative", x.value)
		case math.IsNaN(x.value) || math.IsInf(x.value, 0):
			return faultf(at+"."+x.field, "", "%v is no number", x.value)
		}
	}
	return nil
}

// checkToken checks a method or a header's name (RFC 9110, 5.6.2).
func checkToken(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return fmt.Errorf("has the character %q", c)
		}
	}
	return nil
}
