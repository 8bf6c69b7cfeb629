package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	// minTTL and maxTTL bound the times to live that a sandbox gets, in seconds.
	minTTL, maxTTL = 1, 3600
	// maxChain bounds the aliases of one answer, and maxRecords its records.
	maxChain   = 16
	maxRecords = 256
	// otherFamily is how long a lookup that has addresses of one family waits for those of the
	// other family.
	otherFamily = 50 * time.Millisecond
)

// answered is the result of a question.
type answered struct {
	code      int
	records   []dns.RR
	addresses []netip.Addr
	// removed says why addresses were removed. It is nil if none were.
	removed *policy.Verdict
}

// ask asks outside for the records of an allowed name. It makes the answer anew from the chain of
// aliases that begins with the name, and from the records at its end. All other records of the
// servers are dropped, and so are addresses that no name may lead to. The sandbox's table learns
// the addresses that are left.
func (s *nameService) ask(ctx context.Context, r *rules, name string, kind uint16) (answered, error) {
	if name == policy.HostName {
		return answered{}, errors.New("nobody outside is asked for " + name)
	}
	// The question is made anew too, because the sandbox's own could carry more data than a name.
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	q.SetEdns0(dnsMaxUDP, false)
	m, err := s.out.link.wire.opts.Resolver.Exchange(ctx, q)
	switch {
	case err != nil:
		return answered{}, err
	case m == nil || len(m.Question) == 1 && (!strings.EqualFold(m.Question[0].Name, q.Question[0].Name) || m.Question[0].Qtype != kind):
		return answered{}, errors.New("the name server answered another question")
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return answered{}, fmt.Errorf("the name server answered %s", dns.RcodeToString[m.Rcode])
	}
	out := answered{code: m.Rcode}
	owner := q.Question[0].Name
	for range maxChain {
		target := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, owner) || len(out.records) >= maxRecords {
				continue
			}
			if c, ok := rr.(*dns.CNAME); ok && target == "" {
				target = c.Target
				out.records = append(out.records, clean(rr))
			} else if h.Rrtype == kind && !ok {
				s.keep(r, &out, name, clean(rr))
			}
		}
		if target == "" || kind == dns.TypeCNAME {
			break
		}
		owner = target
	}
	return out, nil
}

// keep adds a record to an answer. It leaves out addresses that no name may lead to.
func (s *nameService) keep(r *rules, out *answered, name string, rr dns.RR) {
	var a netip.Addr
	switch rr := rr.(type) {
	case *dns.A:
		a, _ = netip.AddrFromSlice(rr.A)
	case *dns.AAAA:
		a, _ = netip.AddrFromSlice(rr.AAAA)
	default:
		out.records = append(out.records, rr)
		return
	}
	a = a.Unmap()
	if !r.reachable(a) {
		no := denied("address of a name", fmt.Sprintf("%s leads to %s, which is out of reach for sandboxes", name, a))
		out.removed = &no
		return
	}
	out.records = append(out.records, rr)
	out.addresses = append(out.addresses, a)
	s.out.answers.learn(name, a, time.Duration(rr.Header().Ttl)*time.Second)
}

// clean copies a record, with its time to live between minTTL and maxTTL.
func clean(rr dns.RR) dns.RR {
	rr = dns.Copy(rr)
	h := rr.Header()
	h.Ttl = min(max(h.Ttl, minTTL), maxTTL)
	return rr
}

// lookup returns the present addresses of a name, and lets the sandbox's table learn them. If
// prefer is among them it comes first, followed by the others of its family.
func (s *nameService) lookup(ctx context.Context, r *rules, name string, prefer netip.Addr) ([]netip.Addr, error) {
	type result struct {
		answered
		err error
	}
	kinds := []uint16{dns.TypeA, dns.TypeAAAA}
	results := make(chan result, len(kinds))
	for _, kind := range kinds {
		// Only the link's end waits for a name server that is late with one family.
		s.out.busy.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
			defer cancel()
			got, err := s.ask(ctx, r, name, kind)
			results <- result{got, err}
		})
	}
	var all []netip.Addr
	var errs []error
	var late <-chan time.Time
	for range kinds {
		select {
		case got := <-results:
			all = append(all, got.addresses...)
			if got.removed != nil {
				errs = append(errs, &refusedError{*got.removed})
			}
			errs = append(errs, got.err)
		case <-late:
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
		if len(all) > 0 {
			late = time.After(otherFamily)
		}
	}
	if len(all) > 0 {
		slices.SortStableFunc(all, func(a, b netip.Addr) int { return rank(a, prefer) - rank(b, prefer) })
		return all, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	return nil, fmt.Errorf("%s has no address", name)
}
