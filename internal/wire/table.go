package wire

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
)

// Table is a written-down outside world. It is a [Resolver] and a [Dialer] for tests and for closed
// set-ups. Connections go only to the targets in Dial. It must not be changed while it is used.
type Table struct {
	// Names are the names that the resolver knows, with their addresses. "*.name" stands for all
	// names below name. An entry that is no address is another name, of which this one is an alias.
	// All other names don't exist.
	Names map[string][]string `json:"names,omitempty"`
	// Dial maps an address to its real target. "address:port" stands for one port, "address" for
	// all ports. The target is "address:port", or "address" for the same port. All other addresses
	// are unreachable.
	Dial map[string]string `json:"dial,omitempty"`
	// Roots, if given, verify the servers; see Options.Roots.
	Roots *x509.CertPool `json:"-"`
}

var (
	_ Resolver = (*Table)(nil)
	_ Dialer   = (*Table)(nil)
)

// tableTTL is the time to live of the table's answers, in seconds.
const tableTTL = 60

// LoadTable reads a table from a JSON file with "names", "dial" and "roots". The latter is the name
// of a file with certificates in PEM, relative to the table's file. Error: Invalid.
func LoadTable(file string) (*Table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, tableError(file, err)
	}
	var in struct {
		Table
		Roots string `json:"roots"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, tableError(file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, tableError(file, errors.New("more after the table's end"))
	}
	t := in.Table
	if err := t.check(); err != nil {
		return nil, tableError(file, err)
	}
	if in.Roots != "" {
		if !filepath.IsAbs(in.Roots) {
			in.Roots = filepath.Join(filepath.Dir(file), in.Roots)
		}
		certs, err := os.ReadFile(in.Roots)
		if err != nil {
			return nil, tableError(file, err)
		}
		t.Roots = x509.NewCertPool()
		if !t.Roots.AppendCertsFromPEM(certs) {
			return nil, tableError(file, fmt.Errorf("no certificate in %s", in.Roots))
		}
	}
	return &t, nil
}

func tableError(file string, err error) error {
	return &carrel.Error{Op: "load wire table", Kind: carrel.Invalid, Err: fmt.Errorf("%s: %w", file, err)}
}

func (t *Table) check() error {
	for name := range t.Names {
		if _, ok := dns.IsDomainName(strings.TrimPrefix(name, "*.")); !ok || name == "" {
			return fmt.Errorf("names: %q is no name", name)
		}
	}
	for from, to := range t.Dial {
		for _, s := range []string{from, to} {
			_, err := netip.ParseAddr(s)
			if _, errPort := netip.ParseAddrPort(s); err != nil && errPort != nil {
				return fmt.Errorf("dial: %q is neither address nor address:port", s)
			}
		}
	}
	return nil
}

// Exchange answers A and AAAA from Names. A name that exists has no records of other types.
func (t *Table) Exchange(_ context.Context, q *dns.Msg) (*dns.Msg, error) {
	a := new(dns.Msg).SetReply(q)
	if len(q.Question) != 1 {
		return a.SetRcode(q, dns.RcodeFormatError), nil
	}
	name, kind := q.Question[0].Name, q.Question[0].Qtype
	// A longer chain of aliases is a circle.
	for range 8 {
		entries, ok := t.lookup(name)
		if !ok {
			return a.SetRcode(q, dns.RcodeNameError), nil
		}
		head := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: tableTTL}
		alias := ""
		for _, e := range entries {
			ip, err := netip.ParseAddr(e)
			switch {
			case err != nil:
				alias = dns.Fqdn(e)
			case ip.Is4() && kind == dns.TypeA:
				head.Rrtype = dns.TypeA
				a.Answer = append(a.Answer, &dns.A{Hdr: head, A: ip.AsSlice()})
			case ip.Is6() && kind == dns.TypeAAAA:
				head.Rrtype = dns.TypeAAAA
				a.Answer = append(a.Answer, &dns.AAAA{Hdr: head, AAAA: ip.AsSlice()})
			}
		}
		if alias == "" {
			return a, nil
		}
		head.Rrtype = dns.TypeCNAME
		a.Answer = append(a.Answer, &dns.CNAME{Hdr: head, Target: alias})
		name = alias
	}
	return a.SetRcode(q, dns.RcodeServerFailure), nil
}

func (t *Table) lookup(name string) ([]string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if e, ok := t.Names[name]; ok {
		return e, true
	}
	for {
		_, rest, found := strings.Cut(name, ".")
		if !found {
			return nil, false
		}
		if e, ok := t.Names["*."+rest]; ok {
			return e, true
		}
		name = rest
	}
}

// DialContext connects to the target of an address in Dial.
func (t *Table) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	from, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	to, ok := t.Dial[from.String()]
	if !ok {
		to, ok = t.Dial[from.Addr().String()]
	}
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EHOSTUNREACH}
	}
	if ip, err := netip.ParseAddr(to); err == nil {
		to = netip.AddrPortFrom(ip, from.Port()).String()
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}
