package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/config"
)

// login is a person's token for a daemon.
type login struct {
	URL     string    `json:"url"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires,omitzero"`
}

// logins are the tokens of this user. The newest is the last. They are in a file of their own, which
// nobody else may read.
type logins struct {
	file string
	All  []login `json:"logins"`
}

// loginTimeout bounds one request of the login.
const loginTimeout = 30 * time.Second

// loginsFile is the file of the user's logins.
func loginsFile() string { return filepath.Join(config.UserConfig(os.Getenv), "logins.json") }

// readLogins reads the logins. A missing file is none.
func readLogins() (*logins, error) {
	l := &logins{file: loginsFile()}
	raw, err := os.ReadFile(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, l)
	}
	if err != nil {
		return nil, &carrel.Error{Op: "read logins", Kind: carrel.Invalid, Err: err,
			Hint: "remove " + l.file + " and log in again"}
	}
	return l, nil
}

// write replaces the file.
func (l *logins) write() error {
	if err := os.MkdirAll(filepath.Dir(l.file), 0o700); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(l.file, append(raw, '\n'), 0o600)
}

// daemonAddress is the form of a URL by which logins are compared: a token is only sent where it was
// made.
func daemonAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	u.Path = strings.TrimRight(u.Path, "/")
	return u.String()
}

// find returns the login for a URL, or the newest for "".
func (l *logins) find(text string) (login, bool) {
	for i := len(l.All) - 1; i >= 0; i-- {
		if text == "" || daemonAddress(l.All[i].URL) == daemonAddress(text) {
			return l.All[i], true
		}
	}
	return login{}, false
}

// without removes the login for a URL.
func (l *logins) without(text string) {
	var kept []login
	for _, one := range l.All {
		if daemonAddress(one.URL) != daemonAddress(text) {
			kept = append(kept, one)
		}
	}
	l.All = kept
}

// loggedIn returns the login that a command uses, if it names no key: that for the named daemon, or
// the newest. A named data directory means its own daemon.
func (a *app) loggedIn(now time.Time) (login, bool, error) {
	named := first(a.url, os.Getenv("CARREL_URL"))
	if first(a.key, os.Getenv("CARREL_API_KEY")) != "" ||
		named == "" && first(a.dataDir, os.Getenv("CARREL_DATA_DIR")) != "" {
		return login{}, false, nil
	}
	all, err := readLogins()
	if err != nil {
		return login{}, false, err
	}
	l, ok := all.find(named)
	if ok && !l.Expires.IsZero() && !now.Before(l.Expires) {
		return login{}, false, &carrel.Error{Op: "use login", Kind: carrel.Unauthenticated,
			Err:  fmt.Errorf("the login at %s ended at %s", l.URL, day(l.Expires)),
			Hint: "carrel login " + l.URL + "   (or carrel logout " + l.URL + ")"}
	}
	return l, ok, nil
}

// loginCommands are the commands with which a person logs in.
type loginCommands struct{ *app }

// target is the daemon that an argument names, or the one that other commands would use.
func (a loginCommands) target(args []string) (string, error) {
	if len(args) == 0 {
		return daemonURL(a.app)
	}
	u, err := url.Parse(args[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", usage(fmt.Errorf("%q is not an http or https URL", args[0]))
	}
	return strings.TrimRight(args[0], "/"), nil
}

// clearText refuses to send a token where others can read it.
func clearText(target string, allowed bool) error {
	u, err := url.Parse(target)
	if err != nil || u.Scheme == "https" || allowed {
		return err
	}
	ip := net.ParseIP(u.Hostname())
	if u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return &carrel.Error{Op: "log in", Kind: carrel.Invalid, Field: "url",
		Err:  fmt.Errorf("%s is not encrypted, so others could read the token", target),
		Hint: "use https, or --plain-http in a network that you trust"}
}

// endpoint is the daemon as an authorization server.
func endpoint(target string) *oauth2.Config {
	return &oauth2.Config{ClientID: "carrel", Endpoint: oauth2.Endpoint{
		DeviceAuthURL: target + "/carrel/v1/login/device", TokenURL: target + "/carrel/v1/login/token",
		AuthStyle: oauth2.AuthStyleInParams}}
}

// web returns a client that trusts what other commands trust, and follows no redirect.
func (a loginCommands) web() *http.Client {
	return &http.Client{Timeout: loginTimeout,
		Transport: &http.Transport{TLSClientConfig: trustedRoots(a.dataDirectory()),
			Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// loginCommand is "carrel login".
func (a loginCommands) loginCommand() *cobra.Command {
	var plain bool
	c := &cobra.Command{
		Use: "login [URL]", Short: "Log in to a daemon as a person, in the browser", Args: cobra.MaximumNArgs(1),
		Long: `Prints an address and a code. Open the address in any browser, sign in, and type the code.
The command then gets a token, with which other commands act as you until it ends or until
carrel logout. The newest login is used where no key, URL or data directory is named.`,
		Example: "  carrel login https://carrel.example.com",
		RunE: func(c *cobra.Command, args []string) error {
			target, err := a.target(args)
			if err != nil {
				return err
			}
			if err := clearText(target, plain); err != nil {
				return err
			}
			return a.deviceLogin(c.Context(), target)
		},
	}
	c.Flags().BoolVar(&plain, "plain-http", false, "also log in to a daemon elsewhere without TLS")
	return c
}

// deviceLogin is the device flow (RFC 8628).
func (a loginCommands) deviceLogin(ctx context.Context, target string) error {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, a.web())
	failed := func(err error) error {
		kind := carrel.Unavailable
		if re, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			switch re.ErrorCode {
			case "access_denied":
				kind, err = carrel.Forbidden, errors.New("it was refused in the browser")
			case "expired_token":
				kind, err = carrel.Unauthenticated, errors.New("nobody confirmed it in time")
			}
		}
		return &carrel.Error{Op: "log in", Kind: kind, Err: err}
	}
	conf, name := endpoint(target), ""
	if host, err := os.Hostname(); err == nil {
		name = "carrel on " + host
	}
	dev, err := conf.DeviceAuth(ctx, oauth2.SetAuthURLParam("device_name", name))
	if err != nil {
		return failed(err)
	}
	if a.json {
		if err := a.printJSON(map[string]any{"url": dev.VerificationURI, "code": dev.UserCode,
			"complete": dev.VerificationURIComplete, "expires": dev.Expiry.UTC()}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.err, "Open %s\nand type the code %s\n", printable(dev.VerificationURI), printable(dev.UserCode))
	}
	token, err := conf.DeviceAccessToken(ctx, dev)
	if err != nil {
		return failed(err)
	}
	all, err := readLogins()
	if err != nil {
		return err
	}
	all.without(target)
	all.All = append(all.All, login{URL: target, Token: token.AccessToken, Expires: token.Expiry.UTC()})
	if err := all.write(); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.err, "logged in to %s until %s\n", target, day(token.Expiry))
	}
	return nil
}

// logoutCommand is "carrel logout".
func (a loginCommands) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout [URL]", Short: "End a login, here and at the daemon", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := readLogins()
			if err != nil {
				return err
			}
			l, ok := all.find(strings.Join(args, ""))
			if !ok {
				return &carrel.Error{Op: "log out", Kind: carrel.NotFound, Err: errors.New("there is no such login")}
			}
			all.without(l.URL)
			if err := all.write(); err != nil {
				return err
			}
			return a.revoke(c.Context(), l)
		},
	}
}

// revoke ends a token at the daemon.
func (a loginCommands) revoke(ctx context.Context, l login) error {
	failed := func(err error) error {
		return &carrel.Error{Op: "log out", Kind: carrel.Unavailable,
			Err:  fmt.Errorf("the token is forgotten here, and works there until %s: %w", day(l.Expires), err),
			Hint: "an administrator can end it: carrel person disable"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/carrel/v1/login/revoke",
		strings.NewReader(url.Values{"token": {l.Token}}.Encode()))
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := a.web().Do(req)
	if err != nil {
		return failed(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return failed(fmt.Errorf("it answers %s", resp.Status))
	}
	return nil
}
