package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// urlCommand is "carrel url".
func urlCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "url ID [PORT]",
		Short: "Print the URL of a port in a sandbox",
		Long: `Prints the URL by which HTTP clients reach a port of the sandbox. Without PORT the
word PORT stands in its place. A daemon with --domain has URLs below that domain. A
daemon on this machine has http://PORT-ID.localhost:7070: browsers and curl find such
names by themselves. Clients that don't can send the name as the header Host to the
daemon's own address.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := carrel.ParseID(args[0])
			if err != nil {
				return err
			}
			port := "PORT"
			if len(args) > 1 {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil || n == 0 {
					return usage(fmt.Errorf("%q is not a port from 1 to 65535", args[1]))
				}
				port = strconv.FormatUint(n, 10)
			}
			return a.withService(c.Context(), func(svc carrel.Service) error { return printURL(c.Context(), a, svc, id, port) })
		},
	}
}

// printURL prints the URL of a port of an existing sandbox.
func printURL(ctx context.Context, a *app, svc carrel.Service, id carrel.ID, port string) error {
	sb, err := svc.Get(ctx, id)
	if err != nil {
		return err
	}
	daemon, err := daemonURL(a)
	if err != nil {
		return err
	}
	to, err := portURL(daemon, sb, port)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"url": to, "private": sb.Network.PrivateTraffic})
	}
	if sb.Network.PrivateTraffic {
		fmt.Fprintln(a.err, "carrel: requests need the sandbox's traffic token in the header e2b-traffic-access-token")
	}
	fmt.Fprintln(a.out, to)
	return nil
}

// portURL returns the URL of a sandbox's port, on the daemon at a given URL.
func portURL(daemon string, sb carrel.Sandbox, port string) (string, error) {
	u, err := url.Parse(daemon)
	if err != nil || u.Host == "" {
		return "", usage(fmt.Errorf("%q is no daemon's URL", daemon))
	}
	domain := sb.Domain
	if domain == "" {
		if !isLoopback(u.Hostname()) {
			return "", &carrel.Error{Op: "find URL", Kind: carrel.Unsupported, ID: sb.ID,
				Err:  fmt.Errorf("the daemon at %s has no domain for its sandboxes' ports", u.Host),
				Hint: "start it with --domain, or: carrel port-forward " + string(sb.ID) + " " + port}
		}
		domain = "localhost"
	}
	if _, _, err := net.SplitHostPort(domain); err != nil && u.Port() != "" {
		domain += ":" + u.Port() // the daemon serves everything at one address
	}
	return u.Scheme + "://" + port + "-" + string(sb.ID) + "." + domain, nil
}

// isLoopback reports whether a host is this machine's loopback.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
