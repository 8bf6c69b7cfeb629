package web

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Exit statuses of wget.
const (
	wgetUsage   = 2
	wgetFile    = 3
	wgetNetwork = 4
	wgetTLS     = 5
	wgetAuth    = 6
	wgetProto   = 7
	wgetServer  = 8
)

const wgetHelp = `Usage: wget [OPTION]... [URL]...
Saves what is at URLs in files.

Files:    -O FILE one for all, -P DIR where, -c go on with a part, -N only what is newer, -nc none anew
          -i FILE URLs from there, --content-disposition the server's name
Request:  -U AGENT  --header=LINE  --user=NAME --password=TEXT  --method=NAME
          --post-data=TEXT  --post-file=FILE  --body-data=TEXT  --body-file=FILE
          --load-cookies FILE  --save-cookies FILE  --no-check-certificate
Way:      -t TRIES  -T SECONDS  --max-redirect=N  --spider fetch nothing
Messages: -q none, -nv few, -S the answer's headers, too
`

// wget is one run.
type wget struct {
	*tool.Call
	quiet, less, show, spider, resume, newer, keep, insecure, disposition bool
	out, dir, agent, user, password, method, bodyKind                     string
	body                                                                  []byte
	hasBody                                                               bool
	headers                                                               []string
	tries, redirects                                                      int
	timeout                                                               time.Duration
	jar                                                                   jar
	saveJar                                                               string
	written                                                               bool
}

// runWget is wget.
func runWget(c *tool.Call) int {
	args := slices.Clone(c.Args)
	for i, a := range args { // options of two letters
		switch a {
		case "-nv":
			args[i] = "--no-verbose"
		case "-nc":
			args[i] = "--no-clobber"
		case "-nd", "-nH", "-np":
			args[i] = "--no-directories"
		}
	}
	call := *c
	call.Args = args
	f, ok := call.Flags("qvdO:P:cNSi:t:T:U:rmkpl:e:w:4 6b:o:a:Q:R:A:hVx", "quiet=q", "verbose=v", "debug=d", "output-document=O", "directory-prefix=P",
		"continue=c", "timestamping=N", "server-response=S", "input-file=i", "tries=t", "timeout=T", "user-agent=U", "recursive=r", "mirror=m",
		"convert-links=k", "page-requisites=p", "level=l", "execute=e", "wait=w", "output-file=o", "append-output=a", "help=h", "version=V",
		"force-directories=x", "inet4-only=4", "inet6-only=6",
		"no-verbose=\x80", "no-clobber=\x81", "no-directories=\x82", "spider=\x83", "header=\x84:", "post-data=\x85:", "post-file=\x86:", "method=\x87:",
		"body-data=\x88:", "body-file=\x89:", "user=\x8a:", "password=\x8b:", "http-user=\x8a:", "http-password=\x8b:", "max-redirect=\x8c:",
		"no-check-certificate=\x8d", "content-disposition=\x8e", "save-cookies=\x8f:", "load-cookies=\x90:", "no-cookies=\x91", "show-progress=\x91",
		"no-proxy=\x91", "progress=\x92:", "referer=\x93:", "connect-timeout=\x94:", "read-timeout=\x94:", "dns-timeout=\x92:", "waitretry=\x92:",
		"retry-connrefused=\x91", "no-cache=\x91", "auth-no-challenge=\x91", "keep-session-cookies=\x91", "https-only=\x91", "no-hsts=\x91", "no-config=\x91",
		"compression=\x92:", "limit-rate=\x92:", "secure-protocol=\x92:", "ca-certificate=\x92:", "trust-server-names=\x91", "content-on-error=\x91",
		"quota=\x92:", "no-http-keep-alive=\x91", "accept=A", "reject=R", "no-parent=\x91", "no-host-directories=\x91", "retry-on-http-error=\x92:")
	if !ok {
		return wgetUsage
	}
	w := &wget{Call: c, tries: 20, redirects: 20, agent: "Wget/1.21.3", method: "GET"}
	urls := f.Args
	for _, o := range f.All {
		if status, done := w.option(o, &urls); done {
			return status
		}
	}
	if len(urls) == 0 {
		fmt.Fprint(c.Err, "wget: missing URL\nUsage: wget [OPTION]... [URL]...\n\nTry `wget --help' for more options.\n")
		return 1
	}
	status := 0
	for _, u := range urls {
		if s := w.get(u); s != 0 && (status == 0 || s < status) {
			status = s
		}
		if c.Ctx.Err() != nil {
			return 1
		}
	}
	if w.saveJar != "" {
		if f, err := c.Open(w.saveJar, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o600); err == nil {
			_, _ = io.WriteString(f, w.jar.text(c.Now())) // as curl's
			_ = f.Close()
		}
	}
	return status
}

func (w *wget) option(o tool.Flag, urls *[]string) (status int, done bool) {
	file := func() []byte {
		in, err := w.OpenIn(o.Value)
		if err != nil {
			status, done = w.Errorf(wgetFile, "%s: %s", o.Value, tool.ErrText(err)), true
			return nil
		}
		b, err := w.ReadAll(in)
		_ = in.Close() // it was read
		if err != nil {
			status, done = wgetFile, true
		}
		return b
	}
	post := func(b []byte) {
		w.body, w.hasBody = b, true
		if w.method == "GET" && o.Letter <= 0x86 {
			w.method = "POST"
		}
		w.bodyKind = "application/x-www-form-urlencoded"
	}
	switch o.Letter {
	case 'q':
		w.quiet = true
	case 'O':
		w.out = o.Value
	case 'P':
		w.dir = o.Value
	case 'c':
		w.resume = true
	case 'N':
		w.newer = true
	case 'S':
		w.show = true
	case 'i':
		for _, l := range strings.Split(string(file()), "\n") {
			if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
				*urls = append(*urls, l)
			}
		}
	case 't':
		if w.tries, _ = strconv.Atoi(o.Value); w.tries <= 0 {
			w.tries = 20
		}
	case 'T', 0x94:
		f, _ := strconv.ParseFloat(o.Value, 64)
		w.timeout = time.Duration(min(max(f, 0), 1e6) * float64(time.Second))
	case 'U':
		w.agent = o.Value
	case 'r', 'm', 'k', 'p':
		return w.Errorf(wgetUsage, "recursive retrieval is not available here; name the URLs"), true
	case 'h':
		fmt.Fprint(w.Out, wgetHelp)
		return 0, true
	case 'V':
		fmt.Fprintln(w.Out, "GNU Wget 1.21.3 built on carrel.")
		return 0, true
	case 0x80:
		w.less = true
	case 0x81:
		w.keep = true
	case 0x83:
		w.spider = true
	case 0x84:
		w.headers = append(w.headers, o.Value)
	case 0x85, 0x88:
		post([]byte(o.Value))
	case 0x86, 0x89:
		post(file())
	case 0x87:
		w.method = o.Value
	case 0x8a:
		w.user = o.Value
	case 0x8b:
		w.password = o.Value
	case 0x8c:
		w.redirects, _ = strconv.Atoi(o.Value)
	case 0x8d:
		w.insecure = true
	case 0x8e:
		w.disposition = true
	case 0x8f:
		w.saveJar = o.Value
	case 0x90:
		w.jar.read(w.Call, o.Value)
	case 0x93:
		w.headers = append(w.headers, "Referer: "+o.Value)
	}
	return status, done
}

// log writes a message about the progress, except in quiet mode.
func (w *wget) log(format string, args ...any) {
	if !w.quiet && !w.less {
		fmt.Fprintf(w.Err, format, args...)
	}
}

func (w *wget) stamp() string { return w.Now().Format("2006-01-02 15:04:05") }

// get retrieves one URL.
func (w *wget) get(raw string) int {
	u, err := parseURL(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		if !w.quiet {
			if err == nil {
				fmt.Fprintf(w.Err, "%s: Unsupported scheme ‘%s’.\n", raw, u.Scheme)
			} else {
				fmt.Fprintf(w.Err, "%s: Invalid URL.\n", raw)
			}
		}
		return 1
	}
	if u.Path == "" {
		u.Path = "/"
	}
	name := w.name(u)
	if w.keep && w.out == "" {
		if _, err := w.FS().Stat(w.Abs(name)); err == nil {
			w.log("File ‘%s’ already there; not retrieving.\n\n", name)
			return 0
		}
	}
	way := w.HTTP()
	if way == nil {
		if !w.quiet {
			w.Errorf(0, "unable to resolve host address ‘%s’: %s", u.Hostname(), noWay)
		}
		return wgetNetwork
	}
	origin, method, body := u.Host, w.method, w.hasBody
	if w.spider && method == "GET" {
		method = "HEAD"
	}
	for hop := 0; ; hop++ {
		w.log("--%s--  %s\n", w.stamp(), bare(u))
		w.log("Resolving %s (%s)... Connecting to %s... connected.\n", u.Hostname(), u.Hostname(), u.Host)
		resp, from, status := w.send(way, u, method, body, origin, name)
		if status != 0 {
			return status
		}
		w.log("HTTP request sent, awaiting response... %d %s\n", resp.Status, resp.Reason)
		if w.show {
			for _, l := range strings.Split(strings.TrimSuffix(headText(resp), "\r\n\r\n"), "\r\n") {
				fmt.Fprintf(w.Err, "  %s\n", l)
			}
		}
		for k, vs := range resp.Header {
			for _, v := range vs {
				if strings.EqualFold(k, "Set-Cookie") {
					w.jar.set(v, u.Hostname(), u.Path, u.Scheme == "https", w.Now())
				}
			}
		}
		where := first(resp.Header, "Location")
		if resp.Status < 300 || resp.Status > 399 || resp.Status == 304 || where == "" {
			defer func() { _ = resp.Body.Close() }() // it was read
			return w.receive(u, resp, name, from)
		}
		_ = resp.Body.Close() // of no interest
		next, err := u.Parse(where)
		if err != nil || next.Scheme != "http" && next.Scheme != "https" {
			return wgetProto
		}
		if hop >= w.redirects {
			w.log("%d redirections exceeded.\n", w.redirects)
			return wgetServer
		}
		w.log("Location: %s [following]\n", where)
		if resp.Status != 307 && resp.Status != 308 && body {
			method, body = "GET", false
		}
		if next.Path == "" {
			next.Path = "/"
		}
		u = next
	}
}

// send sends one request, and repeats it as --tries says.
func (w *wget) send(way tool.HTTP, u *url.URL, method string, body bool, origin, name string) (*tool.Response, int64, int) {
	h := map[string][]string{"User-Agent": {w.agent}, "Accept": {"*/*"}, "Accept-Encoding": {"identity"}}
	own := u.Host == origin
	user, pass := w.user, w.password
	if u.User != nil {
		user = u.User.Username()
		pass, _ = u.User.Password()
	}
	if user != "" && own {
		h["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass))}
	}
	if s := w.jar.header(u.Hostname(), u.Path, u.Scheme == "https", w.Now()); s != "" {
		h["Cookie"] = []string{s}
	}
	if body {
		h["Content-Type"] = []string{w.bodyKind}
	}
	var from int64
	if info, err := w.FS().Stat(w.Abs(w.target(name))); err == nil {
		if w.resume {
			from = info.Size
			h["Range"] = []string{fmt.Sprintf("bytes=%d-", from)}
		} else if w.newer {
			h["If-Modified-Since"] = []string{info.Modified.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		}
	}
	for _, line := range w.headers {
		k, v, ok := strings.Cut(line, ":")
		if low := strings.ToLower(k); !ok || strings.ContainsAny(line, "\r\n") || !own && (low == "authorization" || low == "cookie") {
			continue
		}
		for old := range h {
			if strings.EqualFold(old, k) {
				delete(h, old)
			}
		}
		h[k] = []string{strings.TrimSpace(v)}
	}
	for try := 1; ; try++ {
		req := &tool.Request{Method: method, URL: bare(u), Header: h, Insecure: w.insecure}
		if body {
			req.Body, req.Length = strings.NewReader(string(w.body)), int64(len(w.body))
		}
		ctx, cancel := w.deadline()
		resp, err := way.Do(ctx, req)
		if err == nil {
			resp.Body = &closing{resp.Body, cancel}
			return resp, from, 0
		}
		cancel()
		if w.Ctx.Err() != nil {
			return nil, 0, 1
		}
		f := reason(err, u.Hostname(), portOf(u))
		if !w.quiet {
			if f.code == errResolve {
				w.Errorf(0, "unable to resolve host address ‘%s’", u.Hostname())
			} else {
				fmt.Fprintf(w.Err, "%s.\n", f.text)
			}
		}
		switch {
		case f.code == errCert || f.code == errTLS:
			return nil, 0, wgetTLS
		case f.code != errTimeout && f.code != errEmpty && f.code != errRecv || try >= w.tries:
			return nil, 0, wgetNetwork
		}
		w.log("Retrying.\n\n")
		if !w.Sleep(time.Duration(min(try, 10)) * time.Second) {
			return nil, 0, 1
		}
	}
}
