package hello_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire/hello"
)

// said returns the first bytes that a client of crypto/tls sends.
func said(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(a, c).Handshake()
	}()
	_ = b.SetDeadline(time.Now().Add(time.Minute))
	out := readHello(t, b)
	b.Close()
	a.Close()
	<-done
	return out
}

// readHello reads until the hello is complete.
func readHello(t testing.TB, r io.Reader) []byte {
	t.Helper()
	var out []byte
	piece := make([]byte, 1<<10)
	for {
		n, err := r.Read(piece)
		out = append(out, piece[:n]...)
		if _, perr := hello.Parse(out); !errors.Is(perr, hello.ErrShort) {
			return out
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(out), err)
		}
	}
}

// records cuts a hello into records of at most size bytes.
func records(b []byte, size int) []byte {
	var message []byte
	for len(b) >= 5 {
		n := int(binary.BigEndian.Uint16(b[3:]))
		message = append(message, b[5:5+n]...)
		b = b[5+n:]
	}
	var out []byte
	for piece := range slices.Chunk(message, size) {
		out = append(out, 22, 3, 1, byte(len(piece)>>8), byte(len(piece)))
		out = append(out, piece...)
	}
	return out
}

// ech makes a list of ECH configurations for a public name.
func ech(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	c := append([]byte{1, 0, 32, 0, 32}, pub...)
	c = append(c, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	c = append(append(c, public...), 0, 0)
	c = append([]byte{0xfe, 0x0d, byte(len(c) >> 8), byte(len(c))}, c...)
	return append([]byte{byte(len(c) >> 8), byte(len(c))}, c...)
}

func TestParse(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 62)+".", 3) + "example.com"
	for _, c := range []struct {
		name   string
		config *tls.Config
		want   hello.Hello
	}{
		{"plain", &tls.Config{ServerName: "api.example.com"}, hello.Hello{ServerName: "api.example.com"}},
		{"lower case", &tls.Config{ServerName: "API.Example.COM"}, hello.Hello{ServerName: "api.example.com"}},
		{"no name", &tls.Config{InsecureSkipVerify: true}, hello.Hello{}},
		{"an address is no name", &tls.Config{ServerName: "203.0.113.9"}, hello.Hello{}},
		{"protocols", &tls.Config{ServerName: "example.com", NextProtos: []string{"h2", "http/1.1"}},
			hello.Hello{ServerName: "example.com", Protocols: []string{"h2", "http/1.1"}}},
		{"old", &tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, hello.Hello{ServerName: "example.com"}},
		{"1.2", &tls.Config{ServerName: "example.com", MaxVersion: tls.VersionTLS12}, hello.Hello{ServerName: "example.com"}},
		{"long name", &tls.Config{ServerName: long}, hello.Hello{ServerName: long}},
		{"underscore and digits", &tls.Config{ServerName: "a_b.1-2.x9"}, hello.Hello{ServerName: "a_b.1-2.x9"}},
		{"post-quantum", &tls.Config{ServerName: "example.com", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}}, hello.Hello{ServerName: "example.com"}},
		{"encrypted", &tls.Config{ServerName: "hidden.example.net", MinVersion: tls.VersionTLS13,
			EncryptedClientHelloConfigList: ech(t, "public.example.com")}, hello.Hello{ServerName: "public.example.com", ECH: true}},
		{"large", &tls.Config{ServerName: "example.com", NextProtos: protocols(200)}, hello.Hello{ServerName: "example.com", Protocols: protocols(200)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := said(t, c.config)
			got, err := hello.Parse(b)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%+v, %v, want %+v", got, err, c.want)
			}
			for i := range b {
				if _, err := hello.Parse(b[:i]); !errors.Is(err, hello.ErrShort) {
					t.Fatalf("of %d bytes the first %d give %v", len(b), i, err)
				}
				if !hello.Looks(b[:i]) {
					t.Fatalf("the first %d bytes don't look like TLS", i)
				}
			}
			for _, size := range []int{1, 2, 3, 5, 64, 100, 511} {
				cut := records(b, size)
				got, err := hello.Parse(cut)
				if len(cut)/(size+5) > hello.MaxRecords {
					if !errors.Is(err, hello.ErrMalformed) {
						t.Errorf("records of %d: %+v, %v", size, got, err)
					}
					continue
				}
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("records of %d: %+v, %v", size, got, err)
				}
				// A caller that parses only when Next says so must not see the hello later than
				// others.
				for n := 0; n < min(len(cut), 4<<10); {
					next := hello.Next(cut[:n])
					if next <= n {
						t.Fatalf("Next of %d bytes is %d", n, next)
					}
					for i := n; i < min(next, len(cut)); i++ {
						if _, err := hello.Parse(cut[:i]); !errors.Is(err, hello.ErrShort) {
							t.Fatalf("%d bytes suffice, Next said %d", i, next)
						}
					}
					n = next
				}
			}
			// Records after the message's own are not read.
			if _, err := hello.Parse(append(slices.Clone(b), 20, 3, 3, 0, 1, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

func protocols(n int) []string {
	var out []string
	for i := range n {
		out = append(out, strings.Repeat(string(rune('a'+i%26)), 1+i%100))
	}
	return out
}

// extension builds one extension for a hand-made hello.
func extension(kind int, data ...byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(data) >> 8), byte(len(data))}, data...)
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0, byte(len(n)>>8), byte(len(n))), n...)
	}
	return extension(0, append([]byte{byte(len(list) >> 8), byte(len(list))}, list...)...)
}

// made is a hello made by hand.
func made(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	if extensions != nil {
		all := bytes.Join(extensions, nil)
		body = append(append(body, byte(len(all)>>8), byte(len(all))), all...)
	}
	m := append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(m) >> 8), byte(len(m))}, m...)
}

// TestMalformed shows that a message which two readers could read in two ways is an error.
func TestMalformed(t *testing.T) {
	good := made(sni("api.example.com"))
	if h, err := hello.Parse(good); err != nil || h.ServerName != "api.example.com" {
		t.Fatalf("the good one: %+v, %v", h, err)
	}
	if h, err := hello.Parse(made()); err != nil || h.ServerName != "" {
		t.Fatalf("without extensions: %+v, %v", h, err)
	}
	change := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	trailing := slices.Clone(good)
	trailing[4]++
	for name, b := range map[string][]byte{
		"two extensions":         made(sni("a.example.com"), sni("b.example.com")),
		"two names":              made(sni("a.example.com", "b.example.com")),
		"no name in it":          made(extension(0, 0, 0)),
		"empty extension":        made(extension(0)),
		"empty name":             made(sni("")),
		"a NUL":                  made(sni("api.example.com\x00.example.net")),
		"a space":                made(sni("api.example.com ")),
		"a last dot":             made(sni("api.example.com.")),
		"a first dot":            made(sni(".example.com")),
		"two dots":               made(sni("api..example.com")),
		"no ASCII":               made(sni("exämple.com")),
		"an address":             made(sni("203.0.113.9")),
		"an IPv6 address":        made(sni("2001:db8::9")),
		"an address in hex":      made(sni("0xcb007109.1")),
		"a slash":                made(sni("example.com/x")),
		"a label too long":       made(sni(strings.Repeat("a", 64) + ".example.com")),
		"a name too long":        made(sni(strings.Repeat("a.", 130) + "com")),
		"a hyphen first":         made(sni("-a.example.com")),
		"a hyphen last":          made(sni("a-.example.com")),
		"another kind of name":   made(extension(0, 0, 4, 1, 0, 1, 'a')),
		"more after the name":    made(extension(0, 0, 4, 0, 0, 1, 'a', 0)),
		"empty protocol":         made(extension(16, 0, 1, 0)),
		"no protocols":           made(extension(16, 0, 0)),
		"extension past the end": change(len(good)-len(sni("api.example.com"))+3, 0xff),
		"another version":        change(1, 2),
		"a version to come":      change(2, 5),
		"another message":        change(5, 2),
		"too long":               change(6, 2),
		"bytes after it":         append(trailing, 0),
		"bytes to come after it": trailing,
		"empty record":           append([]byte{22, 3, 1, 0, 0}, good...),
		"record too long":        {22, 3, 1, 0x40, 1},
		"an alert between":       append(slices.Clone(records(good, 20)[:25]), 21, 3, 1, 0, 2, 1, 0),
		"session id too long":    change(9+34, 33),
	} {
		if h, err := hello.Parse(b); !errors.Is(err, hello.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	for name, b := range map[string][]byte{"HTTP": []byte("GET / HTTP/1.1\r\n"), "SSLv2": {0x80, 0x2e, 1, 3, 1}, "SSH": []byte("SSH-2.0-x\r\n"), "nearly": {22, 4}} {
		if hello.Looks(b) {
			t.Errorf("%s looks like TLS", name)
		}
	}
}

// TestPrograms reads the hellos of real programs.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"openssl", []string{"s_client", "-servername", "api.example.com", "-alpn", "h2,http/1.1", "-connect", "ADDRESS"}, "api.example.com"},
		{"openssl", []string{"s_client", "-tls1_2", "-servername", "api.example.com", "-connect", "ADDRESS"}, "api.example.com"},
		{"openssl", []string{"s_client", "-noservername", "-connect", "ADDRESS"}, ""},
		{"openssl", []string{"s_client", "-split_send_frag", "512", "-max_send_frag", "512", "-servername", "api.example.com", "-connect", "ADDRESS"}, "api.example.com"},
		{"curl", []string{"-sk", "--max-time", "10", "--connect-to", "::ADDRESS", "https://api.example.com/"}, "api.example.com"},
		{"curl", []string{"-sk", "--max-time", "10", "--http1.1", "--connect-to", "::ADDRESS", "https://API.example.com/"}, "api.example.com"},
		{"curl", []string{"-sk", "--max-time", "10", "https://ADDRESS/"}, ""},
	} {
		t.Run(c.name+" "+c.args[1], func(t *testing.T) {
			path, err := exec.LookPath(c.name)
			testenv.Need(t, c.name, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			args := slices.Clone(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ADDRESS", l.Addr().String())
			}
			cmd := exec.CommandContext(t.Context(), path, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			b := readHello(t, conn)
			conn.Close()
			_ = cmd.Wait() // it complains, of course
			if h, err := hello.Parse(b); err != nil || h.ServerName != c.want || h.ECH {
				t.Errorf("%+v, %v, want %q", h, err, c.want)
			}
		})
	}
}

// FuzzParse shows that no bytes crash the parser, and that the records of a message do not change
// its content.
func FuzzParse(f *testing.F) {
	f.Add(said(f, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2"}}), uint8(7))
	f.Add(said(f, &tls.Config{ServerName: "hidden.example.net", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: ech(f, "example.com")}), uint8(1))
	f.Add(made(sni("a.example.com", "b.example.com")), uint8(3))
	f.Add(records(made(sni("a.example.com")), 3), uint8(100))
	f.Add([]byte{22, 3, 1, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		h, err := hello.Parse(b)
		if hello.Next(b) <= len(b) {
			t.Fatalf("Next of %d bytes is %d", len(b), hello.Next(b))
		}
		switch {
		case err == nil:
			if h.ServerName != strings.ToLower(h.ServerName) || strings.ContainsAny(h.ServerName, "\x00 /:") {
				t.Errorf("server name %q", h.ServerName)
			}
			// Take only the message's own records.
			whole := b
			for n := 0; n <= len(b); n = hello.Next(b[:n]) {
				if _, err := hello.Parse(b[:n]); err == nil {
					whole = b[:n]
					break
				}
			}
			cut := records(whole, int(size)+1)
			if len(cut) > hello.MaxRecords*(int(size)+6) {
				return
			}
			again, err := hello.Parse(cut)
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Errorf("%+v, and in other records %+v, %v", h, again, err)
			}
			if !hello.Looks(b) {
				t.Error("it does not look like TLS")
			}
		case !errors.Is(err, hello.ErrShort) && !errors.Is(err, hello.ErrMalformed):
			t.Errorf("another error: %v", err)
		case errors.Is(err, hello.ErrShort) && len(b) > 8*hello.MaxSize:
			t.Errorf("%d bytes are not enough", len(b))
		}
	})
}
