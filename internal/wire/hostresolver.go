package wire

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/miekg/dns"
)

// HostResolver forwards questions to the name servers of this host, as /etc/resolv.conf lists them
// at that moment.
type HostResolver struct {
	// File replaces /etc/resolv.conf, if set.
	File string
	// Port replaces 53, if set.
	Port string
}

// Exchange asks the servers in their order, over UDP. If the answer does not fit, it asks again
// over TCP.
func (h *HostResolver) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	file := h.File
	if file == "" {
		file = "/etc/resolv.conf"
	}
	cfg, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, err
	}
	err = errors.New("no name server in " + file)
	if h.Port != "" {
		cfg.Port = h.Port
	}
	for _, s := range cfg.Servers {
		at := net.JoinHostPort(s, cfg.Port)
		var a *dns.Msg
		if a, err = exchangeWith(ctx, &dns.Client{Net: "udp", Timeout: 2 * time.Second}, q, at); err == nil && a.Truncated {
			a, err = exchangeWith(ctx, &dns.Client{Net: "tcp", Timeout: 3 * time.Second}, q, at)
		}
		if err == nil || ctx.Err() != nil {
			return a, err
		}
	}
	return nil, err
}

// exchangeWith asks one server. It ends with ctx; the client alone would not.
func exchangeWith(ctx context.Context, client *dns.Client, q *dns.Msg, at string) (*dns.Msg, error) {
	c, err := client.DialContext(ctx, at)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	a, _, err := client.ExchangeWithConnContext(ctx, q, c)
	return a, err
}
