package settings

import (
	"net/netip"
	"strconv"
	"testing"
)

func TestPublish(t *testing.T) {
	for text, want := range map[string]string{
		"8080": "127.0.0.1:8080 8080", "8080:80": "127.0.0.1:8080 80", "0:80": "127.0.0.1:0 80", "0.0.0.0:80:81": "0.0.0.0:80 81",
		"[::1]:80": "[::1]:80 80", "[::1]:80:90": "[::1]:80 90", "127.0.0.1:80": "127.0.0.1:80 80",
	} {
		p, err := ParsePublish(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := netip.AddrPortFrom(p.Address, p.Outside).String() + " " + strconv.Itoa(int(p.Inside)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "x", "80:", ":80", "70000", "80:0", "host:80:80", "[::1]80", "1:2:3:4", "-1", "[::1", "1.2.3.4.5:80"} {
		if p, err := ParsePublish(text); err == nil {
			t.Errorf("%q is taken as %+v", text, p)
		}
	}
}
