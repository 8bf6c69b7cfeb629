package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestTemplatePages reads E2B's second list of templates page by page, while one goes away.
func TestTemplatePages(t *testing.T) {
	f := &fake{}
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 7 {
		f.templates = append(f.templates, carrel.Template{ID: fmt.Sprint("tpl", i),
			Name:    fmt.Sprint("t", i),
			Created: born.Add(time.Duration(i/2) * time.Hour)})
	}
	srv := httptest.NewServer(New(Options{Service: f, Callers: adminKey(testKey)}))
	defer srv.Close()
	var seen []string
	for next, n := "", 0; n == 0 || next != ""; n++ {
		resp, body := call(t, srv, "GET", "/v2/templates?limit=3&nextToken="+next, "")
		for i := range 7 {
			if name := fmt.Sprint("t", i); strings.Contains(body, `"names":["`+name+`"]`) {
				seen = append(seen, name)
			}
		}
		if next = resp.Header.Get("X-Next-Token"); n == 0 {
			f.templates = append(f.templates[:5:5], f.templates[6:]...) // the last of this page
		}
		if resp.StatusCode != 200 || n > 3 {
			t.Fatal(n, resp.Status, body)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%v", seen)
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=101": "limit",
		"nextToken=x": "nextToken", "nextToken=x_y": "nextToken"} {
		if resp, body := call(t, srv, "GET", "/v2/templates?"+query, ""); resp.StatusCode != 400 ||
			!strings.Contains(body, `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
	if resp, body := call(t, srv, "GET", "/v2/templates?teamID=somebody",
		""); resp.StatusCode != 403 {
		t.Errorf("another team: %d %s", resp.StatusCode, body)
	}
}

// tagged is a service with the tags and builds of one template.
type tagged struct {
	*fake
	tags   []carrel.TemplateTag
	builds []carrel.Build
}

func (s tagged) TemplateTags(context.Context, string) ([]carrel.TemplateTag, error) {
	return s.tags, nil
}

func (s tagged) ListBuilds(context.Context, carrel.BuildListOptions) ([]carrel.Build, error) {
	return s.builds, nil
}

// TestTagViews reads the views of a template's tags.
func TestTagViews(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 1, 1, h, 0, 0, 0, time.UTC) }
	s := tagged{fake: &fake{}}
	for i, tag := range []string{"default", "v1", "v2"} {
		s.tags = append(s.tags, carrel.TemplateTag{Tag: tag, TemplateID: "tpl",
			BuildID: fmt.Sprint("b", i), Created: at(10 + i)})
	}
	for i := range 4 { // b3 had v1 before b1 got it
		b := carrel.Build{ID: fmt.Sprint("b", i), TemplateID: "tpl", State: carrel.BuildReady,
			Created: at(5), Ended: at(10 + i)}
		if i == 3 {
			b.Tags, b.Ended = []string{"v1"}, at(6)
		}
		s.builds = append(s.builds, b)
	}
	srv := httptest.NewServer(New(Options{Service: s, Callers: adminKey(testKey)}))
	defer srv.Close()
	get := func(path string) string {
		t.Helper()
		resp, body := call(t, srv, "GET", "/templates/tpl/tags/"+path, "")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
		return body
	}
	for path, want := range map[string]string{
		"count":                             `{"total":3}`,
		"exists?tag=latest":                 `{"exists":true,"normalizedTag":"default"}`,
		"exists?tag=V2":                     `{"exists":true,"normalizedTag":"v2"}`,
		"exists?tag=v3":                     `{"exists":false,"normalizedTag":"v3"}`,
		"v3/assignments":                    `{"data":[],"nextCursor":null}`,
		"groups?search=zzz":                 `{"tags":[],"nextCursor":null}`,
		"groups?tagsLimit=1":                `"nextCursor":"v2"`,
		"groups?tagsCursor=v2":              `"tags":[{"tag":"v1"`,
		"groups?sort=name_asc":              `{"tags":[{"tag":"default"`,
		"groups?assignmentLimit=1":          `"hasMore":true`,
		"v1/assignments?limit=1":            `"buildID":"b1"`,
		"groups?search=V1":                  `"buildID":"b3"`,
		"groups?sort=latest_asc":            `{"tags":[{"tag":"default"`,
		"groups?sort=name_desc&tagsLimit=2": `"nextCursor":"v1"`,
	} {
		if body := get(path); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
	first := get("v1/assignments?limit=1")
	_, cursor, _ := strings.Cut(first, `"nextCursor":"`)
	if rest := get("v1/assignments?cursor=" + strings.Trim(cursor,
		"\"}\n")); !strings.Contains(rest, `"buildID":"b3"`) || strings.Contains(rest, `"b1"`) {
		t.Errorf("after %s: %s", first, rest)
	}
	for _, path := range []string{"groups?tagsLimit=0", "groups?assignmentLimit=x",
		"groups?sort=up", "groups?tagsCursor=gone",
		"v1/assignments?limit=101", "v1/assignments?cursor=gone", "exists"} {
		if resp, body := call(t, srv, "GET", "/templates/tpl/tags/"+path,
			""); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// TestForkV2 checks how the second fork differs from the first, and what creation makes of an
// idempotency key.
func TestForkV2(t *testing.T) {
	var got carrel.ForkOptions
	var key string
	f := &fake{fork: func(_ carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
		got = o
		return nil, nil
	}, create: func(o carrel.CreateOptions) (carrel.Sandbox, error) {
		key = o.IdempotencyKey
		return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: carrel.Conflict,
			Field: "idempotencyKey", Err: carrel.ErrKeyReused}
	}}
	srv := httptest.NewServer(New(Options{Service: f, Callers: adminKey(testKey)}))
	defer srv.Close()
	for body, want := range map[string]carrel.ForkOptions{
		"":                             {Count: 1, Timeout: 300 * time.Second},
		`{"memory":true}`:              {Count: 1, Timeout: 300 * time.Second},
		`{"memory":false,"count":500}`: {Count: 500, Timeout: 300 * time.Second, FilesOnly: true},
		`{"timeout":7}`:                {Count: 1, Timeout: 7 * time.Second},
	} {
		if resp, text := call(t, srv, "POST", "/v2/sandboxes/"+boxID+"/fork",
			body); resp.StatusCode != 201 || got != want {
			t.Errorf("%s: %d %s %+v", body, resp.StatusCode, text, got)
		}
	}
	for _, body := range []string{`{"count":0}`, `{"count":10001}`, `{"timeout":0}`,
		`{"memory":"no"}`} {
		if resp, text := call(t, srv, "POST", "/v2/sandboxes/"+boxID+"/fork",
			body); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v2/sandboxes",
		strings.NewReader(`{"templateID":"base"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", testKey)
	req.Header.Set("Idempotency-Key", "one-1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 409 || key != "one-1" {
		t.Errorf("%s, key %q", resp.Status, key)
	}
}

// untaggable is a template without a default tag.
type untaggable struct {
	tagged
	untagged *[]string
}

func (s untaggable) GetTemplate(_ context.Context, text string) (carrel.Template, error) {
	if text != "tpl:v2" {
		return carrel.Template{}, &carrel.Error{Kind: carrel.NotFound, Err: errors.New("no tag default")}
	}
	return carrel.Template{ID: "image", Name: "web", Tag: "v2", Of: "tpl"}, nil
}

func (s untaggable) DeleteTemplate(context.Context, string) error {
	return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("no tag default")}
}

func (s untaggable) UntagTemplate(_ context.Context, _ string, tags []string) error {
	*s.untagged = tags
	return nil
}

// TestTemplateOfTags shows and removes a template that has tags and no default tag.
func TestTemplateOfTags(t *testing.T) {
	s := untaggable{tagged: tagged{fake: &fake{}}, untagged: new([]string)}
	for i, tag := range []string{"v1", "v2"} {
		s.tags = append(s.tags, carrel.TemplateTag{Tag: tag, TemplateID: "tpl",
			Created: time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)})
	}
	srv := httptest.NewServer(New(Options{Service: s, Callers: adminKey(testKey)}))
	defer srv.Close()
	resp, body := call(t, srv, "GET", "/templates/tpl", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"templateID":"tpl"`) {
		t.Errorf("get: %d %s", resp.StatusCode, body)
	}
	resp, body = call(t, srv, "DELETE", "/templates/tpl", "")
	if resp.StatusCode != http.StatusNoContent || len(*s.untagged) != 2 {
		t.Errorf("delete: %d %s, removed the tags %v", resp.StatusCode, body, *s.untagged)
	}
}
