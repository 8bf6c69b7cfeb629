package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// thousand returns a policy of 1000 rules of all kinds.
func thousand(tb testing.TB) *policy.Policy {
	var p carrel.Policy
	for i := range 1000 {
		r := carrel.Rule{}
		switch i % 4 {
		case 0:
			r.Allow = []string{fmt.Sprintf("host%d.example.com", i)}
		case 1:
			r.Allow = []string{fmt.Sprintf("*.zone%d.example.org", i)}
		case 2:
			r.Allow = []string{fmt.Sprintf("198.51.%d.%d", i/256, i%256), fmt.Sprintf("2001:db8:%x::/48", i)}
		case 3:
			r.Deny = []string{fmt.Sprintf("192.0.%d.0/24", i%200+2)}
			r.Ports = []string{fmt.Sprint(i + 1)}
		}
		p.Rules = append(p.Rules, r)
	}
	p.Inject = []carrel.Injection{{Host: "host996.example.com", Bearer: "key"}}
	return ours(tb, p)
}

func BenchmarkJudge(b *testing.B) {
	p := thousand(b)
	last := tcp(site, 443, "host992.example.com")
	for name, f := range map[string]policy.Flow{
		"start":        last,
		"TLS":          tls(last, "host992.example.com"),
		"wildcard":     tls(tcp(site, 443, "a.zone997.example.org"), "a.zone997.example.org"),
		"address":      tcp("198.51.3.230", 443),
		"denied":       tcp(site, 443),
		"many names":   tls(tcp(site, 443, "a.example", "b.example", "c.example", "d.example", "host992.example.com"), "host992.example.com"),
		"with request": opened(tcp(site, 443, "host996.example.com"), "GET", "host996.example.com", "/v1/x"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Judge(f)
			}
		})
	}
	b.Run("name", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.JudgeName("host992.example.com")
		}
	})
	b.Run("target", func(b *testing.B) {
		to := netip.MustParseAddr(site2)
		f := tls(last, "host992.example.com")
		for b.Loop() {
			p.JudgeTarget(f, to)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		thousand(b)
	}
}
