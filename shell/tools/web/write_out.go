package web

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// writeOut is -w.
func (t *transfer) writeOut(format string, status int) {
	w := t.c.Out
	var b strings.Builder
	flush := func() {
		_, _ = io.WriteString(w, b.String()) // curl does not look either
		b.Reset()
	}
	for i := 0; i < len(format); i++ {
		c := format[i]
		switch {
		case c == '\\' && i+1 < len(format):
			i++
			switch format[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			default:
				b.WriteByte('\\')
				b.WriteByte(format[i])
			}
		case c == '%' && strings.HasPrefix(format[i:], "%%"):
			b.WriteByte('%')
			i++
		case c == '%' && strings.HasPrefix(format[i:], "%{"):
			end := strings.IndexByte(format[i:], '}')
			if end < 0 {
				b.WriteByte(c)
				break
			}
			name := format[i+2 : i+end]
			i += end
			switch name {
			case "stderr":
				flush()
				w = t.c.Err
			case "stdout":
				flush()
				w = t.c.Out
			case "onerror":
				if status == 0 {
					flush()
					return
				}
			default:
				v, ok := t.variable(name, status)
				if !ok {
					fmt.Fprintf(t.c.Err, "curl: unknown --write-out variable: '%s'\n", name)
				}
				b.WriteString(v)
			}
		case c == '%' && strings.HasPrefix(format[i:], "%header{"):
			end := strings.IndexByte(format[i:], '}')
			if end < 0 {
				b.WriteByte(c)
				break
			}
			if t.resp != nil {
				b.WriteString(first(t.resp.Header, format[i+len("%header{"):i+end]))
			}
			i += end
		default:
			b.WriteByte(c)
		}
	}
	flush()
}

// variable is one of -w's.
func (t *transfer) variable(name string, status int) (string, bool) {
	secs := func(d time.Duration) string { return fmt.Sprintf("%.6f", max(d.Seconds(), 0)) }
	code, proto, remote := 0, "0", ""
	var header map[string][]string
	if t.resp != nil {
		code, header, remote = t.resp.Status, t.resp.Header, t.resp.Remote
		if _, v, ok := strings.Cut(t.resp.Proto, "/"); ok {
			proto = strings.TrimSuffix(v, ".0")
			if proto == "1" {
				proto = "1.0"
			}
		}
	}
	total := t.c.Now().Sub(t.started)
	host, port := remote, "0"
	if i := strings.LastIndexByte(remote, ':'); i >= 0 {
		host, port = strings.Trim(remote[:i], "[]"), remote[i+1:]
	}
	effective := t.raw
	scheme := ""
	if t.u != nil {
		effective, scheme = t.u.String(), strings.ToUpper(t.u.Scheme)
	}
	switch name {
	case "http_code", "response_code":
		return fmt.Sprintf("%03d", code), true
	case "http_connect":
		return "000", true
	case "url_effective":
		return effective, true
	case "url":
		return t.raw, true
	case "urlnum", "ssl_verify_result", "proxy_ssl_verify_result", "retries", "conn_id", "xfer_id":
		return "0", true
	case "content_type":
		return first(header, "Content-Type"), true
	case "size_download":
		return strconv.FormatInt(t.n, 10), true
	case "size_upload":
		return strconv.Itoa(len(t.body)), true
	case "size_header":
		return strconv.Itoa(t.heads), true
	case "size_request":
		return strconv.Itoa(len(effective) + 60), true
	case "speed_download":
		return strconv.FormatInt(int64(float64(t.n)/max(total.Seconds(), 0.000001)), 10), true
	case "speed_upload":
		return strconv.FormatInt(int64(float64(len(t.body))/max(total.Seconds(), 0.000001)), 10), true
	case "time_total":
		return secs(total), true
	case "time_namelookup", "time_connect", "time_pretransfer", "time_redirect", "time_appconnect":
		return secs(0), true
	case "time_starttransfer":
		return secs(t.first), true
	case "num_redirects":
		return strconv.Itoa(t.hops), true
	case "num_connects":
		return "1", true
	case "num_headers":
		n := 0
		for _, v := range header {
			n += len(v)
		}
		return strconv.Itoa(n), true
	case "redirect_url":
		return t.next, true
	case "method":
		return t.method, true
	case "scheme":
		return scheme, true
	case "http_version":
		return proto, true
	case "remote_ip":
		return host, true
	case "remote_port":
		return port, true
	case "local_ip":
		return "", true
	case "local_port":
		return "0", true
	case "filename_effective":
		return t.name, true
	case "exitcode":
		return strconv.Itoa(status), true
	case "errormsg":
		if t.err != nil {
			return t.err.text, true
		}
		return "", true
	case "referer":
		return t.cfg.referer, true
	case "header_json":
		low := map[string][]string{}
		for k, v := range header {
			low[strings.ToLower(k)] = v
		}
		b, _ := json.Marshal(low) // strings
		return string(b), true
	case "json":
		all := map[string]any{"http_code": code, "response_code": code, "url_effective": effective, "size_download": t.n,
			"num_redirects": t.hops, "method": t.method, "content_type": first(header, "Content-Type"), "exitcode": status,
			"http_version": proto, "scheme": scheme, "time_total": total.Seconds(), "remote_ip": host, "redirect_url": t.next}
		b, _ := json.Marshal(all) // strings and numbers
		return string(b), true
	}
	return "", false
}
