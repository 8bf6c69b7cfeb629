package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/carrel-dev/carrel"
)

// results are all results of one run.
type results struct {
	Machine machine
	Rows    []row
	Points  []point
}

// line is one line of the file: exactly one field is set.
type line struct {
	Machine *machine `json:"machine,omitempty"`
	*row
	Point *point `json:"point,omitempty"`
}

// encode writes the results as JSON lines, the machine first.
func (r *results) encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	lines := []line{{Machine: &r.Machine}}
	for i := range r.Rows {
		lines = append(lines, line{row: &r.Rows[i]})
	}
	for i := range r.Points {
		lines = append(lines, line{Point: &r.Points[i]})
	}
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// save writes them to a file.
func (r *results) save(name string) error {
	var b bytes.Buffer
	if err := r.encode(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// readResults reads a results file of this version or an older one.
func readResults(name string) (*results, error) {
	fail := func(err error) (*results, error) {
		return nil, &carrel.Error{Op: "bench", Kind: carrel.Invalid, Field: "compare", Err: err, Hint: "give it a file that --json wrote"}
	}
	f, err := os.Open(name)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	r := &results{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		l := line{row: &row{}}
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fail(fmt.Errorf("%s:%d: %w", name, n, err))
		}
		switch {
		case l.Machine != nil:
			r.Machine = *l.Machine
		case l.Point != nil:
			r.Points = append(r.Points, *l.Point)
		case l.row.Name != "":
			r.Rows = append(r.Rows, *l.row)
		}
	}
	if err := in.Err(); err != nil {
		return fail(err)
	}
	if len(r.Rows) == 0 {
		return fail(errors.New(name + " has no results in it"))
	}
	return r, nil
}

// printTable writes the rows for people, as Markdown.
func printTable(w io.Writer, rows []row) {
	fmt.Fprintf(w, "\n| what | median | p95 | p99 | unit | target | samples |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		mark := ""
		if r.Target != "" && !r.Met {
			mark = " (missed)"
		}
		digits := 1
		if r.Unit == "×" {
			digits = 2
		}
		tail := fmt.Sprintf("%.*f | %.*f", digits, r.P95, digits, r.P99)
		if r.Samples < 3 {
			tail = " | "
		}
		fmt.Fprintf(w, "| %s | %.*f | %s | %s | %s%s | %d |\n", r.Name, digits, r.Median, tail, r.Unit, r.Target, mark, r.Samples)
	}
}
