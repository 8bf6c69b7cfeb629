package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/carrel-dev/carrel"
)

// listen puts a listener of the test's own on a port of a sandbox.
func (w *world) listen(t *testing.T, id carrel.ID, port uint16) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.ports[id][port] = l.Addr().String()
	w.mu.Unlock()
	return l
}

// chat is a gRPC service with one method, a stream in both directions. It answers each message at
// once, with headers before and trailers after.
var chat = grpc.ServiceDesc{ServiceName: "test.Chat", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
	StreamName: "Talk", ServerStreams: true, ClientStreams: true,
	Handler: func(_ any, s grpc.ServerStream) error {
		in, _ := metadata.FromIncomingContext(s.Context())
		_ = s.SendHeader(metadata.Pairs("early", "yes", "saw-token", strings.Join(in.Get("e2b-traffic-access-token"), "")))
		s.SetTrailer(metadata.Pairs("late", "yes"))
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); err != nil {
				if errors.Is(err, io.EOF) {
					return status.Error(codes.DataLoss, "that was all")
				}
				return err
			}
			if err := s.SendMsg(wrapperspb.String("re: " + m.Value)); err != nil {
				return err
			}
		}
	},
}}}

// TestGRPC talks to a real gRPC server in a sandbox. Outside it uses TLS with ALPN, and prior
// knowledge. Inside, one server is in the clear and one uses TLS.
func TestGRPC(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{Network: carrel.Network{PrivateTraffic: true, HTTPSPorts: []uint16{50443}}, TrafficToken: "secret"}, nil)
	ca, cert := wildcard(t, "example.com")
	for port, opts := range map[uint16][]grpc.ServerOption{50051: nil, 50443: {grpc.Creds(credentials.NewServerTLSFromCert(&cert))}} {
		srv := grpc.NewServer(opts...)
		srv.RegisterService(&chat, nil)
		l := w.listen(t, id, port)
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(srv.Stop)
	}
	fronts := map[string]struct {
		addr  string
		creds credentials.TransportCredentials
	}{
		"plain": {strictFront(t, w, nil), insecure.NewCredentials()},
		"tls":   {strictFront(t, w, &tls.Config{Certificates: []tls.Certificate{cert}}), credentials.NewTLS(&tls.Config{RootCAs: ca})},
	}
	for kind, f := range fronts {
		for _, port := range []int{50051, 50443} {
			t.Run(fmt.Sprintf("%s/%d", kind, port), func(t *testing.T) {
				host := fmt.Sprintf("%d-%s.example.com", port, id)
				conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(f.creds), grpc.WithAuthority(host), grpc.WithNoProxy(),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
						return (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
					}))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				talk := func(token string) (grpc.ClientStream, error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					t.Cleanup(cancel)
					if token != "" {
						ctx = metadata.AppendToOutgoingContext(ctx, "e2b-traffic-access-token", token)
					}
					return conn.NewStream(ctx, &chat.Streams[0], "/test.Chat/Talk")
				}
				for _, token := range []string{"", "wrong"} {
					s, err := talk(token)
					if err == nil {
						err = s.RecvMsg(new(wrapperspb.StringValue))
					}
					if status.Code(err) != codes.PermissionDenied {
						t.Errorf("token %q: %v", token, err)
					}
				}
				s, err := talk("secret")
				if err != nil {
					t.Fatal(err)
				}
				if h, err := s.Header(); err != nil || len(h.Get("early")) != 1 || strings.Join(h.Get("saw-token"), "") != "" {
					t.Fatalf("headers before any message: %v, %v", h, err)
				}
				for i := range 5 {
					m := wrapperspb.String(strings.Repeat("x", 100_000*i) + fmt.Sprint(i))
					if err := s.SendMsg(m); err != nil {
						t.Fatal(err)
					}
					got := new(wrapperspb.StringValue)
					if err := s.RecvMsg(got); err != nil || got.Value != "re: "+m.Value {
						t.Fatalf("message %d: %d bytes, %v", i, len(got.Value), err)
					}
				}
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}
				err = s.RecvMsg(new(wrapperspb.StringValue))
				if status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "that was all" || len(s.Trailer().Get("late")) != 1 {
					t.Errorf("the end: %v, trailers %v", err, s.Trailer())
				}
			})
		}
	}
}

// TestRealWebSocket talks to a real WebSocket server, in the clear and in TLS, with
// the token and without.
func TestRealWebSocket(t *testing.T) {
	w := newWorld(t)
	echo := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, data); err != nil {
				return
			}
		}
	})
	sb := carrel.Sandbox{Network: carrel.Network{PrivateTraffic: true}, TrafficToken: "secret"}
	id := w.add(t, sb, map[uint16]http.Handler{8765: echo})
	ca, cert := wildcard(t, "example.com")
	for scheme, addr := range map[string]string{"ws": strictFront(t, w, nil), "wss": strictFront(t, w, &tls.Config{Certificates: []tls.Certificate{cert}})} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca}, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}}
		defer tr.CloseIdleConnections()
		dial := func(token string) (*websocket.Conn, *http.Response, error) {
			h := http.Header{}
			if token != "" {
				h.Set(headerTraffic, token)
			}
			return websocket.Dial(t.Context(), fmt.Sprintf("%s://8765-%s.example.com/socket", scheme, id),
				&websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}, HTTPHeader: h, Subprotocols: []string{"echo"}})
		}
		for _, token := range []string{"", "wrong"} {
			if _, resp, err := dial(token); err == nil || resp == nil || resp.StatusCode != 403 {
				t.Errorf("%s, token %q: %v", scheme, token, err)
			}
		}
		c, _, err := dial("secret")
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		for _, size := range []int{1, 200_000} {
			msg := bytes.Repeat([]byte("x"), size)
			if err := c.Write(t.Context(), websocket.MessageBinary, msg); err != nil {
				t.Fatal(err)
			}
			if _, back, err := c.Read(t.Context()); err != nil || !bytes.Equal(back, msg) {
				t.Errorf("%s: %d bytes, %v", scheme, len(back), err)
			}
		}
		if c.Subprotocol() != "echo" {
			t.Errorf("subprotocol %q", c.Subprotocol())
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
}

// TestServerSentEvents shows that each event arrives before the next is made, over HTTP/1.1 and
// HTTP/2.
func TestServerSentEvents(t *testing.T) {
	// Each visit has events of its own, because the first one's handler may still run when the
	// second begins.
	events := map[string]chan struct{}{"/false": make(chan struct{}), "/true": make(chan struct{})}
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		next := events[r.URL.Path]
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := 0; ; i++ {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})})
	ca, cert := wildcard(t, "example.com")
	addr := strictFront(t, w, &tls.Config{Certificates: []tls.Certificate{cert}})
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca}, ForceAttemptHTTP2: h2, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}}
		resp, err := (&http.Client{Transport: tr}).Get(fmt.Sprintf("https://3000-%s.example.com/%v", id, h2))
		if err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(resp.Body)
		for i := range 5 {
			line, err := br.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("h2=%v: %q, %v", h2, line, err)
			}
			_, _ = br.ReadString('\n')
			events[fmt.Sprintf("/%v", h2)] <- struct{}{}
		}
		if (resp.ProtoMajor == 2) != h2 {
			t.Errorf("it was %s", resp.Proto)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
	}
}

// TestH2Authority sends an HTTP/2 request, frame by frame. Its Host names another sandbox than its
// :authority.
func TestH2Authority(t *testing.T) {
	w := newWorld(t)
	mine := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: say("mine")})
	other := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: say("other")})
	addr := strictFront(t, w, nil)
	request := func(fields ...string) (statusCode string) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, http2.ClientPreface)
		fr := http2.NewFramer(conn, conn)
		_ = fr.WriteSettings()
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
			if f.Name == ":status" {
				statusCode = f.Value
			}
		})
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return "none"
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				_, _ = dec.Write(f.HeaderBlockFragment())
				return statusCode
			case *http2.RSTStreamFrame:
				return "reset"
			}
		}
	}
	host := func(id carrel.ID) string { return fmt.Sprintf("3000-%s.example.com", id) }
	base := []string{":method", "GET", ":scheme", "http", ":path", "/"}
	for _, c := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"authority alone", []string{":authority", host(mine)}, "200"},
		{"host alone", []string{"host", host(mine)}, "200"},
		{"both the same", []string{":authority", host(mine), "host", host(mine)}, "200"},
		{"they disagree", []string{":authority", host(mine), "host", host(other)}, "400"},
		{"a connection header", []string{":authority", host(mine), "connection", "upgrade", "upgrade", "h2c"}, "reset"},
		{"a coding", []string{":authority", host(mine), "transfer-encoding", "chunked"}, "reset"},
	} {
		got := request(append(append([]string{}, base...), c.fields...)...)
		if c.want == "reset" && (got == "400" || got == "none") {
			continue // refused, one way or another
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := request(":method", "CONNECT", ":authority", host(mine)); got != "405" && got != "400" && got != "reset" {
		t.Errorf("CONNECT: %s", got)
	}
}

// TestNoWayToAnother shows that a request to one sandbox's host name reaches that sandbox or none,
// whatever else the request contains.
func TestNoWayToAnother(t *testing.T) {
	w := newWorld(t)
	mine := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: say("mine"), carrel.GuestPort: say("my guest")}))
	secret := string(w.add(t, carrel.Sandbox{Network: carrel.Network{PrivateTraffic: true}, TrafficToken: "secret"}, map[uint16]http.Handler{3000: say("other"), carrel.GuestPort: say("other's guest")}))
	addr := strictFront(t, w, nil)
	for _, path := range []string{"/", "/../3000-" + secret + ".example.com/", "//3000-" + secret + ".example.com/", "/@3000-" + secret + ".example.com", "/%2e%2e/x", "/carrel/tunnel/3000", "/?E2b-Sandbox-Id=" + secret} {
		_, body := ask(t, "GET", "http://"+addr+path, nil, "Host", "3000-"+mine+".example.com", headerID, secret, headerPort, "3000",
			"X-Forwarded-Host", "3000-"+secret+".example.com", "Forwarded", "host=3000-"+secret+".example.com", "X-Original-Host", "3000-"+secret+".example.com")
		if !strings.HasPrefix(body, "mine ") {
			t.Errorf("%s: %s", path, body)
		}
	}
	for _, host := range []string{"3000-" + mine + ".3000-" + secret + ".example.com", "3000-" + mine + ".example.com:443", "3000-" + mine + ".example.com.", "3000-" + mine + ".example.com#3000-" + secret + ".example.com"} {
		_, body := rawGet(t, addr, host)
		if strings.Contains(body, "other") {
			t.Errorf("%s: %s", host, body)
		}
	}
	// Headers that name two sandboxes name none.
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n%[1]s: %[2]s\r\n%[1]s: %[3]s\r\nConnection: close\r\n\r\n", headerID, mine, secret)
	if raw, _ := io.ReadAll(conn); !bytes.HasPrefix(raw, []byte("HTTP/1.1 400")) {
		t.Errorf("two IDs: %s", raw)
	}
}

// rawGet sends a request with this exact Host.
func rawGet(t *testing.T, addr, host string) (status, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "none", ""
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.Status, string(raw)
}
