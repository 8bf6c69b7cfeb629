package web

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// output is the destination of one URL's body.
type output struct {
	name   string
	remote bool // -O
}

// config has the options of one group. --next begins another group.
type config struct {
	urls    []string
	outputs []output
	uploads []string

	method   string
	headers  []string
	data     []byte
	hasData  bool
	json     bool
	get      bool // -G
	form     []string
	user     string
	bearer   string
	agent    string
	referer  string
	autoRef  bool
	cookies  []string
	jar      string
	head     bool
	include  bool
	dump     string
	location bool
	trusted  bool
	maxRedir int
	keep     map[int]bool // statuses after which POST stays POST
	insecure bool

	silent, showError, verbose bool
	fail, failBody, failEarly  bool
	writeOut                   string
	maxTime, connectTime       time.Duration
	retry                      int
	retryDelay, retryMax       time.Duration
	retryAll, retryRefused     bool
	rangeOf, resume, since     string
	compressed                 bool
	globOff                    bool
	remoteName                 bool // -J
	remoteAll                  bool
	dir                        string
	createDirs, removeOnError  bool
	maxSize                    int64
	remoteTime                 bool
	query                      []string
	noProgress                 bool
	pathAsIs                   bool
}

func newConfig() *config { return &config{maxRedir: 50, keep: map[int]bool{}} }

// option is an option and the function that applies its argument.
type option struct {
	long  string
	short byte
	arg   bool
	run   func(c *curl, v string) error
}

func sets(p func(c *config) *bool) func(c *curl, v string) error {
	return func(c *curl, v string) error { *p(c.config) = v != "no"; return nil }
}

func text(p func(c *config) *string) func(c *curl, v string) error {
	return func(c *curl, v string) error { *p(c.config) = v; return nil }
}

func ignore(*curl, string) error { return nil }

func refused(why string) func(c *curl, v string) error {
	return func(*curl, string) error { return fail(errMissing, "%s", why) }
}

func seconds(p func(c *config) *time.Duration) func(c *curl, v string) error {
	return func(c *curl, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || f < 0 || f > 1e9 {
			return fail(errUsage, "expected a proper number")
		}
		*p(c.config) = time.Duration(f * float64(time.Second))
		return nil
	}
}

func number(p func(c *config) *int) func(c *curl, v string) error {
	return func(c *curl, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fail(errUsage, "expected a proper number")
		}
		*p(c.config) = n
		return nil
	}
}

const noProxy = "there is no proxy: every request takes the sandbox's own way out"

// table returns the options. It is made once, at its first use, because its functions refer to it.
var table func() []option

func init() { table = sync.OnceValue(options) }

func options() []option {
	return []option{
		{"request", 'X', true, text(func(c *config) *string { return &c.method })},
		{"data", 'd', true, func(c *curl, v string) error { return c.addData(v, true) }},
		{"data-ascii", 0, true, func(c *curl, v string) error { return c.addData(v, true) }},
		{"data-raw", 0, true, func(c *curl, v string) error { c.config.add([]byte(v)); return nil }},
		{"data-binary", 0, true, func(c *curl, v string) error { return c.addData(v, false) }},
		{"data-urlencode", 0, true, (*curl).addEncoded},
		{"json", 0, true, func(c *curl, v string) error {
			b, err := c.dataOf(v, false)
			if err != nil {
				return err
			}
			c.config.json, c.config.hasData = true, true
			c.config.data = append(c.config.data, b...)
			return nil
		}},
		{"get", 'G', false, sets(func(c *config) *bool { return &c.get })},
		{"url-query", 0, true, func(c *curl, v string) error {
			if rest, ok := strings.CutPrefix(v, "+"); ok {
				c.config.query = append(c.config.query, rest)
				return nil
			}
			b, err := c.encoded(v)
			c.config.query = append(c.config.query, string(b))
			return err
		}},
		{"form", 'F', true, func(c *curl, v string) error { c.config.form = append(c.config.form, v); return nil }},
		{"form-string", 0, true, func(c *curl, v string) error {
			name, val, _ := strings.Cut(v, "=")
			c.config.form = append(c.config.form, name+"=\x00"+val)
			return nil
		}},
		{"header", 'H', true, (*curl).addHeader},
		{"output", 'o', true, func(c *curl, v string) error {
			c.config.outputs = append(c.config.outputs, output{name: v})
			return nil
		}},
		{"remote-name", 'O', false, func(c *curl, _ string) error {
			c.config.outputs = append(c.config.outputs, output{remote: true})
			return nil
		}},
		{"remote-name-all", 0, false, sets(func(c *config) *bool { return &c.remoteAll })},
		{"remote-header-name", 'J', false, sets(func(c *config) *bool { return &c.remoteName })},
		{"output-dir", 0, true, text(func(c *config) *string { return &c.dir })},
		{"create-dirs", 0, false, sets(func(c *config) *bool { return &c.createDirs })},
		{"remove-on-error", 0, false, sets(func(c *config) *bool { return &c.removeOnError })},
		{"remote-time", 'R', false, sets(func(c *config) *bool { return &c.remoteTime })},
		{"location", 'L', false, sets(func(c *config) *bool { return &c.location })},
		{"location-trusted", 0, false, func(c *curl, _ string) error { c.config.location, c.config.trusted = true, true; return nil }},
		{"max-redirs", 0, true, number(func(c *config) *int { return &c.maxRedir })},
		{"post301", 0, false, func(c *curl, _ string) error { c.config.keep[301] = true; return nil }},
		{"post302", 0, false, func(c *curl, _ string) error { c.config.keep[302] = true; return nil }},
		{"post303", 0, false, func(c *curl, _ string) error { c.config.keep[303] = true; return nil }},
		{"silent", 's', false, sets(func(c *config) *bool { return &c.silent })},
		{"show-error", 'S', false, sets(func(c *config) *bool { return &c.showError })},
		{"fail", 'f', false, sets(func(c *config) *bool { return &c.fail })},
		{"fail-with-body", 0, false, sets(func(c *config) *bool { return &c.failBody })},
		{"fail-early", 0, false, sets(func(c *config) *bool { return &c.failEarly })},
		{"include", 'i', false, sets(func(c *config) *bool { return &c.include })},
		{"show-headers", 0, false, sets(func(c *config) *bool { return &c.include })},
		{"head", 'I', false, sets(func(c *config) *bool { return &c.head })},
		{"dump-header", 'D', true, text(func(c *config) *string { return &c.dump })},
		{"verbose", 'v', false, sets(func(c *config) *bool { return &c.verbose })},
		{"write-out", 'w', true, (*curl).setWriteOut},
		{"user", 'u', true, text(func(c *config) *string { return &c.user })},
		{"oauth2-bearer", 0, true, text(func(c *config) *string { return &c.bearer })},
		{"user-agent", 'A', true, func(c *curl, v string) error {
			if c.config.agent = v; v == "" {
				c.config.agent = "\x00"
			}
			return nil
		}},
		{"referer", 'e', true, func(c *curl, v string) error {
			if rest, ok := strings.CutSuffix(v, ";auto"); ok {
				v, c.config.autoRef = rest, true
			}
			c.config.referer = v
			return nil
		}},
		{"cookie", 'b', true, func(c *curl, v string) error { c.config.cookies = append(c.config.cookies, v); return nil }},
		{"cookie-jar", 'c', true, text(func(c *config) *string { return &c.jar })},
		{"junk-session-cookies", 'j', false, ignore},
		{"insecure", 'k', false, sets(func(c *config) *bool { return &c.insecure })},
		{"max-time", 'm', true, seconds(func(c *config) *time.Duration { return &c.maxTime })},
		{"connect-timeout", 0, true, seconds(func(c *config) *time.Duration { return &c.connectTime })},
		{"retry", 0, true, number(func(c *config) *int { return &c.retry })},
		{"retry-delay", 0, true, seconds(func(c *config) *time.Duration { return &c.retryDelay })},
		{"retry-max-time", 0, true, seconds(func(c *config) *time.Duration { return &c.retryMax })},
		{"retry-all-errors", 0, false, sets(func(c *config) *bool { return &c.retryAll })},
		{"retry-connrefused", 0, false, sets(func(c *config) *bool { return &c.retryRefused })},
		{"upload-file", 'T', true, func(c *curl, v string) error { c.config.uploads = append(c.config.uploads, v); return nil }},
		{"range", 'r', true, text(func(c *config) *string { return &c.rangeOf })},
		{"continue-at", 'C', true, text(func(c *config) *string { return &c.resume })},
		{"time-cond", 'z', true, text(func(c *config) *string { return &c.since })},
		{"compressed", 0, false, sets(func(c *config) *bool { return &c.compressed })},
		{"globoff", 'g', false, sets(func(c *config) *bool { return &c.globOff })},
		{"path-as-is", 0, false, sets(func(c *config) *bool { return &c.pathAsIs })},
		{"max-filesize", 0, true, func(c *curl, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return fail(errUsage, "expected a proper number")
			}
			c.config.maxSize = n
			return nil
		}},
		{"url", 0, true, func(c *curl, v string) error { c.config.urls = append(c.config.urls, v); return nil }},
		{"config", 'K', true, (*curl).readConfig},
		{"next", ':', false, func(c *curl, _ string) error {
			c.all = append(c.all, c.config)
			c.config = newConfig()
			return nil
		}},
		{"progress-bar", '#', false, ignore},
		{"no-progress-meter", 0, false, sets(func(c *config) *bool { return &c.noProgress })},
		{"progress-meter", 0, false, func(c *curl, v string) error { c.config.noProgress = v == "no"; return nil }},
		{"disable", 'q', false, ignore},
		{"no-buffer", 'N', false, ignore},
		{"buffer", 0, false, ignore},
		{"parallel", 'Z', false, ignore},
		{"parallel-max", 0, true, ignore},
		{"parallel-immediate", 0, false, ignore},
		{"http1.0", '0', false, ignore}, {"http1.1", 0, false, ignore}, {"http2", 0, false, ignore}, {"http2-prior-knowledge", 0, false, ignore}, {"http3", 0, false, ignore},
		{"ipv4", '4', false, ignore}, {"ipv6", '6', false, ignore}, {"basic", 0, false, ignore}, {"anyauth", 0, false, ignore},
		{"tlsv1", '1', false, ignore}, {"tlsv1.2", 0, false, ignore}, {"tlsv1.3", 0, false, ignore}, {"sslv3", '3', false, ignore}, {"tls-max", 0, true, ignore},
		{"limit-rate", 0, true, ignore}, {"speed-limit", 'Y', true, ignore}, {"speed-time", 'y', true, ignore}, {"keepalive-time", 0, true, ignore},
		{"keepalive", 0, false, ignore}, {"tcp-nodelay", 0, false, ignore}, {"tcp-fastopen", 0, false, ignore}, {"raw", 0, false, ignore}, {"tr-encoding", 0, false, ignore},
		{"expect100-timeout", 0, true, ignore}, {"ciphers", 0, true, ignore}, {"proto", 0, true, ignore}, {"proto-redir", 0, true, ignore}, {"proto-default", 0, true, ignore},
		{"noproxy", 0, true, ignore}, {"styled-output", 0, false, ignore}, {"stderr", 0, true, ignore}, {"sessionid", 0, false, ignore}, {"alpn", 0, false, ignore},
		{"ssl-reqd", 0, false, ignore}, {"fail-early", 0, false, ignore}, {"disallow-username-in-url", 0, false, ignore}, {"xattr", 0, false, ignore},
		{"cacert", 0, true, ignore}, {"capath", 0, true, ignore}, {"netrc", 'n', false, ignore}, {"netrc-optional", 0, false, ignore}, {"trace-time", 0, false, ignore},
		{"proxy", 'x', true, func(_ *curl, v string) error {
			if v == "" {
				return nil
			}
			return fail(errMissing, "%s", noProxy)
		}},
		{"socks5", 0, true, refused(noProxy)}, {"socks5-hostname", 0, true, refused(noProxy)}, {"socks4", 0, true, refused(noProxy)}, {"preproxy", 0, true, refused(noProxy)},
		{"resolve", 0, true, refused("names are resolved by the sandbox's host, so that --resolve can't be")},
		{"connect-to", 0, true, refused("connections are made by the sandbox's host, so that --connect-to can't be")},
		{"unix-socket", 0, true, refused("there are no Unix sockets on this machine")},
		{"abstract-unix-socket", 0, true, refused("there are no Unix sockets on this machine")},
		{"interface", 0, true, refused("this machine has no network interfaces of its own")},
		{"dns-servers", 0, true, refused("names are resolved by the sandbox's host")},
		{"cert", 'E', true, refused("client certificates are put in by the sandbox's host")}, {"key", 0, true, refused("client certificates are put in by the sandbox's host")},
		{"digest", 0, false, refused("only basic and bearer authentication are here")}, {"ntlm", 0, false, refused("only basic and bearer authentication are here")},
		{"negotiate", 0, false, refused("only basic and bearer authentication are here")},
		{"help", 'h', false, func(c *curl, _ string) error { c.info = curlHelp; return nil }},
		{"version", 'V', false, func(c *curl, _ string) error { c.info = curlVersion; return nil }},
	}
}

const curlVersion = `curl 7.88.1 (carrel) libcurl/7.88.1
Protocols: file http https
Features: HTTP2 HTTPS-proxy libz SSL
`

const curlHelp = `Usage: curl [options...] <url>
Fetches what is at a URL, or sends something there.

Request:
 -X METHOD, -H 'NAME: VALUE', -A AGENT, -e REFERER, -u USER:PASSWORD, -b COOKIES
 -d TEXT, --data-raw, --data-binary, --data-urlencode, --json: a body (@FILE: from FILE)
 -F NAME=VALUE: a form;  -T FILE: upload;  -G: what -d gave goes into the URL
 -I: headers only;  -r RANGE;  -z TIME: if newer;  --oauth2-bearer TOKEN;  --url-query TEXT
Answer:
 -o FILE, -O (under the URL's last name), -J (under the server's), --output-dir DIR
 -i: headers, too;  -D FILE: headers there;  -c FILE: cookies there;  -w FORMAT: facts after it
 -f, --fail-with-body: errors of HTTP are errors;  --compressed;  -R: keep the file's time
Way:
 -L: follow redirects, --max-redirs N;  -m SECONDS, --connect-timeout SECONDS
 --retry N, --retry-delay SECONDS;  -C OFFSET: go on;  --max-filesize BYTES;  -k: any certificate
Rest:
 -s: no progress, no errors;  -S: errors after all;  -v: tell all;  -K FILE: options from FILE
 --url URL;  --next: options anew;  --create-dirs;  -V: version;  -h: this
`

// curl is one run.
type curl struct {
	*tool.Call
	config *config
	all    []*config
	info   string
	depth  int
	jar    *jar
	out    io.Writer
}

// runCurl is curl.
func runCurl(call *tool.Call) int {
	c := &curl{Call: call, config: newConfig(), out: call.Out}
	err := c.parse(call.Args)
	c.all = append(c.all, c.config)
	if err == nil && c.info != "" {
		fmt.Fprint(c.Out, c.info)
		return 0
	}
	if err == nil && len(c.config.urls) == 0 && len(c.all) == 1 {
		fmt.Fprint(c.Err, "curl: try 'curl --help' or 'curl --manual' for more information\n")
		return errUsage
	}
	if err != nil {
		f, ok := err.(*failure)
		if !ok {
			return errUsage
		}
		if f.code == errUsage {
			fmt.Fprintf(c.Err, "curl: %s\ncurl: try 'curl --help' or 'curl --manual' for more information\n", f.text)
		} else {
			fmt.Fprintf(c.Err, "curl: (%d) %s\n", f.code, f.text)
		}
		return f.code
	}
	status := 0
	for _, cfg := range c.all {
		c.config = cfg
		if s := c.group(); s != 0 {
			if status = s; cfg.failEarly {
				break
			}
		}
	}
	return status
}
