package web

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func first(h map[string][]string, name string) string {
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// parseURL reads a URL in the form that users type.
func parseURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, fail(errURL, "URL using bad/illegal format or missing URL")
	}
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	raw = strings.ReplaceAll(raw, " ", "%20")
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" && u.Scheme != "file" {
		return nil, fail(errURL, "URL using bad/illegal format or missing URL")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	return u, nil
}

// prepare makes the request from the options.
func (t *transfer) prepare() error {
	u, err := parseURL(t.raw)
	if err != nil {
		return err
	}
	t.u = u
	if u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "file" {
		return fail(errProtocol, "Protocol \"%s\" not supported or disabled in libcurl", u.Scheme)
	}
	if u.Path == "" {
		u.Path = "/"
	}
	cfg := t.cfg
	t.method = "GET"
	t.body, t.hasBody, t.kind = cfg.data, cfg.hasData, ""
	query := slices.Clone(cfg.query)
	if cfg.hasData {
		t.method, t.kind = "POST", "application/x-www-form-urlencoded"
		if cfg.json {
			t.kind = "application/json"
		}
		if cfg.get {
			t.method, t.hasBody = "GET", false
			query = append(query, string(cfg.data))
		}
	}
	for _, q := range query {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += q
	}
	if len(cfg.form) > 0 {
		if t.body, t.kind, err = t.c.multipart(cfg.form); err != nil {
			return err
		}
		t.method, t.hasBody = "POST", true
	}
	if cfg.head {
		t.method = "HEAD"
	}
	if t.upload != "" {
		t.method, t.hasBody, t.kind = "PUT", true, ""
		if strings.HasSuffix(u.Path, "/") && t.upload != "-" && t.upload != "." {
			u.Path += path.Base(t.upload)
		}
		name := t.upload
		if name == "." {
			name = "-"
		}
		if t.body, err = t.c.file(name); err != nil {
			return fail(errRead, "Can't open '%s'!", t.upload)
		}
	}
	if cfg.method != "" {
		t.method = cfg.method
	}
	t.origin = u.Host
	return nil
}

// headers are those of one hop.
func (t *transfer) headers() map[string][]string {
	cfg := t.cfg
	h := map[string][]string{"Accept": {"*/*"}, "User-Agent": {"curl/7.88.1"}}
	own := t.u.Host == t.origin || cfg.trusted
	if t.kind != "" && t.hasBody {
		h["Content-Type"] = []string{t.kind}
	}
	if cfg.json {
		h["Accept"] = []string{"application/json"}
	}
	switch cfg.agent {
	case "":
	case "\x00":
		delete(h, "User-Agent")
	default:
		h["User-Agent"] = []string{cfg.agent}
	}
	if cfg.referer != "" {
		h["Referer"] = []string{cfg.referer}
	}
	if cfg.compressed {
		h["Accept-Encoding"] = []string{"deflate, gzip"}
	}
	if cfg.rangeOf != "" {
		h["Range"] = []string{"bytes=" + cfg.rangeOf}
	}
	if t.resume > 0 {
		h["Range"] = []string{fmt.Sprintf("bytes=%d-", t.resume)}
	}
	if cfg.since != "" {
		name, s := "If-Modified-Since", cfg.since
		if rest, ok := strings.CutPrefix(s, "-"); ok {
			name, s = "If-Unmodified-Since", rest
		}
		when, ok := parseDate(s)
		if !ok {
			if info, err := t.c.FS().Stat(t.c.Abs(s)); err == nil {
				when, ok = info.Modified, true
			}
		}
		if ok {
			h[name] = []string{when.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		}
	}
	if own {
		user := cfg.user
		if t.u.User != nil && user == "" {
			pass, _ := t.u.User.Password()
			user = t.u.User.Username() + ":" + pass
		}
		if user != "" {
			h["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(user))}
		}
		if cfg.bearer != "" {
			h["Authorization"] = []string{"Bearer " + cfg.bearer}
		}
	}
	var cookies []string
	if t.c.jar != nil {
		if s := t.c.jar.header(t.u.Hostname(), t.u.Path, t.u.Scheme == "https", t.c.Now()); s != "" {
			cookies = append(cookies, s)
		}
	}
	for _, b := range cfg.cookies {
		if strings.Contains(b, "=") && own {
			cookies = append(cookies, b)
		}
	}
	if len(cookies) > 0 {
		h["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	set := map[string]bool{}
	for _, line := range cfg.headers {
		t.addHeader(h, set, line, own)
	}
	return h
}

func (t *transfer) addHeader(h map[string][]string, set map[string]bool, line string, own bool) {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		if name, ok = strings.CutSuffix(line, ";"); !ok {
			return
		}
	}
	name = strings.TrimSpace(name)
	value = strings.TrimSpace(value)
	empty := strings.HasSuffix(line, ";") && !strings.Contains(line, ":")
	if name == "" || strings.ContainsAny(line, "\r\n") {
		return
	}
	key := name
	for k := range h {
		if strings.EqualFold(k, name) {
			key = k
		}
	}
	low := strings.ToLower(name)
	switch {
	case value == "" && !empty:
		delete(h, key)
	case !own && (low == "authorization" || low == "cookie"):
	case set[low]:
		h[key] = append(h[key], value)
	default:
		delete(h, key)
		h[name] = []string{value}
		set[low] = true
	}
}
