package fleet

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/signin"
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
	f.device(project, do)
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

// device logs a command line in that never asks the front again where it began. Its person confirms it at
// one front, and each of its codes is good once.
func (f *fleetOf) device(project string, do func(front int, path string, form url.Values) (int, string, error)) {
	t := f.t
	t.Helper()
	ask := func(front int, path string, form url.Values) (out struct {
		Device string `json:"device_code"`
		User   string `json:"user_code"`
		Token  string `json:"access_token"`
		Error  string `json:"error"`
	}) {
		t.Helper()
		resp, err := http.PostForm(f.fronts[front].URL()+path, form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	began := ask(0, signin.DeviceAuthPath, url.Values{"client_id": {"carrel"}, "device_name": {"laptop"}})
	if out := f.server.Exec(t, f.database(), "SELECT l.*::text FROM carrel.logins l"); out == "" || strings.Contains(out, strings.ReplaceAll(began.User, "-", "")) || strings.Contains(out, began.Device) {
		t.Errorf("what is kept of the codes: %q", out)
	}
	_, form, err := do(1, signin.DevicePath, nil)
	_, rest, found := strings.Cut(form, `name="token" value="`)
	token, _, _ := strings.Cut(rest, `"`)
	if err != nil || !found {
		t.Fatalf("the form: %s %v", form, err)
	}
	confirm := func(answer string) (int, string) {
		t.Helper()
		code, text, err := do(1, signin.DevicePath+"/confirm", url.Values{"token": {html.UnescapeString(token)}, "code": {began.User}, "answer": {answer}})
		if err != nil {
			t.Fatal(err)
		}
		return code, text
	}
	if code, text := confirm("yes"); code != http.StatusOK || !strings.Contains(text, "is logged in") {
		t.Fatalf("confirm: %d %s", code, text)
	}
	if code, text := confirm("no"); code != http.StatusBadRequest { // the first answer counts
		t.Errorf("answer again: %d %s", code, text)
	}
	grant := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {began.Device}}
	got := ask(1, signin.TokenPath, grant)
	if got.Token == "" {
		t.Fatalf("no token: %+v", got)
	}
	if again := ask(0, signin.TokenPath, grant); again.Token != "" || again.Error != "invalid_grant" {
		t.Errorf("the code is good twice: %+v", again)
	}
	for i := range f.fronts {
		testenv.EventuallyNil(t, "the token is good at both fronts", func() error {
			svc, err := client.New(f.fronts[i].URL(), got.Token, client.WithProject(project))
			if err == nil {
				_, err = svc.List(t.Context(), carrel.ListOptions{})
			}
			return err
		})
	}
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
