package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxPage is the most sandboxes on one page.
const maxPage = 100

// listV1 answers with all running sandboxes at once, as E2B's first list does.
func (s *Server) listV1(w http.ResponseWriter, r *http.Request) error {
	metadata, err := ParseMetadataFilter(r.URL.Query().Get("metadata"))
	if err != nil {
		return err
	}
	out := []listedBody{}
	opts := carrel.ListOptions{Metadata: metadata, States: []carrel.State{carrel.Running}, Limit: maxPage}
	for {
		page, err := s.opts.Service.List(r.Context(), opts)
		if err != nil {
			return err
		}
		for _, sb := range page.Sandboxes {
			out = append(out, toListed(sb))
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			break
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) listV2(w http.ResponseWriter, r *http.Request) error {
	opts, err := listOptions(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := s.opts.Service.List(r.Context(), opts)
	if err != nil {
		return err
	}
	out := make([]listedBody, 0, len(page.Sandboxes))
	for _, sb := range page.Sandboxes {
		out = append(out, toListed(sb))
	}
	if page.Next != "" {
		w.Header().Set("X-Next-Token", page.Next)
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(page.Running))
	writeJSON(w, http.StatusOK, out)
	return nil
}

// listOptions reads the query of E2B's second list.
func listOptions(q url.Values) (carrel.ListOptions, error) {
	opts := carrel.ListOptions{Limit: maxPage, Cursor: q.Get("nextToken"), Template: q.Get("template")}
	var err error
	if opts.Metadata, err = ParseMetadataFilter(q.Get("metadata")); err != nil {
		return opts, err
	}
	if opts.States, err = states(q["state"]); err != nil {
		return opts, err
	}
	if opts.Template != "" {
		if err := checkTemplate("template", opts.Template); err != nil {
			return opts, err
		}
	}
	if v := q.Get("startedAfter"); v != "" {
		if opts.StartedAfter, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return opts, invalid("startedAfter", "%q is not an RFC 3339 time", clip(v))
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		opts.OldestFirst = true
	default:
		return opts, invalid("order", "%q is neither asc nor desc", clip(q.Get("order")))
	}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxPage {
			return opts, invalid("limit", "%q is not a whole number from 1 to %d", clip(v), maxPage)
		}
		opts.Limit = n
	}
	if len(opts.Cursor) > 1024 {
		return opts, invalid("nextToken", "longer than 1024 characters")
	}
	return opts, nil
}

// states reads state=running,paused. The parameter may occur several times.
func states(values []string) ([]carrel.State, error) {
	var out []carrel.State
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			switch name {
			case "running":
				out = append(out, carrel.Running)
			case "paused":
				out = append(out, pausedStates...)
			case "":
			default:
				return nil, invalid("state", "%q is neither running nor paused", clip(name))
			}
		}
	}
	if len(out) == 0 {
		out = append([]carrel.State{carrel.Running}, pausedStates...)
	}
	return out, nil
}

// ParseMetadataFilter reads E2B's metadata filter from a decoded query. The filter is encoded twice
// more: the whole text, and inside it each key and each value. The empty text filters nothing.
func ParseMetadataFilter(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	whole, err := url.QueryUnescape(text)
	if err != nil {
		return nil, invalid("metadata", "%s", err)
	}
	out := map[string]string{}
	for pair := range strings.SplitSeq(whole, "&") {
		parts := strings.Split(pair, "=")
		if len(parts) != 2 {
			return nil, invalid("metadata", "%q is not one key=value pair", clip(pair))
		}
		key, err := url.QueryUnescape(parts[0])
		if err != nil {
			return nil, invalid("metadata", "%s", err)
		}
		value, err := url.QueryUnescape(parts[1])
		if err != nil {
			return nil, invalid("metadata", "%s", err)
		}
		out[key] = value
	}
	return out, nil
}
