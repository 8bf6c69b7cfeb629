package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/outside"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// judge is a tool.HTTP with a policy: it refuses hosts that begin with "denied".
type judge struct{ tool.HTTP }

// Do implements tool.HTTP.
func (j judge) Do(ctx context.Context, r *tool.Request) (*tool.Response, error) {
	if strings.HasPrefix(r.URL, "http://denied.") {
		return nil, &tool.Denied{Host: "denied.example", Reason: "no rule allows it"}
	}
	return j.HTTP.Do(ctx, r)
}

// run runs a script on a new machine, and returns its output and its status.
func run(t *testing.T, way tool.HTTP, script string) (out, errs string, status int) {
	t.Helper()
	disk := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(disk, tools.Names()...); err != nil {
		t.Fatal(err)
	}
	if err := disk.Root().MkdirAll("/w", 0o777); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), HTTP: way, Limits: interp.Limits{Procs: 50, Memory: 64 << 20, Output: 16 << 20, Steps: 100 << 20}})
	defer m.Close()
	o, e := interp.NewPipe(), interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/w", Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}, Out: o, Err: e})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() { b, _ := io.ReadAll(e); done <- string(b) }()
	b, _ := io.ReadAll(o)
	errs = <-done
	return string(b), errs, p.Wait().Code
}

// world is a server with answers for all tests.
func world(t *testing.T) (base string, way tool.HTTP) {
	t.Helper()
	var tries atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s\nct=%s\nua=%s\nauth=%s\ncookie=%s\nx=%s\nrange=%s\nbody=%s\n", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"),
			r.UserAgent(), r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("X-Test"), r.Header.Get("Range"), b)
	})
	mux.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		fmt.Fprintf(w, "a=%s\n", r.FormValue("a"))
		for _, f := range r.MultipartForm.File["f"] {
			in, _ := f.Open()
			b, _ := io.ReadAll(in)
			fmt.Fprintf(w, "f=%s %s %s\n", f.Filename, f.Header.Get("Content-Type"), b)
		}
	})
	mux.HandleFunc("/go/", func(w http.ResponseWriter, r *http.Request) {
		code := 302
		fmt.Sscan(strings.TrimPrefix(r.URL.Path, "/go/"), &code)
		http.Redirect(w, r, r.URL.Query().Get("to"), code)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/status/", func(w http.ResponseWriter, r *http.Request) {
		code := 200
		fmt.Sscan(strings.TrimPrefix(r.URL.Path, "/status/"), &code)
		w.WriteHeader(code)
		fmt.Fprintf(w, "body %d\n", code)
	})
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(503)
		}
		fmt.Fprintf(w, "try %d\n", tries.Load())
	})
	mux.HandleFunc("/set", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "42", Path: "/"})
		fmt.Fprintln(w, "set")
	})
	mux.HandleFunc("/file.txt", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "file.txt", time.Unix(1700000000, 0), strings.NewReader("0123456789"))
	})
	mux.HandleFunc("/named", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="../../evil.txt"`)
		fmt.Fprint(w, "named")
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			fmt.Fprint(w, "plain")
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprint(z, "unpacked")
		z.Close()
		w.Write(b.Bytes())
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	dialer := &net.Dialer{}
	h := outside.New(outside.Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "other.example:") || strings.HasPrefix(address, "127.0.0.1:1") || strings.HasPrefix(address, "127.0.0.1:") {
			if strings.HasPrefix(address, "other.example:") {
				address = s.Listener.Addr().String()
			}
			return dialer.DialContext(ctx, network, address)
		}
		return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
	}})
	t.Cleanup(h.Close)
	return s.URL, judge{h}
}

func TestCurl(t *testing.T) {
	base, way := world(t)
	for _, c := range []struct {
		name, script, out, errs string
		status                  int
	}{
		{"get", "curl -s $U/echo?a=1 | head -1", "GET /echo?a=1\n", "", 0},
		{"agent", "curl -s -A me $U/echo | grep ua", "ua=me\n", "", 0},
		{"default agent", "curl -s $U/echo | grep ua", "ua=curl/7.88.1\n", "", 0},
		{"post", "curl -s -d a=1 -d b=2 $U/echo | grep -v ua", "POST /echo\nct=application/x-www-form-urlencoded\nauth=\ncookie=\nx=\nrange=\nbody=a=1&b=2\n", "", 0},
		{"post a file", "printf 'x\\ny\\n' > f; curl -s -d @f $U/echo | tail -1; curl -s --data-binary @f $U/echo | tail -2", "body=xy\ny\n\n", "", 0},
		{"urlencode", "curl -s -G --data-urlencode 'q=a b&c' -d x=1 $U/echo | head -1", "GET /echo?q=a%20b%26c&x=1\n", "", 0},
		{"json", `curl -s --json '{"a":1}' $U/echo | grep -e ct= -e body= -e POST`, "POST /echo\nct=application/json\nbody={\"a\":1}\n", "", 0},
		{"header", "curl -s -H 'X-Test: hi' -H 'User-Agent:' $U/echo | grep -e x= -e ua=", "ua=\nx=hi\n", "", 0},
		{"method", "curl -s -X DELETE $U/echo | head -1", "DELETE /echo\n", "", 0},
		{"user", "curl -s -u u:p $U/echo | grep auth", "auth=Basic dTpw\n", "", 0},
		{"bearer", "curl -s --oauth2-bearer tok $U/echo | grep auth", "auth=Bearer tok\n", "", 0},
		{"form", "echo -n data > up.txt; curl -s -F a=1 -F f=@up.txt $U/form", "a=1\nf=up.txt text/plain data\n", "", 0},
		{"upload", "echo -n put | curl -s -T - $U/echo | grep -e PUT -e body", "PUT /echo\nbody=put\n", "", 0},
		{"head", "curl -sI $U/status/204 | head -1", "HTTP/1.1 204 No Content\r\n", "", 0},
		{"include", "curl -si $U/status/404 | sed -n '1p;$p'", "HTTP/1.1 404 Not Found\r\nbody 404\n", "", 0},
		{"fail", "curl -sf $U/status/404; echo $?; curl -sSf $U/status/500", "22\n", "curl: (22) The requested URL returned error: 500\n", 22},
		{"fail with body", "curl -s --fail-with-body $U/status/404", "body 404\n", "", 22},
		{"no redirect", "curl -s -o /dev/null -w '%{http_code} %{redirect_url}\\n' \"$U/go/302?to=/echo\"", "302 " + base + "/echo\n", "", 0},
		{"redirect", "curl -sL \"$U/go/302?to=/echo\" | head -1", "GET /echo\n", "", 0},
		{"post redirect", "curl -sL -d x \"$U/go/302?to=/echo\" | sed -n '1p;$p'; curl -sL -d x \"$U/go/307?to=/echo\" | sed -n '1p;$p'", "GET /echo\nbody=\nPOST /echo\nbody=x\n", "", 0},
		{"loop", "curl -sSL --max-redirs 3 $U/loop", "", "curl: (47) Maximum (3) redirects followed\n", 47},
		{"credentials stay", "curl -sL -u u:p -H 'Authorization: Bearer x' -b 'k=v' \"$U/go/302?to=http://other.example/echo\" | grep -e auth -e cookie", "auth=\ncookie=\n", "", 0},
		{"trusted", "curl -sL --location-trusted -u u:p \"$U/go/302?to=http://other.example/echo\" | grep auth", "auth=Basic dTpw\n", "", 0},
		{"denied", "curl -sS http://denied.example/", "", "curl: (7) Failed to connect to denied.example port 80: denied by the sandbox's policy: no rule allows it\n", 7},
		{"denied hop", "curl -sSL \"$U/go/302?to=http://denied.example/\"", "", "curl: (7) Failed to connect to denied.example port 80: denied by the sandbox's policy: no rule allows it\n", 7},
		{"no host", "curl -sS http://nowhere.example/", "", "curl: (6) Could not resolve host: nowhere.example\n", 6},
		{"refused", "curl -sS http://127.0.0.1:1/", "", "curl: (7) Failed to connect to 127.0.0.1 port 1: Connection refused\n", 7},
		{"timeout", "curl -s -m 0.2 $U/slow", "", "", 28},
		{"protocol", "curl -sS gopher://x/", "", "curl: (1) Protocol \"gopher\" not supported or disabled in libcurl\n", 1},
		{"usage", "curl --nope", "", "curl: option --nope: is unknown\ncurl: try 'curl --help' or 'curl --manual' for more information\n", 2},
		{"no url", "curl", "", "curl: try 'curl --help' or 'curl --manual' for more information\n", 2},
		{"output", "curl -s -o f $U/file.txt; cat f; curl -sO $U/file.txt; cat file.txt; curl -s --create-dirs -o a/b/c $U/file.txt; cat a/b/c", "012345678901234567890123456789", "", 0},
		{"content disposition", "curl -sOJ $U/named; ls", "evil.txt\n", "", 0},
		{"resume", "printf 0123 > f; curl -s -C - -o f $U/file.txt; cat f; curl -s -r 2-4 $U/file.txt", "0123456789234", "", 0},
		{"write error", "curl -s -o /nodir/x $U/file.txt", "", "", 23},
		{"write out", `curl -s -o /dev/null -w '%{http_code}|%{size_download}|%{content_type}|%{num_redirects}|%{method}|%{scheme}|%{exitcode}\n' $U/file.txt`, "200|10|text/plain; charset=utf-8|0|GET|HTTP|0\n", "", 0},
		{"glob", "curl -s \"$U/echo?n=[1-3]\" | grep GET; curl -s -o 'out#1' \"$U/status/{200,404}\"; cat out200 out404", "GET /echo?n=1\nGET /echo?n=2\nGET /echo?n=3\nbody 200\nbody 404\n", "", 0},
		{"several", "curl -s $U/status/200 $U/status/201", "body 200\nbody 201\n", "", 0},
		{"next", "curl -s -d x $U/echo --next $U/echo | grep /echo", "POST /echo\nGET /echo\n", "", 0},
		{"cookies", "curl -s -c jar $U/set; curl -s -b jar $U/echo | grep cookie; tail -1 jar | cut -f6,7; curl -s -b a=1 $U/echo | grep cookie", "set\ncookie=sid=42\nsid\t42\ncookie=a=1\n", "", 0},
		{"compressed", "curl -s --compressed $U/gzip; curl -s $U/gzip", "unpackedplain", "", 0},
		{"retry", "curl -s --retry 3 --retry-delay 1 $U/flaky | tail -1", "try 3\n", "", 0},
		{"config", "printf 'url = \"%s/echo\"\\nuser-agent = \"cfg\"\\nsilent\\n' $U > k; curl -K k | grep ua", "ua=cfg\n", "", 0},
		{"file", "echo hi > /w/f; curl -s file:///w/f; curl -s file:///nope; echo $?", "hi\n37\n", "", 0},
		{"verbose", "curl -sv -o /dev/null $U/status/200 2>&1 | grep -e '^> GET' -e '^< HTTP'", "> GET /status/200 HTTP/1.1\n< HTTP/1.1 200 OK\n", "", 0},
		{"proxy", "curl -sS -x http://p $U", "", "curl: (4) there is no proxy: every request takes the sandbox's own way out\n", 4},
		{"stdin body", "echo -n in | curl -s -d @- $U/echo | tail -1", "body=in\n", "", 0},
		{"dump header", "curl -s -D h -o /dev/null $U/status/200; head -1 h", "HTTP/1.1 200 OK\r\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, status := run(t, way, "U="+base+"\n"+c.script)
			if out != c.out || c.errs != "" && errs != c.errs || status != c.status {
				t.Errorf("%s\n got %q %q %d\nwant %q %q %d", c.script, out, errs, status, c.out, c.errs, c.status)
			}
		})
	}
}

func TestWget(t *testing.T) {
	base, way := world(t)
	for _, c := range []struct {
		name, script, out string
		status            int
	}{
		{"file", "wget -q $U/file.txt; cat file.txt; wget -q $U/file.txt; ls", "0123456789file.txt\nfile.txt.1\n", 0},
		{"stdout", "wget -qO- $U/echo | head -1", "GET /echo\n", 0},
		{"output", "wget -q -O x $U/file.txt; wget -q -P d $U/file.txt; cat x d/file.txt", "01234567890123456789", 0},
		{"error", "wget -q $U/status/404; echo $?; wget -q http://nowhere.example/", "8\n", 4},
		{"spider", "wget -q --spider $U/file.txt; echo $?; wget -q --spider $U/status/404", "0\n", 8},
		{"post", "wget -qO- --post-data=a=1 $U/echo | sed -n '1p;$p'", "POST /echo\nbody=a=1\n", 0},
		{"header", "wget -qO- --header='X-Test: y' -U agent $U/echo | grep -e x= -e ua=", "ua=agent\nx=y\n", 0},
		{"resume", "printf 012 > file.txt; wget -qc $U/file.txt; cat file.txt", "0123456789", 0},
		{"redirect", "wget -qO- \"$U/go/302?to=/echo\" | head -1", "GET /echo\n", 0},
		{"credentials stay", "wget -qO- --user=u --password=p \"$U/go/302?to=http://other.example/echo\" | grep auth", "auth=\n", 0},
		{"recursive", "wget -r $U/ 2>&1", "wget: recursive retrieval is not available here; name the URLs\n", 2},
		{"denied", "wget -q http://denied.example/", "", 4},
		{"list", "printf '%s/status/200\\n%s/status/201\\n' $U $U > l; wget -q -i l -O-", "body 200\nbody 201\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, status := run(t, way, "U="+base+"\n"+c.script)
			if out != c.out || status != c.status {
				t.Errorf("%s\n got %q %d (%s)\nwant %q %d", c.script, out, status, errs, c.out, c.status)
			}
		})
	}
}

func TestNoWayOut(t *testing.T) {
	for script, want := range map[string]string{
		"curl -sS http://x.example/": "curl: (6) Could not resolve host: x.example (this machine has no way out: the sandbox has no network)\n",
		"wget -nv http://x.example/": "wget: unable to resolve host address 'x.example': this machine has no way out: the sandbox has no network\n",
	} {
		if _, errs, _ := run(t, nil, script); errs != want {
			t.Errorf("%s: %q", script, errs)
		}
	}
}
