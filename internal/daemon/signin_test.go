package daemon

import (
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
	"golang.org/x/oauth2"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/signin"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// browser is a person's browser: it keeps cookies and follows redirects.
type browser struct {
	*http.Client
	t    testing.TB
	base string
}

func newBrowser(t testing.TB, base string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{&http.Client{Jar: jar, Transport: &http.Transport{}}, t, base}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// page is an answer, read to its end.
type page struct {
	*http.Response
	text string
}

func (b *browser) do(method, path string, form url.Values, header ...string) page {
	b.t.Helper()
	if !strings.Contains(path, "://") {
		path = b.base + path
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.base)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{resp, string(raw)}
}

var hiddenToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token returns the form token of a page.
func (p page) token() string {
	if m := hiddenToken.FindStringSubmatch(p.text); m != nil {
		return m[1]
	}
	return ""
}

// signIn signs a person in with a password.
func (b *browser) signIn(name, password, next string) page {
	b.t.Helper()
	return b.do("POST", "/login", url.Values{"name": {name}, "password": {password}, "next": {next}})
}

// secret returns the session's secret in the browser's cookies.
func (b *browser) secret() string {
	u, _ := url.Parse(b.base)
	for _, c := range b.Jar.Cookies(u) {
		if c.Name == "carrel_session" {
			return c.Value
		}
	}
	return ""
}

// village is a daemon with a project and people.
type village struct {
	*running
	admin *client.Client
	kim   carrel.IssuedPerson
}

func newVillage(t *testing.T, change func(*config.Config)) village {
	t.Helper()
	pause := devicePause
	devicePause = time.Second
	t.Cleanup(func() { devicePause = pause })
	cfg := testConfig(t)
	if change != nil {
		change(&cfg)
	}
	d := run(t, cfg, Options{Drivers: []driver.Driver{sim.New(sim.Options{})}, KillOnClose: true})
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	v := village{running: d, admin: svc.(*client.Client)}
	ctx := t.Context()
	if _, err = v.admin.People().CreateProject(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	if v.kim, err = v.admin.Persons().CreatePerson(ctx, carrel.NewPerson{Name: "kim"}); err != nil {
		t.Fatal(err)
	}
	_, err = v.admin.Persons().SetMember(ctx, carrel.Member{Project: "web", Person: "kim"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSignInPages signs a person in and out, as a browser does, and attacks the pages.
func TestSignInPages(t *testing.T) {
	v := newVillage(t, nil)
	b := newBrowser(t, v.URL())
	form := b.do("GET", "/login?next=/device", nil)
	csp := form.Header.Get("Content-Security-Policy")
	if form.StatusCode != 200 || !strings.Contains(form.text, `value="/device"`) || strings.Contains(form.text, "<script") ||
		!strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") ||
		form.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Fatalf("%d %v\n%s", form.StatusCode, form.Header, form.text)
	}
	wrong := b.signIn("kim", "wrong", "/")
	nobody := b.signIn("nobody", "wrong", "/")
	if wrong.StatusCode != 401 || wrong.text != nobody.text || b.secret() != "" {
		t.Errorf("%d %s\nand of nobody %d %s", wrong.StatusCode, wrong.text, nobody.StatusCode, nobody.text)
	}
	for _, evil := range []string{"https://evil.example.com/", "//evil.example.com", "/\\evil.example.com"} {
		if p := newBrowser(t, v.URL()).signIn("kim", v.kim.NewPassword, evil); p.Request.URL.Host != v.listener.Addr().String() {
			t.Errorf("the sign-in leads to %v", p.Request.URL)
		}
	}
	if p := b.do("POST", "/login", url.Values{"name": {"kim"}, "password": {v.kim.NewPassword}},
		"Origin", "https://evil.example.com"); p.StatusCode != 403 || b.secret() != "" {
		t.Errorf("a form of another site signs in: %d", p.StatusCode)
	}
	// An attacker puts a secret that he knows into the browser.
	u, _ := url.Parse(v.URL())
	b.Jar.SetCookies(u, []*http.Cookie{{Name: "carrel_session", Value: "known-to-the-attacker", Path: "/"}})
	home := b.signIn("kim", v.kim.NewPassword, "")
	first := b.secret()
	if home.StatusCode != 200 || !strings.Contains(home.text, "<b>kim</b>") || first == "known-to-the-attacker" || len(first) < 22 {
		t.Fatalf("%d %s, %q", home.StatusCode, home.text, first)
	}
	again := b.signIn("kim", v.kim.NewPassword, "")
	if b.secret() == first {
		t.Error("two sign-ins have one secret")
	}
	old := newBrowser(t, v.URL())
	old.Jar.SetCookies(u, []*http.Cookie{{Name: "carrel_session", Value: first, Path: "/"}})
	if p := old.do("GET", "/carrel/v1/whoami", nil); p.StatusCode != 401 {
		t.Errorf("the session from before goes on: %d", p.StatusCode)
	}

	// The API takes the session, and from our own pages only.
	box := `{"templateID":"base"}`
	if p := b.do("GET", "/carrel/v1/whoami", nil); p.StatusCode != 200 || !strings.Contains(p.text, `"project":"web"`) {
		t.Errorf("%d %s", p.StatusCode, p.text)
	}
	for name, c := range map[string]struct {
		header []string
		want   int
	}{
		"without a form token": {[]string{"Origin", v.URL()}, 403},
		"of another site":      {[]string{"Origin", "https://evil.example.com", "Carrel-Form", again.token()}, 403},
		"of a sandbox's page":  {[]string{"Sec-Fetch-Site", "same-site", "Carrel-Form", again.token()}, 403},
		"with another's token": {[]string{"Carrel-Form", home.token()}, 403},
		"of our own":           {[]string{"Origin", v.URL(), "Carrel-Form", again.token()}, 201},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", v.URL()+"/sandboxes", strings.NewReader(box))
		for i := 0; i < len(c.header); i += 2 {
			req.Header.Set(c.header[i], c.header[i+1])
		}
		resp, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("a request %s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
	if p := b.do("POST", "/logout", url.Values{"token": {"x"}}); p.StatusCode != 403 {
		t.Errorf("a wrong token signs out: %d", p.StatusCode)
	}
	kept := b.secret()
	if p := b.do("POST", "/logout", url.Values{"token": {again.token()}}); p.StatusCode != 200 || b.secret() != "" {
		t.Errorf("%d %q", p.StatusCode, b.secret())
	}
	old.Jar.SetCookies(u, []*http.Cookie{{Name: "carrel_session", Value: kept, Path: "/"}})
	if p := old.do("GET", "/carrel/v1/whoami", nil); p.StatusCode != 401 {
		t.Errorf("a stolen cookie works after the sign-out: %d", p.StatusCode)
	}
}

// TestDisabledPerson follows events with a cookie and with a token, and cuts both.
func TestDisabledPerson(t *testing.T) {
	v := newVillage(t, nil)
	svc, err := client.New(v.URL(), v.Key(), client.WithProject("web"))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	if _, err := svc.Create(t.Context(), carrel.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, v.URL())
	b.signIn("kim", v.kim.NewPassword, "")
	req, _ := http.NewRequestWithContext(t.Context(), "GET", v.URL()+"/carrel/v1/events?after=1", nil)
	stream, err := b.Do(req)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(err, stream)
	}
	defer stream.Body.Close()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, stream.Body); ended <- err }()
	yes := true
	_, err = v.admin.Persons().UpdatePerson(t.Context(), "kim", carrel.PersonUpdate{Disabled: &yes})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream of a disabled person goes on")
	}
	if p := b.do("GET", "/carrel/v1/whoami", nil); p.StatusCode != 401 {
		t.Errorf("a disabled person's cookie: %d", p.StatusCode)
	}
	if p := b.signIn("kim", v.kim.NewPassword, ""); p.StatusCode != 401 {
		t.Errorf("a disabled person signs in: %d", p.StatusCode)
	}
}

// deviceConfig is the daemon as an authorization server.
func deviceConfig(base string) *oauth2.Config {
	return &oauth2.Config{ClientID: "carrel", Endpoint: oauth2.Endpoint{DeviceAuthURL: base + signin.DeviceAuthPath,
		TokenURL: base + signin.TokenPath, AuthStyle: oauth2.AuthStyleInParams}}
}

// TestDeviceFlow logs a command line in with a library's client, and the person in a browser.
func TestDeviceFlow(t *testing.T) {
	v := newVillage(t, nil)
	conf := deviceConfig(v.URL())
	dev, err := conf.DeviceAuth(t.Context(), oauth2.SetAuthURLParam("device_name", "<b>a\nlaptop"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, v.URL())
	p := b.do("GET", strings.TrimPrefix(dev.VerificationURIComplete, v.URL()), nil)
	if !strings.HasPrefix(p.Request.URL.Path, "/login") {
		t.Fatalf("nobody is signed in: %v", p.Request.URL)
	}
	p = b.signIn("kim", v.kim.NewPassword, p.Request.URL.Query().Get("next"))
	if !strings.Contains(p.text, `value="`+dev.UserCode+`"`) {
		t.Fatalf("%s", p.text)
	}
	got := make(chan *oauth2.Token, 1)
	go func() {
		token, err := conf.DeviceAccessToken(t.Context(), dev)
		if err != nil {
			t.Error(err)
		}
		got <- token
	}()
	form := url.Values{"token": {p.token()}, "code": {strings.ToLower(dev.UserCode)}}
	if x := b.do("POST", "/device", url.Values{"code": form["code"]}); x.StatusCode != 403 {
		t.Errorf("without the form token: %d", x.StatusCode)
	}
	p = b.do("POST", "/device", form)
	if p.StatusCode != 200 || !strings.Contains(p.text, "&lt;b&gt;alaptop") || !strings.Contains(p.text, "127.0.0.1") {
		t.Fatalf("%d %s", p.StatusCode, p.text)
	}
	form.Set("answer", "yes")
	if p = b.do("POST", "/device/confirm", form); p.StatusCode != 200 {
		t.Fatalf("%d %s", p.StatusCode, p.text)
	}
	token := <-got
	if token == nil || time.Until(token.Expiry) < time.Hour || !strings.HasPrefix(token.AccessToken, "e2b_") {
		t.Fatalf("%+v", token)
	}
	svc, err := client.New(v.URL(), token.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil || sb.Project != "web" {
		t.Errorf("%+v %v", sb.Project, err)
	}
	// The trail names the person.
	named := false
	for r, err := range v.admin.Trail(t.Context(), carrel.TrailOptions{Project: "web"}) {
		if err != nil {
			t.Fatal(err)
		}
		named = named || r.Person == v.kim.ID && r.Key == "person:kim" && strings.Contains(r.Op, "sandboxes")
	}
	if !named {
		t.Error("the trail does not name the person")
	}
	if _, err := conf.DeviceAccessToken(t.Context(), dev); oauthCode(err) != "invalid_grant" {
		t.Errorf("a code that was used: %v", err)
	}
	b.do("POST", signin.RevokePath, url.Values{"token": {token.AccessToken}})
	if _, err := svc.List(t.Context(), carrel.ListOptions{}); carrel.KindOf(err) != carrel.Unauthenticated {
		t.Errorf("after the logout: %v", err)
	}
}

func oauthCode(err error) string {
	if re, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return re.ErrorCode
	}
	return ""
}

// TestDeviceAttacks asks too often, guesses codes, refuses, and confirms twice.
func TestDeviceAttacks(t *testing.T) {
	v := newVillage(t, nil)
	conf := deviceConfig(v.URL())
	dev, err := conf.DeviceAuth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(code string) string {
		t.Helper()
		p := newBrowser(t, v.URL()).do("POST", signin.TokenPath, url.Values{"device_code": {code},
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "client_id": {"carrel"}})
		m := regexp.MustCompile(`"error":"([a-z_]+)"`).FindStringSubmatch(p.text)
		if m == nil {
			t.Fatalf("%d %s", p.StatusCode, p.text)
		}
		return m[1]
	}
	if one, two := ask(dev.DeviceCode), ask(dev.DeviceCode); one != "authorization_pending" || two != "slow_down" {
		t.Errorf("%s, then %s", one, two)
	}
	if got := ask(dev.UserCode); got != "invalid_grant" {
		t.Errorf("the user code as a device code: %s", got)
	}
	b := newBrowser(t, v.URL())
	b.signIn("kim", v.kim.NewPassword, "")
	token := b.do("GET", "/device", nil).token()
	refused := b.do("POST", "/device/confirm", url.Values{"token": {token}, "code": {dev.UserCode}, "answer": {"no"}})
	if refused.StatusCode != 200 || ask(dev.DeviceCode) != "access_denied" {
		t.Errorf("%d %s", refused.StatusCode, refused.text)
	}
	statuses := map[int]int{}
	for range 15 {
		statuses[b.do("POST", "/device", url.Values{"token": {token}, "code": {"BCDF-GHJK"}}).StatusCode]++
	}
	if statuses[429] < 3 || statuses[400] < 5 {
		t.Errorf("guesses: %v", statuses)
	}
	limited := 0
	for range 40 {
		if p := b.do("POST", signin.DeviceAuthPath, url.Values{"client_id": {"x"}}); p.StatusCode == 429 {
			limited++
		}
	}
	if limited < 10 {
		t.Errorf("only %d of 40 logins are refused", limited)
	}
}

// TestProvider signs people in at an identity provider of a library.
func TestProvider(t *testing.T) {
	idp, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idp.Shutdown() }()
	v := newVillage(t, func(c *config.Config) {
		c.SignIn.Issuer, c.SignIn.ClientID = idp.Issuer(), idp.ClientID
		c.SignIn.SecretFile = filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(c.SignIn.SecretFile, []byte(idp.ClientSecret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.SignIn.Roles, c.SignIn.Scopes = []string{"engineering=web:admin"}, []string{"groups"}
	})
	user := func(subject, email string, verified bool, groups ...string) *mockoidc.MockUser {
		return &mockoidc.MockUser{Subject: subject, Email: email, EmailVerified: verified, Groups: groups}
	}
	in := func(b *browser, u mockoidc.User) page {
		idp.QueueUser(u)
		return b.do("GET", "/login/provider?next=/device", nil)
	}
	b := newBrowser(t, v.URL())
	if p := b.do("GET", "/login", nil); !strings.Contains(p.text, `href="/login/provider?`) {
		t.Errorf("%s", p.text)
	}
	p := in(b, user("1", "zoe@example.com", true, "engineering", "other"))
	if p.StatusCode != 200 || p.Request.URL.Path != "/device" || !strings.Contains(p.text, "<b>zoe@example.com</b>") {
		t.Fatalf("%d %v %s", p.StatusCode, p.Request.URL, p.text)
	}
	if p := b.do("GET", "/carrel/v1/whoami", nil); !strings.Contains(p.text, `"role":"owner"`) {
		t.Errorf("%s", p.text)
	}
	for name, u := range map[string]*mockoidc.MockUser{
		"a member of nothing":                 user("2", "stranger@example.com", true),
		"an address that nobody verified":     user("3", "zoe@example.com", false),
		"another subject with her address":    user("4", "zoe@example.com", true, "engineering"),
		"somebody with a local person's name": user("5", "kim", true, "engineering"),
	} {
		other := newBrowser(t, v.URL())
		if p := in(other, u); p.StatusCode != 403 || other.secret() != "" {
			t.Errorf("%s: %d %s", name, p.StatusCode, p.text)
		}
	}
	// She leaves the group, and signs in again elsewhere: what she opened ends.
	if p := in(newBrowser(t, v.URL()), user("1", "zoe@example.com", true)); p.StatusCode != 200 {
		t.Errorf("%d %s", p.StatusCode, p.text)
	}
	testenv.Eventually(t, "the group's right is gone", func() bool {
		return strings.Contains(b.do("GET", "/carrel/v1/whoami", nil).text, `"role":"person"`)
	})
	testJourneys(t, v, idp, user("1", "zoe@example.com", true))
}

// testJourneys mixes up the answers that belong to browsers.
func testJourneys(t *testing.T, v village, idp *mockoidc.MockOIDC, u mockoidc.User) {
	t.Helper()
	stop := func(b *browser) *browser { // stops at the provider's answer
		b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if r.URL.Path == signin.CallbackPath {
				return http.ErrUseLastResponse
			}
			return nil
		}
		return b
	}
	begin := func() (*browser, string) {
		idp.QueueUser(u)
		b := stop(newBrowser(t, v.URL()))
		return b, b.do("GET", "/login/provider", nil).Header.Get("Location")
	}
	mine, answer := begin()
	victim, other := begin()
	if p := newBrowser(t, v.URL()).do("GET", answer, nil); p.StatusCode != 403 {
		t.Errorf("an answer in a browser that asked nothing: %d", p.StatusCode)
	}
	if p := victim.do("GET", answer, nil); p.StatusCode != 403 || victim.secret() != "" {
		t.Errorf("an answer in the browser of another: %d", p.StatusCode)
	}
	if p := victim.do("GET", other, nil); p.StatusCode != 403 {
		t.Errorf("a journey has two answers: %d", p.StatusCode)
	}
	swapped, err := url.Parse(answer)
	if err != nil {
		t.Fatal(err)
	}
	q := swapped.Query()
	q.Set("iss", "https://evil.example.com")
	swapped.RawQuery = q.Encode()
	third, theirs := begin()
	_ = theirs
	if p := third.do("GET", swapped.String(), nil); p.StatusCode != 403 {
		t.Errorf("another issuer's answer: %d", p.StatusCode)
	}
	if p := mine.do("GET", answer, nil); p.StatusCode != 200 || mine.secret() == "" {
		t.Errorf("the right answer: %d %s", p.StatusCode, p.text)
	}
	if p := mine.do("GET", answer, nil); p.StatusCode != 403 {
		t.Errorf("a replayed answer: %d", p.StatusCode)
	}
	idp.QueueError(&mockoidc.ServerError{Code: http.StatusInternalServerError, Error: "server_error"})
	b := newBrowser(t, v.URL())
	if p := b.do("GET", "/login/provider", nil); p.StatusCode < 400 || b.secret() != "" {
		t.Errorf("an error of the provider: %d", p.StatusCode)
	}
}

// openPages are the routes of the sign-in that need no session, and what they answer without one. A
// new route fails TestPagesNeedSessions until it needs a session or is here.
var openPages = map[string]int{
	"GET /login": 200, "POST /login": 401, "GET /login/provider": 404, "GET /login/callback": 403,
	"POST " + signin.DeviceAuthPath: 400, "POST " + signin.TokenPath: 400, "POST " + signin.RevokePath: 200,
}

// TestPagesNeedSessions asks each route of the sign-in without a session, with a session that is
// none, with a key, and from a page of another origin.
func TestPagesNeedSessions(t *testing.T) {
	v := newVillage(t, nil)
	own := newBrowser(t, v.URL())
	own.signIn("kim", v.kim.NewPassword, "")
	token := own.do("GET", "/device", nil).token()
	for _, pattern := range signin.New(signin.Options{}).Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		want, open := openPages[pattern]
		if !open && method == "POST" {
			want = 401
		}
		if !open && method == "GET" {
			want = 303 // to the sign-in
		}
		for name, header := range map[string][]string{
			"nothing":                 nil,
			"a session that is none":  {"Cookie", "carrel_session=" + strings.Repeat("A", 43)},
			"the daemon's key":        {"X-Api-Key", v.Key()},
			"the key in the cookie":   {"Cookie", "carrel_session=" + v.Key()},
			"the person's form token": {"Carrel-Form", token},
		} {
			b := newBrowser(t, v.URL())
			b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			form := url.Values{"token": {token}}
			if method == "GET" {
				form = nil
			}
			if p := b.do(method, path, form, header...); p.StatusCode != want {
				t.Errorf("%s with %s: %d, want %d", pattern, name, p.StatusCode, want)
			}
		}
		for _, header := range [][]string{{"Origin", "https://evil.example.com"}, {"Origin", "null"},
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
			if p := own.do(method, path, url.Values{"token": {token}}, header...); method == "POST" && p.StatusCode != 403 {
				t.Errorf("%s of a page with %v: %d", pattern, header, p.StatusCode)
			}
		}
	}
}
