package web

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// name returns the file name under which a URL is saved.
func (w *wget) name(u *url.URL) string {
	name := path.Base(u.Path)
	if name == "/" || name == "." || strings.HasSuffix(u.Path, "/") {
		name = "index.html"
	}
	if u.RawQuery != "" {
		name += "?" + strings.ReplaceAll(u.RawQuery, "/", "%2F")
	}
	if w.dir != "" {
		name = strings.TrimSuffix(w.dir, "/") + "/" + name
	}
	return name
}

func (w *wget) target(name string) string {
	if w.out != "" {
		return w.out
	}
	return name
}

// receive saves the body.
func (w *wget) receive(u *url.URL, resp *tool.Response, name string, from int64) int {
	switch {
	case resp.Status == 304:
		w.log("File ‘%s’ not modified on server. Omitting download.\n\n", name)
		return 0
	case resp.Status == 416 && w.resume:
		w.log("\n    The file is already fully retrieved; nothing to do.\n\n")
		return 0
	case resp.Status == 401:
		w.log("\nUsername/Password Authentication Failed.\n")
		return wgetAuth
	case resp.Status >= 400:
		if !w.quiet {
			if w.spider && resp.Status == 404 {
				fmt.Fprint(w.Err, "Remote file does not exist -- broken link!!!\n")
			} else {
				fmt.Fprintf(w.Err, "%s ERROR %d: %s.\n\n", w.stamp(), resp.Status, resp.Reason)
			}
		}
		if w.out != "" && w.out != "-" && !w.spider {
			if f, err := w.Open(w.out, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666); err == nil {
				_ = f.Close() // wget leaves it empty
			}
		}
		return wgetServer
	case w.spider:
		w.log("Remote file exists.\n\n")
		return 0
	}
	if w.disposition {
		if s := suggested(first(resp.Header, "Content-Disposition")); s != "" {
			if name = s; w.dir != "" {
				name = strings.TrimSuffix(w.dir, "/") + "/" + s
			}
		}
	}
	return w.save(u, resp, name, from)
}

func (w *wget) save(u *url.URL, resp *tool.Response, name string, from int64) int {
	var dst io.Writer = w.Out
	shown := w.target(name)
	if w.out != "-" {
		flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
		if from > 0 && resp.Status == 206 || w.out != "" && w.written {
			flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
		}
		if w.out == "" && !w.resume && !w.newer {
			for n := 1; n < 10000; n++ { // never over what is there
				if _, err := w.FS().Lstat(w.Abs(shown)); err != nil {
					break
				}
				shown = name + "." + strconv.Itoa(n)
			}
		}
		if w.dir != "" && w.out == "" {
			if err := w.FS().MkdirAll(w.Abs(w.dir), 0o755); err != nil {
				return w.Errorf(wgetFile, "%s: %s", w.dir, tool.ErrText(err))
			}
		}
		f, err := w.Open(shown, flags, 0o666)
		if err != nil {
			fmt.Fprintf(w.Err, "%s: %s\n\nCannot write to ‘%s’ (%s).\n", shown, tool.ErrText(err), shown, tool.ErrText(err))
			return wgetFile
		}
		defer func() { _ = f.Close() }() // writes are not buffered
		dst = f
	} else {
		shown = "STDOUT"
	}
	w.written = true
	size := "unspecified"
	if l := first(resp.Header, "Content-Length"); l != "" {
		size = l
	}
	kind, _, _ := strings.Cut(first(resp.Header, "Content-Type"), ";")
	w.log("Length: %s [%s]\nSaving to: ‘%s’\n\n", size, kind, shown)
	begin := w.Now()
	n, err := io.Copy(dst, &paidReader{c: w.Call, r: resp.Body})
	if err != nil {
		if w.Stopped(err) {
			return 1
		}
		fmt.Fprintf(w.Err, "%s: %s\n", shown, tool.ErrText(err))
		if reason(err, "", "").code == errTimeout {
			return wgetNetwork
		}
		return wgetFile
	}
	if w.newer && w.out == "" {
		if t, ok := parseDate(first(resp.Header, "Last-Modified")); ok {
			_ = w.FS().Chtimes(w.Abs(shown), t) // its own new file
		}
	}
	d := max(w.Now().Sub(begin).Seconds(), 0.001)
	if w.less && !w.quiet {
		fmt.Fprintf(w.Err, "%s URL:%s [%d/%d] -> \"%s\" [1]\n", w.stamp(), bare(u), n, n, shown)
	}
	w.log("%s (%.1f KB/s) - ‘%s’ saved [%d/%d]\n\n", w.stamp(), float64(n)/1024/d, shown, n, n)
	return 0
}
