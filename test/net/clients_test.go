package net

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// caFile is the certificate authority of the servers outside, in the sandbox. A program must be
// told of it as long as the wire does not open TLS.
const caFile = "/home/user/ca.pem"

// told returns the variables that tell programs about it.
func told() map[string]string {
	env := make(map[string]string)
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NPM_CONFIG_CAFILE"} {
		env[name] = caFile
	}
	return env
}

// use is one client at work.
type use struct{ name, script, want string }

func uses() []use {
	return []use{
		{"curl http", "curl -sS http://www.example.com/", "hello www.example.com over HTTP/1.1"},
		{"curl https", "curl -sS --http1.1 https://www.example.com/", "hello www.example.com over HTTP/1.1"},
		{"curl http2", "curl -sS --http2 https://www.example.com/", "hello www.example.com over HTTP/2.0"},
		{"curl http2 without TLS", "curl -sS --http2-prior-knowledge http://www.example.com/", "hello www.example.com over HTTP/2.0"},
		{"curl uploads", "head -c 5000000 /dev/zero | curl -sS -T - https://www.example.com/up", "5000000 bytes"},
		{"curl reuses", "curl -sS https://www.example.com/1 https://www.example.com/2", "hello www.example.com"},
		{"curl by proxy variables", "env | grep -i _proxy= || echo none", "none"},
		{"events", "curl -sSN https://www.example.com/events", "data: event 2"},
		{"node https", `node -e "require('https').get('https://www.example.com/', r => r.pipe(process.stdout))"`, "hello www.example.com"},
		{"node fetch", `node -e "fetch('https://www.example.com/').then(r => r.text()).then(console.log)"`, "hello www.example.com"},
		{"python urllib", `/usr/bin/python3 -c "import urllib.request as u; print(u.urlopen('https://www.example.com/').read().decode())"`, "hello www.example.com"},
		{"python websocket", "/usr/bin/python3 socket_client.py", "echo: hello socket"},
		{"git over https", "rm -rf c && git clone -q https://git.example.com/hello.git c && cat c/README", "hello"},
		{"git over https, shallow", "rm -rf c && git clone -q --depth 1 https://git.example.com/hello.git c && git -C c fetch -q && cat c/README", "hello"},
		{"git over ssh", "rm -rf c && GIT_SSH_COMMAND='ssh -i key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null' git clone -q ssh://git@git.example.com/hello.git c && cat c/README", "hello"},
		{"npm", "rm -rf n && mkdir n && cd n && npm --registry https://npm.example.com view carrel-hello version && npm --registry https://npm.example.com install --silent carrel-hello && node -p \"require('carrel-hello')\"", "hello from npm"},
		{"pip", "rm -rf p && /usr/bin/python3 -m pip install --no-cache-dir --quiet --index-url https://pypi.example.com/simple --target p carrel-hello && PYTHONPATH=p /usr/bin/python3 -c 'import carrel_hello; print(carrel_hello.text)'", "hello from pip"},
		{"apt", lines("set -e; rm -rf a; mkdir -p a/lists/partial a/cache/archives/partial a/etc/trusted.gpg.d; cd a",
			"echo 'deb [trusted=yes] http://deb.example.com stable main' > sources.list; : > status",
			`options="-o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::TrustedParts=$PWD/etc/trusted.gpg.d -o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o Dir::State::status=$PWD/status -o APT::Sandbox::User=user -o Debug::NoLocking=1 -o Acquire::Languages=none"`,
			"apt-get $options update", "apt-get $options download carrel-hello", "dpkg-deb --fsys-tarfile carrel-hello*.deb | tar -xO ./usr/share/carrel-hello"), "hello from apt"},
	}
}

// denials are clients whose requests no rule allows.
func denials() []use {
	return []use{
		{"curl http", "curl -sS http://denied.example.net/", ""},
		{"curl https", "curl -skS https://denied.example.net/", ""},
		{"curl address", "curl -skS https://198.51.100.20/", ""},
		{"curl another host", "curl -sS -H 'Host: denied.example.net' --fail http://www.example.com/", ""},
		{"curl connect-to", "curl -skS --connect-to denied.example.net:443:www.example.com:443 https://denied.example.net/", ""},
		{"node", `node -e "fetch('https://denied.example.net/')"`, ""},
		{"python", `/usr/bin/python3 -c "import urllib.request as u; u.urlopen('https://denied.example.net/')"`, ""},
		{"git", "git clone -q https://denied.example.net/hello.git d", ""},
		{"git over ssh", "GIT_SSH_COMMAND='ssh -o ConnectTimeout=20 -o StrictHostKeyChecking=no' git clone -q ssh://git@www.example.com/hello.git d", ""},
		{"npm", "npm --registry https://denied.example.net --fetch-retries 0 view carrel-hello version", ""},
		{"pip", "/usr/bin/python3 -m pip download --quiet --retries 0 --index-url https://denied.example.net/simple carrel-hello", ""},
	}
}

// socketClient is a WebSocket client that needs only the standard library.
const socketClient = `import os, socket, ssl
raw = socket.create_connection(("www.example.com", 443), timeout=60)
s = ssl.create_default_context().wrap_socket(raw, server_hostname="www.example.com")
s.sendall(b"GET /socket HTTP/1.1\r\nHost: www.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
f = s.makefile("rb")
assert b" 101 " in f.readline()
while f.readline().strip(): pass
for text in (b"hello socket", b"and again"):
    mask = os.urandom(4)
    s.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text)))
    head = f.read(2)
    print("echo:", f.read(head[1]).decode())
`

// TestClients runs the clients that agents use through an allow-list: once with TLS as it is, and
// once with TLS opened on the way. The clients must not notice the difference.
func TestClients(t *testing.T) {
	t.Parallel()
	clients(t, open)
}

// TestMachineClients runs them in virtual machines.
func TestMachineClients(t *testing.T) {
	testenv.Long(t, "npm and pip take minutes in a machine that is emulated")
	clients(t, openMachines)
}

func clients(t *testing.T, open func(*testing.T, *outside) *house) {
	o := newOutside(t)
	o.serve(t, "www.example.com", "203.0.113.40", webSite())
	git, root := gitSite(t)
	o.serve(t, "git.example.com", "203.0.113.41", git)
	o.serve(t, "npm.example.com", "203.0.113.42", npmSite(t, "npm.example.com"))
	o.serve(t, "pypi.example.com", "203.0.113.43", pythonSite(t))
	o.serve(t, "deb.example.com", "203.0.113.44", debianSite(t))
	key := sshSite(t, o.listen(t, "203.0.113.41:22"), root)
	h := open(t, o)
	for _, opened := range []bool{false, true} {
		name := map[bool]string{false: "as it is", true: "opened"}[opened]
		t.Run(name, func(t *testing.T) {
			d := h.desk(t, &carrel.Policy{Rules: []carrel.Rule{
				{Name: "sites", Allow: []string{"www.example.com", "git.example.com", "npm.example.com", "pypi.example.com", "deb.example.com"}, Ports: []string{"80", "443"}, Inspect: opened},
				{Name: "git", Allow: []string{"git.example.com"}, Ports: []string{"22"}, Protocol: "tcp"},
			}})
			if !opened {
				d.write("ca.pem", string(o.ca.CertPEM()))
				d.env = told()
			}
			d.write("socket_client.py", socketClient)
			d.write("key", key)
			d.must(t, "chmod 600 key", "")
			for _, u := range uses() {
				t.Run(u.name, func(t *testing.T) { d.must(t, u.script, u.want) })
			}
			for _, u := range denials() {
				t.Run("denied "+u.name, func(t *testing.T) {
					if opened && slices.Contains([]string{"node", "python", "npm", "pip"}, u.name) {
						testenv.Long(t, "refused before anything is opened, as above")
					}
					if code, out := d.try(t, u.script); code == 0 {
						t.Errorf("%s\nworked:\n%s", u.script, out)
					} else if i := strings.LastIndexByte(strings.TrimSpace(out), '\n'); testing.Verbose() {
						t.Log(strings.TrimSpace(out)[i+1:])
					}
				})
			}
			if n := o.strays.Load(); n > 0 {
				t.Errorf("%d requests reached a server that no rule allows", n)
			}
		})
	}
}
