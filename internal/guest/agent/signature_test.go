package agent_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sign makes a signature in the way of the SDKs.
func sign(path, op, user, token string, expires int64) string {
	s := path + ":" + op + ":" + user + ":" + token
	if expires != 0 {
		s += ":" + strconv.FormatInt(expires, 10)
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "=")
}

func TestSignedURLs(t *testing.T) {
	d := newDisk(t)
	d.put("a", "hello")
	d.setToken("secret")
	soon, ago := time.Now().Add(time.Minute).Unix(), time.Now().Add(-time.Minute).Unix()
	tests := []struct {
		name   string
		query  []string
		header http.Header
		status int
		want   string
	}{
		{"nothing", []string{"path", "a"}, nil, 401, "missing signature query parameter"},
		{"the token", []string{"path", "a"}, http.Header{"X-Access-Token": {"secret"}}, 200, "hello"},
		{"another token", []string{"path", "a"}, http.Header{"X-Access-Token": {"secreT"}}, 401, "access token present in header but does not match"},
		{"another token and a signature", []string{"path", "a", "signature", sign("a", "read", "", "secret", 0)}, http.Header{"X-Access-Token": {"x"}}, 401, "access token present in header"},
		{"signed", []string{"path", "a", "signature", sign("a", "read", "", "secret", 0)}, nil, 200, "hello"},
		{"signed for a user", []string{"path", "a", "username", "ann", "signature", sign("a", "read", "ann", "secret", 0)}, nil, 200, "hello"},
		{"signed for no user", []string{"path", "a", "username", "ann", "signature", sign("a", "read", "", "secret", 0)}, nil, 401, "invalid signature"},
		{"signed until soon", []string{"path", "a", "signature", sign("a", "read", "", "secret", soon), "signature_expiration", fmt.Sprint(soon)}, nil, 200, "hello"},
		{"expired", []string{"path", "a", "signature", sign("a", "read", "", "secret", ago), "signature_expiration", fmt.Sprint(ago)}, nil, 401, "signature is already expired"},
		{"expiry changed", []string{"path", "a", "signature", sign("a", "read", "", "secret", ago), "signature_expiration", fmt.Sprint(soon)}, nil, 401, "invalid signature"},
		{"expiry dropped", []string{"path", "a", "signature", sign("a", "read", "", "secret", ago)}, nil, 401, "invalid signature"},
		{"for writing", []string{"path", "a", "signature", sign("a", "write", "", "secret", 0)}, nil, 401, "invalid signature"},
		{"for another path", []string{"path", "a", "signature", sign("b", "read", "", "secret", 0)}, nil, 401, "invalid signature"},
		{"for the same file by another name", []string{"path", "./a", "signature", sign("a", "read", "", "secret", 0)}, nil, 401, "invalid signature"},
		{"with another token", []string{"path", "a", "signature", sign("a", "read", "", "", 0)}, nil, 401, "invalid signature"},
		{"empty", []string{"path", "a", "signature", ""}, nil, 401, "invalid signature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d.TB = t
			a := d.call("GET", query(tt.query...), tt.header, nil)
			if tt.status != 200 {
				d.isError(a, tt.status, tt.want)
			} else if a.status != 200 || a.body != tt.want {
				t.Fatalf("answer: %+v", a)
			}
		})
	}
	d.TB = t
	up := func(op string) answer {
		return d.call("POST", query("path", "b", "signature", sign("b", op, "", "secret", 0)), octets(), strings.NewReader("new"))
	}
	d.filesOf(up("write"))
	d.has("b", "new")
	d.isError(up("read"), 401, "invalid signature")
	h, body := d.form(formFile{"file", "c/d.txt", "form"})
	d.filesOf(d.call("POST", "/files?signature="+strings.ReplaceAll(sign("", "write", "", "secret", 0), "+", "%2B"), h, body))
	d.has("c/d.txt", "form")
	d.isError(d.call("POST", "/files/compose", nil, strings.NewReader(`{}`)), 401, "unauthorized access")
	if _, err := d.stat("a"); err == nil {
		t.Error("stat needs no token")
	}
}
