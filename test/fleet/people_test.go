package fleet

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// people makes a person of a project at the first front, who signs in at the second one. The session
// is good at both, for the project's sandboxes, until the person is disabled.
func (f *fleetOf) people(project string, own, foreign carrel.ID) {
	t := f.t
	t.Helper()
	ctx := t.Context()
	kim, err := f.Persons().CreatePerson(ctx, carrel.NewPerson{Name: "kim"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Persons().SetMember(ctx, carrel.Member{Project: project, Person: "kim"}); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar} // cookies don't tell ports apart: both fronts are one host to it
	do := func(front int, path string, form url.Values) (int, string, error) {
		method, body := http.MethodGet, io.Reader(nil)
		if form != nil {
			method, body = http.MethodPost, strings.NewReader(form.Encode())
		}
		r, err := http.NewRequestWithContext(ctx, method, f.fronts[front].URL()+path, body)
		if err != nil {
			return 0, "", err
		}
		if form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", f.fronts[front].URL())
		}
		resp, err := browser.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	testenv.EventuallyNil(t, "the other front knows the person", func() error { // before, an attempt would count as wrong
		_, err := f.at(1).Persons().GetPerson(ctx, "kim")
		return err
	})
	if code, _, err := do(1, "/login", url.Values{"name": {"kim"}, "password": {"wrong"}}); err != nil || code != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d %v", code, err)
	}
	testenv.EventuallyNil(t, "the person signs in at the other front", func() error {
		code, text, err := do(1, "/login", url.Values{"name": {"kim"}, "password": {kim.NewPassword}})
		if err == nil && (code != http.StatusOK || !strings.Contains(text, "<b>kim</b>")) {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
	for i := range f.fronts {
		testenv.EventuallyNil(t, "the session is good at both fronts", func() error {
			code, text, err := do(i, "/carrel/v1/whoami", nil)
			if err == nil && (code != http.StatusOK || !strings.Contains(text, `"project":"`+project+`"`)) {
				err = fmt.Errorf("front %d: %d %s", i, code, text)
			}
			return err
		})
		if code, text, err := do(i, "/console/session", nil); err != nil || code != http.StatusOK || !strings.Contains(text, `"person":"kim","form":"`) {
			t.Errorf("front %d: the console's session: %d %s %v", i, code, text, err)
		}
		if code, text, err := do(i, "/console/", nil); err != nil || code != http.StatusOK || !strings.Contains(text, "/console/assets/") {
			t.Errorf("front %d: the console: %d %s %v", i, code, text, err)
		}
		if code, text, err := do(i, "/carrel/v1/sandboxes/"+string(own), nil); err != nil || code != http.StatusOK {
			t.Errorf("front %d: the own project's sandbox: %d %s %v", i, code, text, err)
		}
		if code, _, err := do(i, "/carrel/v1/sandboxes/"+string(foreign), nil); err != nil || code != http.StatusNotFound {
			t.Errorf("front %d: another project's sandbox: %d %v", i, code, err)
		}
	}
	yes := true
	if _, err := f.Persons().UpdatePerson(ctx, "kim", carrel.PersonUpdate{Disabled: &yes}); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "a disabled person gets in nowhere", func() error {
		for i := range f.fronts {
			if code, _, err := do(i, "/carrel/v1/whoami", nil); err != nil || code != http.StatusUnauthorized {
				return fmt.Errorf("front %d: %d %v", i, code, err)
			}
		}
		return nil
	})
}

// trails looks for what the key of a project, its SSH key and its person did at the second front, in
// that front's audit trail.
func (f *fleetOf) trails(box carrel.ID) {
	t := f.t
	t.Helper()
	front := f.at(1)
	who := map[string]bool{}
	for r, err := range front.Trail(t.Context(), carrel.TrailOptions{Project: "p", Limit: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Target == string(box) || strings.Contains(r.Op, "login") || r.Person != "" {
			who[r.Key] = true
		}
	}
	for _, key := range []string{"k", "ssh:laptop", "kim"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(who)), func(has string) bool { return strings.Contains(has, key) }) {
			t.Errorf("the trail has nothing of %s: %v", key, who)
		}
	}
	report, err := front.VerifyTrail(t.Context())
	if err != nil || !report.OK || report.Records == 0 {
		t.Errorf("%+v %v", report, err)
	}
}
