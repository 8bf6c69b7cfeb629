package web

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// target finds the file for the body, and the position to continue from.
func (t *transfer) target() error {
	t.name, t.resume = t.out.name, 0
	for i, v := range t.vals {
		t.name = strings.ReplaceAll(t.name, "#"+strconv.Itoa(i+1), v)
	}
	if t.out.remote {
		if t.name = path.Base(t.u.Path); t.name == "/" || t.name == "." || strings.HasSuffix(t.u.Path, "/") {
			return fail(errWrite, "Remote file name has no length!")
		}
	}
	if t.name == "-" {
		t.name = ""
	}
	if t.name != "" && t.cfg.dir != "" && !strings.HasPrefix(t.name, "/") {
		t.name = strings.TrimSuffix(t.cfg.dir, "/") + "/" + t.name
	}
	switch {
	case t.cfg.resume == "":
	case t.cfg.resume == "-":
		if info, err := t.c.FS().Stat(t.c.Abs(t.name)); err == nil && t.name != "" {
			t.resume = info.Size
		}
	default:
		n, err := strconv.ParseInt(t.cfg.resume, 10, 64)
		if err != nil || n < 0 {
			return fail(errUsage, "option -C: expected a proper numerical parameter")
		}
		t.resume = n
	}
	return nil
}

// headText returns the head of an answer as it is printed.
func headText(r *tool.Response) string {
	var b strings.Builder
	proto := r.Proto
	if proto == "" {
		proto = "HTTP/1.1"
	}
	if proto = strings.TrimSuffix(proto, ".0"); proto == "HTTP/1" {
		proto = "HTTP/1.0"
	}
	lower := proto == "HTTP/2" || proto == "HTTP/3"
	fmt.Fprintf(&b, "%s %d %s\r\n", proto, r.Status, r.Reason)
	for _, k := range names(r.Header) {
		for _, v := range r.Header[k] {
			if lower {
				k = strings.ToLower(k)
			}
			b.WriteString(k + ": " + v + "\r\n")
		}
	}
	b.WriteString("\r\n")
	return b.String()
}

func names(h map[string][]string) []string {
	out := make([]string, 0, len(h))
	for k := range h {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// showRequest prints the request for -v.
func (t *transfer) showRequest(r *tool.Request) {
	if !t.cfg.verbose {
		return
	}
	uri := t.u.RequestURI()
	fmt.Fprintf(t.c.Err, "> %s %s HTTP/1.1\n> Host: %s\n", r.Method, uri, t.u.Host)
	for _, k := range names(r.Header) {
		for _, v := range r.Header[k] {
			if k == "Authorization" {
				v, _, _ = strings.Cut(v, " ")
				v += " ****"
			}
			fmt.Fprintf(t.c.Err, "> %s: %s\n", k, v)
		}
	}
	if r.Body != nil {
		fmt.Fprintf(t.c.Err, "> Content-Length: %d\n", r.Length)
	}
	fmt.Fprint(t.c.Err, "> \n")
}

// showHeaders writes the head of an answer to the places that the options name.
func (t *transfer) showHeaders(r *tool.Response) error {
	text := headText(r)
	t.heads += len(text)
	if t.cfg.verbose {
		for _, l := range strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n") {
			fmt.Fprintf(t.c.Err, "< %s\n", l)
		}
	}
	if t.cfg.dump != "" {
		flags := vfs.WriteOnly | vfs.CreateNew | vfs.Append
		if t.heads == len(text) {
			flags |= vfs.Truncate
		}
		if t.cfg.dump == "-" {
			if _, err := io.WriteString(t.c.Out, text); err != nil {
				return err
			}
		} else if f, err := t.c.Open(t.cfg.dump, flags, 0o666); err != nil {
			return fail(errWrite, "Failed to open %s", t.cfg.dump)
		} else {
			_, err = io.WriteString(f, text)
			_ = f.Close() // the write is what counts
			if err != nil {
				return err
			}
		}
	}
	if (t.cfg.include || t.cfg.head) && t.name == "" {
		_, err := io.WriteString(t.c.Out, text)
		return err
	}
	return nil
}

// receive handles the last answer.
func (t *transfer) receive(resp *tool.Response) error {
	if err := t.showHeaders(resp); err != nil {
		return err
	}
	if resp.Status >= 400 && t.cfg.fail && !t.cfg.failBody {
		return fail(errReturned, "The requested URL returned error: %d", resp.Status)
	}
	if n, err := strconv.ParseInt(first(resp.Header, "Content-Length"), 10, 64); err == nil && t.cfg.maxSize > 0 && n > t.cfg.maxSize {
		return fail(errFileSize, "Maximum file size exceeded")
	}
	if t.resume > 0 && resp.Status == 416 {
		return nil
	}
	if t.resume > 0 && resp.Status == 200 {
		return fail(errRange, "HTTP server doesn't seem to support byte ranges. Cannot resume.")
	}
	if t.cfg.remoteName && t.out.remote {
		if name := suggested(first(resp.Header, "Content-Disposition")); name != "" {
			t.name = name
			if t.cfg.dir != "" {
				t.name = strings.TrimSuffix(t.cfg.dir, "/") + "/" + name
			}
		}
	}
	body, err := t.decoded(resp)
	if err == nil {
		err = t.copy(body)
	}
	if err != nil {
		if _, own := err.(*failure); !own && t.n > 0 && !t.c.Stopped(err) && reason(err, "", "").code != errTimeout {
			return fail(errPartial, "transfer closed with outstanding read data remaining")
		}
		return err
	}
	if resp.Status >= 400 && t.cfg.failBody {
		return fail(errReturned, "The requested URL returned error: %d", resp.Status)
	}
	return nil
}

// suggested returns the name in Content-Disposition, without any directory.
func suggested(v string) string {
	for _, p := range strings.Split(v, ";") {
		key, val, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(key, "filename") {
			val = strings.Trim(val, `"`)
			if i := strings.LastIndexAny(val, `/\`); i >= 0 {
				val = val[i+1:]
			}
			if val != "." && val != ".." {
				return val
			}
		}
	}
	return ""
}

// copy writes the body.
func (t *transfer) copy(body io.Reader) error {
	var w io.Writer = t.c.Out
	var f tool.File
	open := func() error {
		if t.name == "" || f != nil {
			return nil
		}
		if t.cfg.createDirs {
			if err := t.c.FS().MkdirAll(t.c.Abs(path.Dir(t.name)), 0o750); err != nil {
				return fail(errWrite, "Failed to create directory %s", path.Dir(t.name))
			}
		}
		flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
		if t.resume > 0 {
			flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
		}
		var err error
		if f, err = t.c.Open(t.name, flags, 0o666); err != nil {
			if !t.cfg.silent {
				fmt.Fprintf(t.c.Err, "Warning: Failed to open the file %s: %s\n", t.name, tool.ErrText(err))
			}
			return fail(errWrite, "Failed writing received data to disk/application")
		}
		w = f
		if (t.cfg.include || t.cfg.head) && t.resp.Status != 0 {
			_, err = io.WriteString(w, headText(t.resp))
		}
		return err
	}
	defer func() {
		if f != nil {
			_ = f.Close() // writes are not buffered
		}
	}()
	if err := open(); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			t.n += int64(n)
			if !t.c.Step(1 + n>>9) {
				return tool.ErrStop
			}
			if t.cfg.maxSize > 0 && t.n > t.cfg.maxSize {
				return fail(errFileSize, "Maximum file size exceeded")
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				if t.c.Stopped(werr) {
					return fail(errWrite, "Failure writing output to destination")
				}
				return fail(errWrite, "Failure writing output to destination: %s", tool.ErrText(werr))
			}
		}
		if err == io.EOF {
			t.progress()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// progress prints the table that curl shows when the body does not go to the terminal.
func (t *transfer) progress() {
	_, _, tty := t.c.Terminal(1)
	if t.cfg.silent || t.cfg.noProgress || t.name == "" && tty {
		return
	}
	d := t.c.Now().Sub(t.started)
	rate := int64(float64(t.n) / max(d.Seconds(), 0.001))
	fmt.Fprintf(t.c.Err, "  %% Total    %% Received %% Xferd  Average Speed   Time    Time     Time  Current\n"+
		"                                 Dload  Upload   Total   Spent    Left  Speed\n"+
		"\r100 %5s  100 %5s    0     0  %5s      0 --:--:-- --:--:-- --:--:-- %5s\n", short(t.n), short(t.n), short(rate), short(rate))
}

func short(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000<<10:
		return strconv.FormatInt(n>>10, 10) + "k"
	}
	return strconv.FormatInt(n>>20, 10) + "M"
}
