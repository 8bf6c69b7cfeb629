package signin

import (
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
	// codeLetters are the letters of a user code: no vowels, so that no words come out, and none
	// that look alike. Eight of them are 34 bits.
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	grantDevice = "urn:ietf:params:oauth:grant-type:device_code"
)

// device is a command line that waits for its person.
type device struct {
	code     string // the user code, without the dash
	label    string // what it says about itself
	from     string // its network address
	until    time.Time
	interval time.Duration
	asked    time.Time // its last question
	person   string    // who confirmed it; "" is nobody yet
	denied   bool
}

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
	code := random()
	dev := &device{label: clean(r.PostForm.Get("device_name")), from: fromOf(r),
		until: time.Now().Add(deviceTime), interval: d.opts.Interval}
	d.mu.Lock()
	defer d.mu.Unlock()
	used := map[string]bool{}
	for hash, o := range d.devices {
		if time.Now().After(o.until) {
			delete(d.devices, hash)
			continue
		}
		used[o.code] = true
	}
	if len(d.devices) >= maxDevices {
		w.Header().Set("Retry-After", "60")
		return tellProgram(w, http.StatusServiceUnavailable,
			map[string]string{"error": "temporarily_unavailable"})
	}
	for dev.code = newCode(); used[dev.code]; {
		dev.code = newCode()
	}
	d.devices[hashOf(code)] = dev
	base := strings.TrimSuffix(d.opts.PublicURL(), "/") + DevicePath
	return tellProgram(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": dashed(dev.code), "verification_uri": base,
		"verification_uri_complete": base + "?" + url.Values{"code": {dashed(dev.code)}}.Encode(),
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
	hash, now := hashOf(r.PostForm.Get("device_code")), time.Now()
	d.mu.Lock()
	dev := d.devices[hash]
	var answer string
	switch {
	case dev == nil:
		answer = "invalid_grant"
	case now.After(dev.until):
		answer = "expired_token"
		delete(d.devices, hash)
	case dev.denied:
		answer = "access_denied"
		delete(d.devices, hash)
	case now.Sub(dev.asked) < dev.interval-dev.interval/10:
		dev.interval += 5 * time.Second
		answer = "slow_down"
	case dev.person == "":
		answer = "authorization_pending"
	default:
		delete(d.devices, hash) // one code has one token
	}
	if dev != nil {
		dev.asked = now
	}
	d.mu.Unlock()
	if answer != "" {
		return oauthError(w, answer, "see RFC 8628")
	}
	secret, ends, err := d.opts.People.Begin(r.Context(), dev.person, state.TokenSession, dev.label)
	if err != nil {
		if carrel.KindOf(err) == carrel.Forbidden {
			return oauthError(w, "access_denied", "the person is disabled")
		}
		return err
	}
	return tellProgram(w, http.StatusOK, map[string]any{"access_token": secret, "token_type": "Bearer",
		"expires_in": int(time.Until(ends).Seconds())})
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

// waiting finds the command line that a person means. A wrong code counts as an attempt.
func (d *Door) waiting(r *http.Request, s signedIn) (*device, error) {
	if wait := d.codes.Take(s.ID); wait > 0 {
		return nil, &carrel.Error{Kind: carrel.Exhausted, Field: "code", Err: errTries, RetryAfter: wait}
	}
	code, now := plainCode(r.PostForm.Get("code")), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if code != "" && dev.code == code && now.Before(dev.until) && dev.person == "" && !dev.denied {
			return dev, nil
		}
	}
	return nil, nil
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
	dev, err := d.waiting(r, s)
	if err != nil {
		return err
	}
	if dev == nil {
		return noCode(w, s)
	}
	return render(w, http.StatusOK, view{Page: "confirm", Person: s.Name, Token: s.token,
		Code: dashed(dev.code), Label: dev.label, From: dev.from})
}

// confirm takes the person's answer.
func (d *Door) confirm(w http.ResponseWriter, r *http.Request) error {
	s, err := d.mustBe(r)
	if err != nil {
		return err
	}
	dev, err := d.waiting(r, s)
	if err != nil {
		return err
	}
	if dev == nil {
		return noCode(w, s)
	}
	d.codes.Forget(s.ID)
	yes := r.PostForm.Get("answer") == "yes"
	d.mu.Lock()
	if yes && dev.person == "" {
		dev.person = s.ID
	}
	dev.denied = !yes
	d.mu.Unlock()
	if !yes {
		return render(w, http.StatusOK, view{Page: "done", Done: "The command line was refused."})
	}
	d.note(r, s.caller(), "confirm login", http.StatusOK)
	return render(w, http.StatusOK, view{Page: "done", Done: "The command line is logged in. You can close this page."})
}
