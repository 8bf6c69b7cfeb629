package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/carrel-dev/carrel"
)

// createBody is E2B's NewSandbox and NewSandboxV2.
type createBody struct {
	TemplateID          *string           `json:"templateID"`
	Timeout             *int32            `json:"timeout"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *networkBody      `json:"network"`
	AutoPause           *bool             `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Secure *bool `json:"secure"` // v1 only
	// MCP tells which servers E2B's client is about to start. The client runs the program
	// mcp-gateway in the sandbox itself, and reports when the template has none.
	MCP          map[string]json.RawMessage `json:"mcp"`
	VolumeMounts []json.RawMessage          `json:"volumeMounts"`
	IAM          *struct {
		Tokens map[string]struct {
			Audience  string `json:"audience"`
			TokenType string `json:"tokenType"`
		} `json:"tokens"`
	} `json:"iam"`
}

// headerIdempotency is the header of E2B's clients for a creation that they may send again.
const headerIdempotency = "Idempotency-Key"

// keyReused gives an error E2B's own code.
func keyReused(err error) error {
	p := tell(carrel.Conflict, "%s: %s", headerIdempotency, err)
	p.body.Field, p.body.Hint, p.body.ErrorCode = headerIdempotency, carrel.HintOf(err),
		"idempotency_request_mismatch"
	return p
}

func (s *Server) createV1(w http.ResponseWriter, r *http.Request) error {
	return s.create(w, r, timeoutV1, true)
}

func (s *Server) createV2(w http.ResponseWriter, r *http.Request) error {
	return s.create(w, r, timeoutV2, false)
}

// create makes a sandbox. Only v1 may create one without an access token, and only with an explicit
// "secure": false. Without "secure", the sandbox is secured. Every client that reads the token from
// the answer can handle that.
func (s *Server) create(w http.ResponseWriter, r *http.Request, defaultTimeout int32, mayBeOpen bool) error {
	var body createBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Timeout == nil {
		body.Timeout = &defaultTimeout
	}
	if !mayBeOpen {
		body.Secure = nil
	}
	opts, err := s.createOptions(body)
	if err != nil {
		return err
	}
	opts.IdempotencyKey = r.Header.Get(headerIdempotency)
	sb, err := s.opts.Service.Create(r.Context(), opts)
	if err != nil {
		if errors.Is(err, carrel.ErrKeyReused) {
			return keyReused(err)
		}
		if carrel.KindOf(err) == carrel.NotFound {
			return templateNotFound(*body.TemplateID)
		}
		return networkError(err)
	}
	writeJSON(w, http.StatusCreated, toSandbox(sb))
	return nil
}

// createOptions checks a create request and converts it.
func (s *Server) createOptions(body createBody) (carrel.CreateOptions, error) {
	opts := carrel.CreateOptions{Env: body.EnvVars, Metadata: body.Metadata}
	if err := notYet(body); err != nil {
		return opts, err
	}
	if body.TemplateID == nil || *body.TemplateID == "" {
		return opts, invalid("templateID", "missing")
	}
	err := checkTemplate("templateID", *body.TemplateID)
	if err != nil {
		return opts, err
	}
	opts.Template = *body.TemplateID
	if *body.Timeout == 0 {
		return opts, invalid("timeout", "0 would end the sandbox at once")
	}
	if opts.Timeout, err = s.span("timeout", *body.Timeout); err != nil {
		return opts, err
	}
	if err := checkEnv(body.EnvVars); err != nil {
		return opts, err
	}
	if err := checkMetadata(body.Metadata); err != nil {
		return opts, err
	}
	if opts.Lifecycle, err = body.lifecycle(); err != nil {
		return opts, err
	}
	if opts.Network, err = body.Network.network(body.AllowInternetAccess); err != nil {
		return opts, err
	}
	if body.Network == nil && body.AllowInternetAccess == nil && s.opts.DefaultNetwork != nil {
		opts.Network = *s.opts.DefaultNetwork
	}
	if opts.Tokens, err = body.tokens(); err != nil {
		return opts, err
	}
	opts.Insecure = body.Secure != nil && !*body.Secure
	if opts.Insecure && opts.Network.PrivateTraffic {
		p := tell(carrel.Invalid, "You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
		p.body.Field = "network.allowPublicTraffic"
		return opts, p
	}
	return opts, nil
}

// tokenType is the one type of token that E2B has.
const tokenType = "JWT-SVID"

// tokens converts E2B's workload identity.
func (body createBody) tokens() (map[string]carrel.TokenSpec, error) {
	if body.IAM == nil || len(body.IAM.Tokens) == 0 {
		return nil, nil
	}
	out := make(map[string]carrel.TokenSpec, len(body.IAM.Tokens))
	for name, t := range body.IAM.Tokens {
		if t.TokenType != tokenType {
			return nil, invalid("iam.tokens."+clip(name)+".tokenType", "%q is no type of token: %s is", clip(t.TokenType), tokenType)
		}
		out[name] = carrel.TokenSpec{Audience: t.Audience}
	}
	return out, nil
}

// notYet refuses features of E2B that this build does not have. To accept them and do something
// else would be worse than an error.
func notYet(body createBody) error {
	if len(body.VolumeMounts) > 0 {
		return later("volumeMounts", "mounting volumes")
	}
	return nil
}

// checkTemplate checks the form of a template's or snapshot's ID or name in a field of the request.
// The service decides what it means.
func checkTemplate(field, text string) error {
	_, err := carrel.ParseTemplateRef(text)
	if err == nil {
		return nil
	}
	p := tell(carrel.Invalid, "Invalid template reference: %s: %v", field, errors.Unwrap(err))
	p.body.Field, p.body.Hint = field, carrel.HintOf(err)
	return p
}

// checkEnv refuses names and values that no process can have.
func checkEnv(env map[string]string) error {
	for name, value := range env {
		switch {
		case name == "":
			return invalid("envVars", "a variable has no name")
		case strings.ContainsAny(name, "=\x00"):
			return invalid("envVars", "the name %q contains '=' or a NUL character", clip(name))
		case strings.ContainsRune(value, 0):
			return invalid("envVars", "the value of %q contains a NUL character", clip(name))
		case len(name)+len(value) > 128<<10:
			return invalid("envVars", "%q is longer than 128 KiB", clip(name))
		}
	}
	return nil
}

// checkMetadata bounds the metadata, because every list repeats it.
func checkMetadata(metadata map[string]string) error {
	const most, longest = 128, 16 << 10
	if len(metadata) > most {
		return invalid("metadata", "%d entries are more than %d", len(metadata), most)
	}
	for k, v := range metadata {
		if len(k)+len(v) > longest {
			return invalid("metadata", "%q is longer than %d bytes", clip(k), longest)
		}
	}
	return nil
}

// createIn is carrel.CreateOptions as it arrives.
type createIn struct {
	carrel.CreateOptions
	Timeout   span            `json:"timeout"`
	Lifecycle lifecycleIn     `json:"lifecycle"`
	Network   *carrel.Network `json:"network"`
}

// createOurs is POST /carrel/v1/sandboxes. It accepts every field of carrel.CreateOptions.
func (s *Server) createOurs(w http.ResponseWriter, r *http.Request) error {
	var body createIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	opts := body.CreateOptions
	var err error
	if opts.Timeout, err = body.Timeout.duration("timeout", s.opts.MaxTimeout); err != nil {
		return err
	}
	if opts.Lifecycle, err = body.Lifecycle.check("lifecycle."); err != nil {
		return err
	}
	if opts.Template != "" {
		if err := checkTemplate("template", opts.Template); err != nil {
			return err
		}
	}
	if err := checkEnv(opts.Env); err != nil {
		return err
	}
	if err := checkMetadata(opts.Metadata); err != nil {
		return err
	}
	if body.Network != nil {
		opts.Network = *body.Network
	} else if s.opts.DefaultNetwork != nil {
		opts.Network = *s.opts.DefaultNetwork
	}
	sb, err := s.opts.Service.Create(r.Context(), opts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, sb)
	return nil
}
