package settings_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// srtFile makes a complete settings file in sandbox-runtime's form.
func srtFile(network, filesystem, more string) string {
	if network == "" {
		network = `"allowedDomains": [], "deniedDomains": []`
	}
	if filesystem == "" {
		filesystem = `"denyRead": [], "allowWrite": [], "denyWrite": []`
	}
	return fmt.Sprintf(`{"network": {%s}, "filesystem": {%s}%s}`, network, filesystem, more)
}

// TestSRTRefused checks settings that sandbox-runtime's schema refuses too.
func TestSRTRefused(t *testing.T) {
	domains := func(allowed string) string {
		return srtFile(`"allowedDomains": [`+allowed+`], "deniedDomains": []`, "", "")
	}
	files := func(deny string) string {
		return srtFile("", `"denyRead": [`+deny+`], "allowWrite": [], "denyWrite": []`, "")
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty": {"", "empty"}, "not JSON": {"network: {}", "no JSON"}, "comment": {"{} // x", "no JSON"}, "cut": {`{"network": {`, "no JSON"}, "a list": {"[]", "mapping"}, "nothing": {"{}", "missing"},
		"no network": {`{"filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}`, "network"}, "no filesystem": {`{"network": {"allowedDomains": [], "deniedDomains": []}}`, "filesystem"},
		"no allowedDomains": {srtFile(`"deniedDomains": []`, "", ""), "network.allowedDomains"}, "no deniedDomains": {srtFile(`"allowedDomains": []`, "", ""), "network.deniedDomains"},
		"no denyRead": {srtFile("", `"allowWrite": [], "denyWrite": []`, ""), "filesystem.denyRead"}, "no allowWrite": {srtFile("", `"denyRead": [], "denyWrite": []`, ""), "filesystem.allowWrite"}, "no denyWrite": {srtFile("", `"denyRead": [], "allowWrite": []`, ""), "filesystem.denyWrite"},
		"protocol": {domains(`"https://example.com"`), "protocol"}, "path": {domains(`"example.com/x"`), "path"}, "star": {domains(`"*"`), "*"}, "wide": {domains(`"*.com"`), "too wide"}, "star inside": {domains(`"a.*.com"`), "in front"}, "star at the end": {domains(`"example.*"`), "in front"},
		"one word": {domains(`"example"`), "no dot"}, "dot in front": {domains(`".example.com"`), "empty part"}, "dot at the end": {domains(`"example.com."`), "empty part"}, "port 0": {domains(`"example.com:0"`), "port"}, "port 99999": {domains(`"example.com:99999"`), "port"}, "port word": {domains(`"example.com:x"`), "port"}, "no port": {domains(`"example.com:"`), "port"},
		"bare IPv6": {domains(`"2001:db8::1"`), "brackets"}, "bad IPv6": {domains(`"[nonsense]"`), "IPv6"}, "number": {domains(`5.5`), "text needed"}, "empty domain": {domains(`""`), "empty"}, "null domains": {srtFile(`"allowedDomains": null, "deniedDomains": []`, "", ""), "a list needed"},
		"empty path": {files(`""`), "empty"}, "path is a number": {files("5"), "text needed"}, "literal false": {files(`{"path": "x", "literal": false}`), "a path, or"}, "literal missing": {files(`{"path": "x"}`), "a path, or"}, "literal and more": {files(`{"path": "x", "literal": true, "z": 1}`), "no key"}, "slashed glob": {files(`"/data/*/"`), "ends with a slash"},
		"truth": {srtFile("", `"disabled": "yes", "denyRead": [], "allowWrite": [], "denyWrite": []`, ""), "true or false"}, "depth 0": {srtFile("", "", `, "mandatoryDenySearchDepth": 0`), "between 1 and 10"}, "depth 11": {srtFile("", "", `, "mandatoryDenySearchDepth": 11`), "between 1 and 10"},
		"address": {srtFile(`"allowedDomains": [], "deniedDomains": [], "deniedResolvedAddresses": ["10.0.0.0/33"]`, "", ""), "neither an address"},
		"mode":    {srtFile("", "", `, "credentials": {"envVars": [{"name": "A", "mode": "hide"}]}`), "none of the words"}, "no mode": {srtFile("", "", `, "credentials": {"envVars": [{"name": "A"}]}`), "missing"}, "variable": {srtFile("", "", `, "credentials": {"envVars": [{"name": "A-B", "mode": "deny"}]}`), "no name"},
		"injected nowhere": {srtFile("", "", `, "credentials": {"envVars": [{"name": "A", "mode": "mask", "injectHosts": []}]}`), "never put in"}, "old injectHosts": {srtFile("", "", `, "credentials": {"injectHosts": []}`), "no key"},
		"NUL host": {domains(`"example.com\u0000.evil.test"`), ""}, "twice": {`{"network": {}, "network": {}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, notes, err := settings.ParseSRT("srt.json", []byte(c.text))
			var e *carrel.Error
			if c.want == "" && err == nil && len(s.Network.Allow) == 0 && len(notes) > 0 {
				return // left out
			}
			if !errors.As(err, &e) || e.Kind != carrel.Invalid || !strings.HasPrefix(e.Field, "srt.json") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%+v, %q), want %q", err, s, notes, c.want)
			}
		})
	}
}

// TestSRTMeaning compares the decisions with sandbox-runtime's documentation.
func TestSRTMeaning(t *testing.T) {
	p := newPlace(t)
	for _, f := range []string{"data/x", "data/open/x", "data/open/shut/x", "project/src/x", "project/src/gen/x", "project/src/gen/mine/x", "project/a.pem", "project/certs/b.pem", "project/*.env", "project/b.env", ".ssh/id"} {
		p.file(f, "x")
	}
	resolve := func(text string) *settings.Box {
		t.Helper()
		file := p.file("srt.json", text)
		return p.resolve(func(r *settings.Request) { r.File, r.NoFiles = file, true })
	}
	// Only named paths are written, and the working directory is not among them; everything is
	// read.
	b := resolve(srtFile("", "", ""))
	p.want(b, map[string]settings.Access{"project/x": readable, "data/x": readable, "/etc/passwd": readable, ".ssh/id": denied})
	if !b.Closed {
		t.Error("an empty list of domains opens the network")
	}
	b = resolve(srtFile("", `"denyRead": ["~/data", "~/data/open/shut", "./certs/*.pem"], "allowRead": ["~/data/open"], "allowWrite": ["src/", "~/data/open/shut"], "denyWrite": ["src/gen"]`, ""))
	p.want(b, map[string]settings.Access{
		"data/x": denied, "data/open/x": readable, "project/certs/b.pem": denied, "project/a.pem": readable, "project/src/x": writable, "project/src/gen/x": readable, "project/x": readable,
		"data/open/shut/x": denied, // denyRead still holds under allowWrite
	})
	// denyWrite wins over an allowed path inside it; allowRead wins over denyRead of the same path.
	b = resolve(srtFile("", `"denyRead": ["~/data"], "allowRead": ["~/data"], "allowWrite": [".", "src/gen/mine"], "denyWrite": ["src/gen", "later.txt"]`, ""))
	p.want(b, map[string]settings.Access{"data/x": readable, "project/src/gen/mine/x": readable, "project/src/x": writable, "project/later.txt": readable, "project/src/later.txt": writable, "project/.mcp.json": readable, "project/.git/config": readable})
	b = resolve(srtFile("", `"denyRead": [{"path": "*.env", "literal": true}], "allowWrite": ["."], "denyWrite": [{"path": "new*", "literal": true}], "allowGitConfig": true`, ""))
	p.want(b, map[string]settings.Access{"project/*.env": denied, "project/b.env": writable, "project/new*": readable, "project/.git/config": writable, "project/.git/hooks/x": readable})
	b = resolve(srtFile("", `"disabled": true, "denyRead": ["~/data"], "allowWrite": [], "denyWrite": []`, ""))
	p.want(b, map[string]settings.Access{"data/x": writable, ".ssh/id": denied, "project/.mcp.json": readable})
}

// TestSRTNetwork checks domains, sockets and ports.
func TestSRTNetwork(t *testing.T) {
	parse := func(network, more string) (settings.Settings, []string) {
		t.Helper()
		s, notes, err := settings.ParseSRT("srt.json", []byte(srtFile(network, "", more)))
		if err != nil {
			t.Fatal(err)
		}
		return s, notes
	}
	s, notes := parse(`"allowedDomains": ["example.com", "*.example.org", "git.example.com:22", "[2001:db8::1]:443", "localhost"], "deniedDomains": ["*", "*:25", "bad.example.com"], "deniedResolvedAddresses": ["10.0.0.0/8"], "allowAllUnixSockets": true, "allowLocalBinding": true, "strictAllowlist": true, "httpProxyPort": 8080`, `, "enableWeakerNestedSandbox": true, "bwrapPath": "/usr/bin/bwrap", "ripgrep": {"command": "rg"}, "ripgrap": 1`)
	if want := []string{"example.com", "*.example.org", "tcp://git.example.com:22", "[2001:db8::1]:443", "localhost"}; !slices.Equal(s.Network.Allow, want) {
		t.Errorf("%q, %q", s.Network.Allow, notes)
	}
	if want := []string{"*", "*:25", "bad.example.com", "10.0.0.0/8"}; !slices.Equal(s.Network.Deny, want) || !slices.Equal(s.Network.Sockets, []string{"*"}) || !*s.Network.Bind {
		t.Errorf("%+v", s.Network)
	}
	all := strings.Join(notes, "\n")
	for _, n := range []string{"network.httpProxyPort has no meaning", "network.strictAllowlist", "bwrapPath", "ripgrap", "did you mean ripgrep?"} {
		if !strings.Contains(all, n) {
			t.Errorf("no note of %s in %s", n, all)
		}
	}
	s, notes = parse("", `, "credentials": {"files": [{"path": "~/.token", "mode": "mask", "injectHosts": ["example.com"]}, {"path": "/srv/key", "mode": "deny"}], "envVars": [{"name": "A_KEY", "mode": "mask"}, {"name": "B", "mode": "deny"}]}`)
	if !slices.Equal(s.Read.Deny, []string{"~/.token", "/srv/key"}) || !slices.Equal(s.Env.Strip, []string{"A_KEY", "B"}) || len(notes) != 2 {
		t.Errorf("%+v, %q", s, notes)
	}
	// A domain that is both allowed and denied is denied. The reason becomes the rule's name.
	p := newPlace(t)
	file := p.file("srt.json", srtFile(`"allowedDomains": ["a.example.com", "*.example.com"], "deniedDomains": ["b.example.com"], "deniedDomainReasons": {"b.example.com": "use the mirror"}`, "", ""))
	b := p.resolve(func(r *settings.Request) { r.File = file })
	if b.Closed || b.Policy.Rules[0].Name != "use the mirror" || b.Policy.Rules[0].Deny[0] != "b.example.com" {
		t.Errorf("%+v", b.Policy)
	}
	if !b.Bind {
		t.Error("ports of its own are closed on Linux")
	}
	b = p.resolve(func(r *settings.Request) {
		r.File, r.OS = file, "darwin"
	})
	if b.Bind {
		t.Error("ports are open on macOS")
	}
}

// TestLooksSRT distinguishes the two forms.
func TestLooksSRT(t *testing.T) {
	for text, want := range map[string]bool{
		srtFile("", "", ""): true, `{"filesystem": {}}`: true, `{"network": {"allowedDomains": []}}`: true, `{"network": {"allow": []}}`: false, `{}`: false, "read: {}": false, "": false, `{"credentials": {}}`: true,
	} {
		if settings.LooksSRT([]byte(text)) != want {
			t.Errorf("%s: not %t", text, want)
		}
	}
}

func FuzzParseSRT(f *testing.F) {
	f.Add([]byte(srtFile(`"allowedDomains": ["*.example.com:443"], "deniedDomains": ["*"]`, `"denyRead": [{"path": "a", "literal": true}], "allowWrite": ["."], "denyWrite": []`, `, "credentials": {"envVars": [{"name": "A", "mode": "mask"}]}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := settings.ParseSRT("x", data)
		var e *carrel.Error
		if err != nil && (!errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field == "") {
			t.Fatalf("%#v", err)
		}
		if err != nil {
			return
		}
		r := settings.Request{Dir: "/w", Home: "/h", NoFiles: true, Flags: s, Exists: func(string) bool { return true }}
		b, err := settings.Resolve(r)
		if err != nil {
			return
		}
		b.Explain(true)
		if len(s.Network.Allow) == 0 && !b.Closed {
			t.Fatalf("nothing is allowed and the network is open: %+v", b.Policy)
		}
	})
}
