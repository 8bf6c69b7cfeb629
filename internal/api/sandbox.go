package api

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// clientID is the value of a field that E2B's SDKs require. Nothing uses it any more.
const clientID = "carrel"

// sandboxBody is E2B's Sandbox: the answer of create and connect.
type sandboxBody struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listedBody is E2B's ListedSandbox.
type listedBody struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	State        string            `json:"state"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata"`
	VolumeMounts []struct{}        `json:"volumeMounts"`
}

// detailBody is E2B's SandboxDetail.
type detailBody struct {
	listedBody
	EnvdAccessToken     string        `json:"envdAccessToken,omitempty"`
	Domain              *string       `json:"domain"`
	AllowInternetAccess bool          `json:"allowInternetAccess"`
	Network             networkDetail `json:"network"`
	Lifecycle           lifecycleBody `json:"lifecycle"`
}

// networkDetail is E2B's SandboxNetworkConfig in answers.
type networkDetail struct {
	AllowOut           []string                        `json:"allowOut,omitempty"`
	DenyOut            []string                        `json:"denyOut,omitempty"`
	AllowPublicTraffic bool                            `json:"allowPublicTraffic"`
	MaskRequestHost    string                          `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []uint16                        `json:"httpsPorts,omitempty"`
	Rules              map[string][]carrel.NetworkRule `json:"rules,omitempty"`
	EgressProxy        *carrel.EgressProxy             `json:"egressProxy,omitempty"`
}

// orNull returns nil, E2B's null, for the empty text.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func toSandbox(sb carrel.Sandbox) sandboxBody {
	return sandboxBody{
		SandboxID: string(sb.ID), TemplateID: cmp.Or(sb.TemplateOf, sb.Template), Alias: sb.Alias,
		ClientID:    clientID,
		EnvdVersion: sb.EnvdVersion, EnvdAccessToken: sb.AccessToken,
		TrafficAccessToken: orNull(sb.TrafficToken), Domain: orNull(sb.Domain),
	}
}

func toListed(sb carrel.Sandbox) listedBody {
	b := listedBody{
		SandboxID: string(sb.ID), TemplateID: cmp.Or(sb.TemplateOf, sb.Template), Alias: sb.Alias,
		ClientID:  clientID,
		StartedAt: sb.Started.UTC(), EndAt: sb.Ends.UTC(), State: "running",
		CPUCount: cpuCount(sb.Limits.CPUs), MemoryMB: sb.Limits.MemoryMB, DiskSizeMB: sb.Limits.DiskMB,
		EnvdVersion: sb.EnvdVersion, Metadata: sb.Metadata, VolumeMounts: []struct{}{},
	}
	if slices.Contains(pausedStates, sb.State) {
		b.State = "paused"
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	return b
}

func toDetail(sb carrel.Sandbox) detailBody {
	return detailBody{
		listedBody: toListed(sb), EnvdAccessToken: sb.AccessToken, Domain: orNull(sb.Domain),
		AllowInternetAccess: sb.Network.Internet,
		Network: networkDetail{
			AllowOut: sb.Network.AllowOut, DenyOut: sb.Network.DenyOut, AllowPublicTraffic: !sb.Network.PrivateTraffic,
			MaskRequestHost: sb.Network.MaskHost, HTTPSPorts: sb.Network.HTTPSPorts,
			Rules: sb.Network.Rules, EgressProxy: sb.Network.EgressProxy,
		},
		Lifecycle: toLifecycle(sb.Lifecycle),
	}
}

// cpuCount rounds up to whole cores, because E2B knows no fractions.
func cpuCount(cpus float64) int { return max(1, int(math.Ceil(cpus))) }

// pathID reads the sandbox's ID from the path. E2B's older clients append "-<clientID>". A text
// that can't be an ID gives 404.
func pathID(r *http.Request) (carrel.ID, error) {
	text := r.PathValue("id")
	short, _, _ := strings.Cut(text, "-")
	id, err := carrel.ParseID(short)
	if err != nil {
		return "", sandboxNotFound(text)
	}
	return id, nil
}

// notFoundAs gives the service's NotFound about a sandbox E2B's text. If it was lost with its node, the
// text says so, too.
func notFoundAs(id carrel.ID, err error) error {
	if carrel.KindOf(err) != carrel.NotFound {
		return err
	}
	p := sandboxNotFound(string(id))
	if ce, ok := errors.AsType[*carrel.Error](err); ok && ce.Field == "node" && ce.Err != nil {
		p.body.Message += ": " + ce.Err.Error()
		p.body.Field, p.body.Hint, p.body.Cause = ce.Field, ce.Hint, ce.Err.Error()
	}
	return p
}

// find returns the sandbox in the path. As in E2B, one that is being killed counts as gone.
func (s *Server) find(r *http.Request) (carrel.Sandbox, error) {
	id, err := pathID(r)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sb, err := s.opts.Service.Get(r.Context(), id)
	if err != nil {
		return sb, notFoundAs(id, err)
	}
	if sb.State == carrel.Stopping {
		return sb, sandboxNotFound(string(id))
	}
	return sb, nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, toDetail(sb))
	return nil
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := s.opts.Service.Kill(r.Context(), id); err != nil {
		return notFoundAs(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// timeoutBody is the body of timeout.
type timeoutBody struct {
	Timeout *int32 `json:"timeout"`
}

// span converts E2B's seconds to a bounded duration.
func (s *Server) span(field string, seconds int32) (time.Duration, error) {
	if seconds < 0 {
		return 0, invalid(field, "%d is negative", seconds)
	}
	d := time.Duration(seconds) * time.Second
	if d > s.opts.MaxTimeout {
		p := tell(carrel.Invalid, "Timeout cannot be greater than %d hours", int(s.opts.MaxTimeout.Hours()))
		p.body.Field = field
		return 0, p
	}
	return d, nil
}

func (s *Server) timeout(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body timeoutBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Timeout == nil {
		return invalid("timeout", "missing")
	}
	d, err := s.span("timeout", *body.Timeout)
	if err != nil {
		return err
	}
	if _, err := s.opts.Service.SetTimeout(r.Context(), id, d, false); err != nil {
		return notFoundAs(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

const (
	timeoutV1  = 15  // default timeout of E2B's first API, in seconds
	timeoutV2  = 300 // and by its second's
	maxRefresh = 3600
)

// refreshBody is E2B's body of refreshes.
type refreshBody struct {
	Duration *int32 `json:"duration"`
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body refreshBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	seconds := int32(timeoutV1)
	if body.Duration != nil {
		seconds = *body.Duration
	}
	if seconds > maxRefresh {
		return invalid("duration", "%d is more than %d seconds", seconds, maxRefresh)
	}
	d, err := s.span("duration", seconds)
	if err != nil {
		return err
	}
	if _, err := s.opts.Service.SetTimeout(r.Context(), id, d, true); err != nil {
		return notFoundAs(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
