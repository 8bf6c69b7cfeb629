package console

import (
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// dist is the bundle, made by console/build.mjs: the page, and its files in gzip's form. The name of
// each file has a hash of its content.
//
//go:embed dist
var dist embed.FS

// Where the page has its nonces.
const (
	scriptMark = "{{script-nonce}}"
	styleMark  = "{{style-nonce}}"
)

// pageParts returns the page in pieces: nonces go between them.
func pageParts() []string {
	raw, err := dist.ReadFile("dist/index.html")
	if err != nil { // it is embedded
		panic(err)
	}
	var parts []string
	for rest := string(raw); ; {
		at := strings.Index(rest, "{{")
		if at < 0 {
			return append(parts, rest)
		}
		parts = append(parts, rest[:at])
		end := strings.Index(rest, "}}") + 2
		parts = append(parts, rest[at:end])
		rest = rest[end:]
	}
}

// fill returns the page with its nonces.
func fill(parts []string, script, style string) string {
	var b strings.Builder
	for _, p := range parts {
		switch p {
		case scriptMark:
			p = script
		case styleMark:
			p = style
		}
		b.WriteString(p)
	}
	return b.String()
}

// serveAsset serves a file of the bundle. A browser keeps it for ever, because another content has
// another name.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	f, err := dist.Open("dist/" + name + ".gz")
	if err != nil || !fs.ValidPath(name) || strings.Contains(name, "/") {
		http.Error(w, "there is no such file; load the page again", http.StatusNotFound)
		return
	}
	defer f.Close()
	head := w.Header()
	head.Set("Cache-Control", "public, max-age=31536000, immutable")
	head.Set("Content-Type", mediaTypes[path.Ext(name)])
	head.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		_, _ = io.Copy(w, f)
		return
	}
	plain, err := gzip.NewReader(f)
	if err != nil { // it is embedded
		panic(err)
	}
	_, _ = io.Copy(w, plain)
}

// mediaTypes are those of the bundle's files. The machine's own table is not asked: it may say
// something else.
var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}
