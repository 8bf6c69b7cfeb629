package signin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/attempts"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// deviceTime is how long a command line waits for its person.
	deviceTime = 10 * time.Minute
	// maxDevices bounds the command lines that wait.
	maxDevices = 1000
	// codeTries bounds the codes that are tried until one is in no use.
	codeTries = 8
	// codeLetters are the letters of a user code: no vowels, so that no words come out, and none
	// that look alike. Eight of them are 34 bits.
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	grantDevice = "urn:ietf:params:oauth:grant-type:device_code"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return string(sum[:])
}

// newCode returns a user code. 240 is the greatest multiple of the 20 letters in a byte.
func newCode() string {
	out := make([]byte, 0, 8)
	for len(out) < 8 {
		var b [16]byte
		_, _ = rand.Read(b[:])
		for _, c := range b {
			if c < 240 && len(out) < 8 {
				out = append(out, codeLetters[int(c)%len(codeLetters)])
			}
		}
	}
	return string(out)
}

// dashed is how people see a user code.
func dashed(code string) string { return code[:4] + "-" + code[4:] }

// plainCode is the user code in what a person typed; "" if it is none.
func plainCode(text string) string {
	text = strings.ToUpper(strings.Map(func(c rune) rune {
		if c == '-' || c == ' ' {
			return -1
		}
		return c
	}, text))
	if len(text) != 8 || strings.Trim(text, codeLetters) != "" {
		return ""
	}
	return text
}

// tellProgram answers a program, as OAuth 2.0 has it.
func tellProgram(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(body)
}

// oauthError is an error of RFC 6749 and RFC 8628.
func oauthError(w http.ResponseWriter, code, text string) error {
	return tellProgram(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": text})
}

// fromOf is the network address of a request.
func fromOf(r *http.Request) string {
	if info := request.Of(r.Context()); info != nil {
		return info.From
	}
	return r.RemoteAddr
}

// authorizeDevice begins the device flow.
func (d *Door) authorizeDevice(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm.Get("client_id") == "" {
		return oauthError(w, "invalid_request", "client_id is missing")
	}
	if wait := d.asks.Take(attempts.Network(fromOf(r))); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		return tellProgram(w, http.StatusTooManyRequests, map[string]string{"error": "slow_down"})
	}
	code, user := random(), ""
	for range codeTries {
		user = newCode()
		err := d.opts.Devices.Add(r.Context(), Device{Hash: hashOf(code), Code: d.hashOfCode(user), Label: clean(r.PostForm.Get("device_name")),
			From: fromOf(r), Interval: d.opts.Interval, Left: deviceTime}, maxDevices)
		switch carrel.KindOf(err) {
		case carrel.AlreadyExists:
			continue
		case carrel.Exhausted:
			w.Header().Set("Retry-After", "60")
			return tellProgram(w, http.StatusServiceUnavailable, map[string]string{"error": "temporarily_unavailable"})
		}
		if err != nil {
			return err
		}
		break
	}
	base := strings.TrimSuffix(d.opts.PublicURL(), "/") + DevicePath
	return tellProgram(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": dashed(user), "verification_uri": base,
		"verification_uri_complete": base + "?" + url.Values{"code": {dashed(user)}}.Encode(),
		"expires_in":                int(deviceTime.Seconds()),
		"interval":                  int((d.opts.Interval + time.Second - 1) / time.Second),
	})
}

// clean returns what a command line says about itself, fit to be shown.
func clean(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, text)
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "")
	}
	return text
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second) + 1) }

// token answers a command line that waits.
func (d *Door) token(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm.Get("grant_type") != grantDevice {
		return oauthError(w, "unsupported_grant_type", "only the device flow is served here")
	}
	var dev Device
	answer := ""
	err := d.opts.Devices.Change(r.Context(), hashOf(r.PostForm.Get("device_code")), "", func(now *Device) (keep bool) {
		answer, keep = asked(now)
		dev = *now
		return keep
	})
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
		answer = "invalid_grant"
	case err != nil:
		return err
	}
	if answer != "" {
		return oauthError(w, answer, "see RFC 8628")
	}
	secret, ends, err := d.opts.People.Begin(r.Context(), dev.Person, state.TokenSession, dev.Label)
	if err != nil {
		if carrel.KindOf(err) == carrel.Forbidden {
			return oauthError(w, "access_denied", "the person is disabled")
		}
		return err
	}
	return tellProgram(w, http.StatusOK, map[string]any{"access_token": secret, "token_type": "Bearer",
		"expires_in": int(time.Until(ends).Seconds())})
}

// asked is the answer to a command line's question; "" is a token, which it gets once.
func asked(dev *Device) (answer string, keep bool) {
	dev.Asked = true
	switch {
	case dev.Left <= 0:
		return "expired_token", false
	case dev.Denied:
		return "access_denied", false
	case dev.Quiet < dev.Interval-dev.Interval/10:
		dev.Interval += 5 * time.Second
		return "slow_down", true
	case dev.Person == "":
		return "authorization_pending", true
	}
	return "", false // one code has one token
}

// revoke ends the session of a token (RFC 7009). Whoever has the token may end it.
func (d *Door) revoke(w http.ResponseWriter, r *http.Request) error {
	if err := d.opts.People.End(r.Context(), r.PostForm.Get("token")); err != nil {
		return err
	}
	return tellProgram(w, http.StatusOK, struct{}{})
}

// device asks for a user code. The person must be signed in first.
func (d *Door) device(w http.ResponseWriter, r *http.Request) error {
	s, ok := d.who(r)
	code := plainCode(r.URL.Query().Get("code"))
	if !ok {
		next := DevicePath
		if code != "" {
			next += "?" + url.Values{"code": {dashed(code)}}.Encode()
		}
		http.Redirect(w, r, LoginPath+"?"+url.Values{"next": {next}}.Encode(), http.StatusSeeOther)
		return nil
	}
	v := view{Page: "device", Person: s.Name, Token: s.token}
	if code != "" {
		v.Code = dashed(code)
	}
	return render(w, http.StatusOK, v)
}

// waiting calls fn with the command line that a person means. A wrong code counts as an attempt. It
// reports whether one waits with the code, and returns the code.
func (d *Door) waiting(r *http.Request, s signedIn, fn func(*Device)) (code string, found bool, err error) {
	if wait := d.codes.Take(s.ID); wait > 0 {
		return "", false, &carrel.Error{Kind: carrel.Exhausted, Field: "code", Err: errTries, RetryAfter: wait}
	}
	if code = plainCode(r.PostForm.Get("code")); code == "" {
		return "", false, nil
	}
	err = d.opts.Devices.Change(r.Context(), "", d.hashOfCode(code), func(dev *Device) bool {
		if found = dev.Left > 0 && dev.Person == "" && !dev.Denied; found {
			fn(dev)
		}
		return true
	})
	if carrel.KindOf(err) == carrel.NotFound {
		err = nil
	}
	return code, found && err == nil, err
}

// hashOfCode is the hash of a user code. It has a key: the codes are so short that all could be tried.
func (d *Door) hashOfCode(code string) string {
	h := hmac.New(sha256.New, d.seal[:])
	_, _ = h.Write([]byte("user code\x00" + code)) // never fails
	return string(h.Sum(nil))
}

// noCode is the page for a code that nobody waits with.
func noCode(w http.ResponseWriter, s signedIn) error {
	return render(w, http.StatusBadRequest, view{Page: "device", Person: s.Name, Token: s.token,
		Bad: "No command line waits with this code. Codes are good for ten minutes."})
}

// deviceCode takes a user code, and asks whether the person wants what it does.
func (d *Door) deviceCode(w http.ResponseWriter, r *http.Request) error {
	s, err := d.mustBe(r)
	if err != nil {
		return err
	}
	var dev Device
	code, found, err := d.waiting(r, s, func(now *Device) { dev = *now })
	if err != nil {
		return err
	}
	if !found {
		return noCode(w, s)
	}
	return render(w, http.StatusOK, view{Page: "confirm", Person: s.Name, Token: s.token,
		Code: dashed(code), Label: dev.Label, From: dev.From})
}

// confirm takes the person's answer.
func (d *Door) confirm(w http.ResponseWriter, r *http.Request) error {
	s, err := d.mustBe(r)
	if err != nil {
		return err
	}
	yes := r.PostForm.Get("answer") == "yes"
	// The first answer counts, whoever gives it.
	_, found, err := d.waiting(r, s, func(dev *Device) {
		if dev.Denied = !yes; yes {
			dev.Person = s.ID
		}
	})
	if err != nil {
		return err
	}
	if !found {
		return noCode(w, s)
	}
	d.codes.Forget(s.ID)
	if !yes {
		return render(w, http.StatusOK, view{Page: "done", Done: "The command line was refused."})
	}
	d.note(r, s.caller(), "confirm login", http.StatusOK)
	return render(w, http.StatusOK, view{Page: "done", Done: "The command line is logged in. You can close this page."})
}
