package signin

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

var (
	errOrigin      = errors.New("the form was sent by another site")
	errForm        = errors.New("the form can't be read")
	errNotSignedIn = errors.New("you are not signed in any more")
	errToken       = errors.New("the form is from another session; go back, load the page again and repeat it")
	errAnswer      = errors.New("the identity provider's answer does not belong to this browser, or came too late")
	errProvider    = errors.New("the identity provider did not let you in")
)

// login shows the form, or who is signed in.
func (d *Door) login(w http.ResponseWriter, r *http.Request) error {
	next := nextPath(r.URL.Query().Get("next"))
	if s, ok := d.who(r); ok {
		if next != LoginPath {
			http.Redirect(w, r, next, http.StatusSeeOther)
			return nil
		}
		return render(w, http.StatusOK, view{Page: "home", Person: s.Name, Token: s.token, Local: s.Password})
	}
	return render(w, http.StatusOK, d.form(next, ""))
}

// form is the page on which people sign in.
func (d *Door) form(next, bad string) view {
	v := view{Page: "login", Next: next, Bad: bad}
	if d.opts.Provider != nil {
		v.Provider = providerPath + "?" + url.Values{"next": {next}}.Encode()
	}
	return v
}

// loginWith takes the form.
func (d *Door) loginWith(w http.ResponseWriter, r *http.Request) error {
	next := nextPath(r.PostForm.Get("next"))
	person, err := d.opts.People.Password(r.Context(), r.PostForm.Get("name"), r.PostForm.Get("password"))
	if carrel.KindOf(err) == carrel.Unauthenticated {
		d.note(r, carrel.Caller{}, "sign in", http.StatusUnauthorized)
		return render(w, http.StatusUnauthorized, d.form(next, "The name or the password is wrong."))
	}
	if err != nil {
		return err
	}
	return d.begin(w, r, person, next)
}

// journey is what a browser keeps between its way to the provider and back.
type journey struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Next     string    `json:"x"`
	Until    time.Time `json:"u"`
}

const (
	journeyCookie = "carrel_provider"
	journeyTime   = 10 * time.Minute
)

// cookie returns the cookie of a journey; "" removes it.
func (d *Door) cookie(value string, r *http.Request) *http.Cookie {
	own := d.opts.Cookies.SessionCookie("x", r)
	c := &http.Cookie{Name: journeyCookie, Value: value, Path: "/", HttpOnly: true, Secure: own.Secure,
		SameSite: http.SameSiteLaxMode, MaxAge: int(journeyTime.Seconds())}
	if own.Secure {
		c.Name = "__Host-" + journeyCookie
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// toProvider sends the browser to the identity provider.
func (d *Door) toProvider(w http.ResponseWriter, r *http.Request) error {
	if d.opts.Provider == nil {
		return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("there is no identity provider")}
	}
	j := journey{State: random(), Nonce: random(), Verifier: random(),
		Next: nextPath(r.URL.Query().Get("next")), Until: time.Now().Add(journeyTime)}
	to, err := d.opts.Provider.Begin(r.Context(), d.callbackURL(), j.State, j.Nonce, j.Verifier)
	if err != nil {
		d.opts.Log.WarnContext(r.Context(), "reach the identity provider", "err", err)
		return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("the identity provider can't be reached")}
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return err
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	http.SetCookie(w, d.cookie(text+"."+d.mac(text), r))
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

func (d *Door) callbackURL() string {
	return strings.TrimSuffix(d.opts.PublicURL(), "/") + CallbackPath
}

// journeyOf returns the journey that a browser began.
func (d *Door) journeyOf(r *http.Request) (j journey, ok bool) {
	c, err := r.Cookie(d.cookie("x", r).Name)
	if err != nil {
		return j, false
	}
	text, sum, _ := strings.Cut(c.Value, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !hmac.Equal([]byte(sum), []byte(d.mac(text))) || json.Unmarshal(raw, &j) != nil {
		return j, false
	}
	return j, time.Now().Before(j.Until)
}

// callback takes the identity provider's answer.
func (d *Door) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	j, ok := d.journeyOf(r)
	http.SetCookie(w, d.cookie("", r)) // one journey has one answer
	if d.opts.Provider == nil || !ok || !hmac.Equal([]byte(q.Get("state")), []byte(j.State)) ||
		len(q["state"]) != 1 || len(q["code"]) > 1 ||
		q.Has("iss") && q.Get("iss") != d.opts.Provider.Issuer() { // RFC 9207
		return d.refuse(r, &carrel.Error{Kind: carrel.Forbidden, Field: "state", Err: errAnswer,
			Hint: "sign in again"})
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return d.refuse(r, &carrel.Error{Kind: carrel.Forbidden, Err: errProvider, Hint: "sign in again"})
	}
	issuer, subject, email, groups, err := d.opts.Provider.Finish(r.Context(), d.callbackURL(),
		q.Get("code"), j.Nonce, j.Verifier)
	if err != nil {
		d.opts.Log.WarnContext(r.Context(), "the identity provider's answer is refused", "err", err)
		return d.refuse(r, &carrel.Error{Kind: carrel.Forbidden, Err: errProvider, Hint: "sign in again"})
	}
	person, err := d.opts.People.Provided(r.Context(), issuer, subject, email, groups)
	if err != nil {
		return d.refuse(r, err)
	}
	return d.begin(w, r, person, j.Next)
}

// refuse notes a sign-in that failed.
func (d *Door) refuse(r *http.Request, err error) error {
	d.note(r, carrel.Caller{}, "sign in", statusOf(err))
	return err
}

// password shows the form for another password.
func (d *Door) password(w http.ResponseWriter, r *http.Request) error {
	s, ok := d.who(r)
	if !ok {
		http.Redirect(w, r, LoginPath+"?"+url.Values{"next": {passwordPath}}.Encode(), http.StatusSeeOther)
		return nil
	}
	return render(w, http.StatusOK, view{Page: "password", Person: s.Name, Token: s.token})
}

// setPassword takes the form.
func (d *Door) setPassword(w http.ResponseWriter, r *http.Request) error {
	s, err := d.mustBe(r)
	if err != nil {
		return err
	}
	v := view{Page: "password", Person: s.Name, Token: s.token}
	given := r.PostForm.Get("new")
	if v.Bad = wrongPassword(given, r.PostForm.Get("again")); v.Bad != "" {
		return render(w, http.StatusBadRequest, v)
	}
	ctx := carrel.WithCaller(r.Context(), s.caller())
	_, err = d.opts.Passwords.SetPassword(ctx, s.ID,
		carrel.PasswordChange{Old: r.PostForm.Get("old"), New: given})
	if err != nil {
		return err
	}
	d.note(r, s.caller(), "set password", http.StatusOK)
	return render(w, http.StatusOK, view{Page: "done", Done: "Your password is changed. Other sessions of yours have ended."})
}

// wrongPassword says what is wrong with a new password; "" is nothing.
func wrongPassword(given, again string) string {
	if given != again {
		return "The two new passwords differ."
	}
	if err := carrel.CheckPassword(given); err != nil {
		return "The new password is too short or too long: 12 to 256 bytes."
	}
	return ""
}
