package api

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRoutesAgree makes a server. The mux panics on patterns that conflict.
func TestRoutesAgree(t *testing.T) { New(Options{Callers: adminKey("k")}) }

// TestRoutesDocumented shows that the package's documentation lists exactly the existing routes.
func TestRoutesDocumented(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	// The documentation shortens some paths. A line lists the whole path "/sandboxes/{id}/timeout",
	// and then only the end of another: "/refreshes".
	pattern := regexp.MustCompile(`s\.handle\("([A-Z]+)(?: |"\+v1\+")([^"]+)"`)
	n := 0
	for _, file := range files {
		if file == "later.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllStringSubmatch(string(src), -1) {
			n++
			whole := strings.Contains(string(doc), m[2])
			last := strings.Contains(string(doc), m[2][strings.LastIndex(m[2], "/"):])
			if !whole && !last {
				t.Errorf("%s %s (%s) is not in the documentation", m[1], m[2], file)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d routes found", n)
	}
}
