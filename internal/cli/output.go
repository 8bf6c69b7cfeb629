package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// printJSON writes v as one JSON document on one line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table writes rows under headings, in columns.
func (a *app) table(headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(headings, "\t"))
	for _, r := range rows {
		for i, cell := range r {
			r[i] = printable(cell)
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, units := float64(n), "KMGTPE"
	i := -1
	for f >= unit && i < len(units)-1 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// span writes a duration for people, to the second.
func span(d time.Duration) string { return d.Round(time.Second).String() }

// keyValues turns KEY=VALUE arguments into a map.
func keyValues(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage(fmt.Errorf("%s %q is not KEY=VALUE", flag, p))
		}
		m[k] = v
	}
	return m, nil
}
