package debian

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxRedirects is how often a mirror may point elsewhere.
const maxRedirects = 5

// publicOnlyKey marks the context of a request that may dial public addresses only.
type publicOnlyKey struct{}

// newClient returns a client that asks the mirror wherever the operator says it is. But it follows
// a redirect to public addresses only: a mirror must not make this machine ask services that
// believe everybody who can reach them.
func newClient() http.Client {
	dialer := &net.Dialer{Timeout: 20 * time.Second, ControlContext: checkDial}
	return http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			MaxIdleConnsPerHost: parallelFetches, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: 20 * time.Second, ResponseHeaderTimeout: time.Minute,
			DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkDial refuses addresses. It sees the address after the name was looked up.
func checkDial(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := ap.Addr().Unmap()
	publicOnly := ctx.Value(publicOnlyKey{}) != nil
	if a.IsLinkLocalUnicast() || a.IsMulticast() || publicOnly && !isPublic(a) {
		return errRefused{fmt.Errorf("the mirror leads to %v, which is no public address", a)}
	}
	return nil
}

// carrierNAT and benchmarking are private in fact, but netip does not count them.
var (
	carrierNAT   = netip.MustParsePrefix("100.64.0.0/10")
	benchmarking = netip.MustParsePrefix("198.18.0.0/15")
)

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !carrierNAT.Contains(a) &&
		!benchmarking.Contains(a)
}

// get asks for a file from a byte on, and follows redirects.
func (f *Fetcher) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	first := hostOf(address)
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, errRefused{err}
		}
		req.Header.Set("User-Agent", "carrel")
		if from > 0 {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		}
		if req.URL.Host != first {
			if req, err = toElsewhere(req); err != nil {
				return nil, err
			}
		}
		resp, err := f.client.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 3 {
			return checkStatus(resp, from)
		}
		next, err := resp.Location()
		_ = resp.Body.Close()
		if err != nil {
			return nil, errRefused{fmt.Errorf("the mirror answered %s", resp.Status)}
		}
		if next.Scheme != "http" && next.Scheme != "https" || req.URL.Scheme == "https" &&
			next.Scheme == "http" {
			return nil, errRefused{fmt.Errorf("the mirror redirects from %s to %s", req.URL.Scheme,
				clipText(next.Scheme))}
		}
		next.User = nil
		address = next.String()
	}
	return nil, errRefused{errors.New("the mirror redirects again and again")}
}

// toElsewhere prepares a request to a host that the mirror named. Behind a proxy, checkDial sees
// only the proxy's address. So toElsewhere judges an address that is written out, and the proxy
// judges names.
func toElsewhere(req *http.Request) (*http.Request, error) {
	a, err := netip.ParseAddr(req.URL.Hostname())
	if err == nil && !isPublic(a.Unmap()) {
		return nil, errRefused{fmt.Errorf("the mirror leads to %v, which is no public address", a)}
	}
	if proxy, err := http.ProxyFromEnvironment(req); err == nil && proxy != nil {
		return req, nil
	}
	return req.WithContext(context.WithValue(req.Context(), publicOnlyKey{}, true)), nil
}

// checkStatus accepts the whole file, or the asked part of it.
func checkStatus(resp *http.Response, from int64) (*http.Response, error) {
	switch {
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	case resp.StatusCode == http.StatusPartialContent && from > 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
		return resp, nil
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return nil, errRefused{&carrel.Error{Op: opMake, Kind: carrel.Unavailable,
			Err:  fmt.Errorf("the mirror no longer has %s", clipText(resp.Request.URL.Path)),
			Hint: "Debian has replaced the pinned version: use a newer Carrel, or a mirror that keeps old versions (--debian-mirror)"}}
	case resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests &&
		resp.StatusCode != http.StatusRequestTimeout &&
		resp.StatusCode != http.StatusRequestedRangeNotSatisfiable:
		return nil, errRefused{fmt.Errorf("the mirror answered %s", clipText(resp.Status))}
	}
	return nil, fmt.Errorf("the mirror answered %s", clipText(resp.Status))
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// clipText bounds a text of a mirror in a message.
func clipText(s string) string { return fmt.Sprintf("%.200q", s) }
