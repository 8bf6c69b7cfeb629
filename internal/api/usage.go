package api

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
)

// usageRoutes are our routes about what was used.
type usageRoutes struct{ *Server }

func (s usageRoutes) add(v1 string) { s.handle("GET"+v1+"/usage", s.usage) }

// usageParameters are the query's parameters. Any other is an error, because the answer would not be
// the intended one.
var usageParameters = []string{"by", "from", "to", "project", "sandbox", "format"}

// usage answers with sums of usage, as JSON or as CSV.
func (s usageRoutes) usage(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	o, err := usageOptions(q)
	if err != nil {
		return err
	}
	if err := oneOf(q, "format", "", "json", "csv"); err != nil {
		return err
	}
	report, err := s.opts.Service.Usage(r.Context(), o)
	if err != nil {
		return err
	}
	if q.Get("format") != "csv" {
		writeJSON(w, http.StatusOK, report)
		return nil
	}
	var text bytes.Buffer
	if err := carrel.WriteUsageCSV(&text, report); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="usage.csv"`)
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text.Bytes()) // the client may have left
	return nil
}

// usageOptions reads a question about usage.
func usageOptions(q url.Values) (o carrel.UsageOptions, err error) {
	for name, values := range q {
		if !slices.Contains(usageParameters, name) {
			return o, invalid(clip(name), "there is no such parameter")
		}
		if len(values) > 1 {
			return o, invalid(name, "given more than once")
		}
	}
	if by := q.Get("by"); by != "" {
		o.By = strings.Split(by, ",")
	}
	if o.From, err = textTime(q, "from"); err != nil {
		return o, err
	}
	if o.To, err = textTime(q, "to"); err != nil {
		return o, err
	}
	o.Project = q.Get("project")
	if v := q.Get("sandbox"); v != "" {
		if o.Sandbox, err = carrel.ParseID(v); err != nil {
			return o, invalid("sandbox", "%q is not a sandbox ID", clip(v))
		}
	}
	return o, nil
}
