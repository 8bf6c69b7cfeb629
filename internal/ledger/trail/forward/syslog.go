package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Syslog is a server that speaks syslog: RFC 5424 over UDP, over TCP with octet counting (RFC 6587),
// or over a Unix datagram socket. The message of each is the record's line.
type Syslog struct {
	network, addr string
	host          string
	conn          net.Conn
}

var _ Sink = (*Syslog)(nil)

// NewSyslog returns the server at a URL: udp://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH. It
// connects with the first message.
func NewSyslog(text string) (*Syslog, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	s := &Syslog{network: u.Scheme, addr: u.Host}
	switch {
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it has more than a scheme and an address")
	case (u.Scheme == "udp" || u.Scheme == "tcp") && u.Hostname() != "" && strings.Trim(u.Path, "/") == "":
		if u.Port() == "" {
			s.addr = net.JoinHostPort(u.Hostname(), map[string]string{"udp": "514", "tcp": "601"}[u.Scheme])
		}
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		s.network, s.addr = "unixgram", u.Path
	default:
		return nil, errors.New("it is none of udp://HOST[:PORT], tcp://HOST[:PORT] and unix:///PATH")
	}
	if s.host, err = os.Hostname(); err != nil || s.host == "" {
		s.host = "-"
	}
	return s, nil
}

// priority is facility 13 (log audit) with severity 6 (informational) or 5 (notice).
func priority(r carrel.TrailRecord) int {
	const audit, notice, informational = 13 * 8, 5, 6
	if r.Kind == carrel.TrailRefuse || r.Kind == carrel.TrailTorn || r.Kind == carrel.TrailLost {
		return audit + notice
	}
	return audit + informational
}

// Send implements Sink.
func (s *Syslog) Send(ctx context.Context, records []carrel.TrailRecord) error {
	if s.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, s.network, s.addr)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.conn.SetWriteDeadline(deadline)
	}
	for _, r := range records {
		msg := fmt.Appendf(nil, "<%d>1 %s %s carrel %d %s - %s", priority(r), r.Time.UTC().Format(time.RFC3339Nano),
			s.host, os.Getpid(), r.Kind, r.Line)
		if s.network == "tcp" {
			msg = append(fmt.Appendf(nil, "%d ", len(msg)), msg...)
		}
		if _, err := s.conn.Write(msg); err != nil {
			_ = s.conn.Close()
			s.conn = nil
			return err
		}
	}
	return nil
}

// Close implements Sink.
func (s *Syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}
