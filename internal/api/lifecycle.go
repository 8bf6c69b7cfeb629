package api

import (
	"net/http"
	"regexp"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// lifecycleBody is E2B's SandboxLifecycle.
type lifecycleBody struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// toLifecycle converts a lifecycle to E2B's form.
func toLifecycle(l carrel.Lifecycle) lifecycleBody {
	b := lifecycleBody{AutoResume: l.AutoResume || l.Idle.After > 0, OnTimeout: string(carrel.ActionKill)}
	if l.OnTimeout == carrel.ActionPause {
		b.OnTimeout = string(carrel.ActionPause)
	}
	return b
}

// lifecycle converts E2B's three fields. E2B refuses two combinations: traffic must not wake a
// sandbox that then boots afresh.
func (body createBody) lifecycle() (carrel.Lifecycle, error) {
	var l carrel.Lifecycle
	if body.AutoPause != nil && *body.AutoPause {
		l.OnTimeout = carrel.ActionPause
	}
	l.AutoResume = body.AutoResume != nil && body.AutoResume.Enabled
	l.FilesOnly = body.AutoPauseMemory != nil && !*body.AutoPauseMemory
	switch {
	case l.FilesOnly && l.OnTimeout != carrel.ActionPause:
		return l, invalid("autoPauseMemory", "false only applies when autoPause is true")
	case l.FilesOnly && l.AutoResume:
		return l, invalid("autoPauseMemory", "false (files only) can't be combined with autoResume: such a sandbox boots afresh and must be resumed explicitly")
	}
	return l, nil
}

// lifecycleIn is carrel.Lifecycle in a request.
type lifecycleIn struct {
	OnTimeout  carrel.Action `json:"onTimeout"`
	FilesOnly  bool          `json:"filesOnly"`
	AutoResume bool          `json:"autoResume"`
	Idle       struct {
		After          span    `json:"after"`
		CPUPct         float64 `json:"cpuPct"`
		IgnoreCommands bool    `json:"ignoreCommands"`
	} `json:"idle"`
	Checkpoints struct {
		Every     span     `json:"every"`
		Before    []string `json:"before"`
		FilesOnly bool     `json:"filesOnly"`
	} `json:"checkpoints"`
	Retention struct {
		Last int  `json:"last"`
		For  span `json:"for"`
	} `json:"retention"`
}

// check converts the lifecycle of a request. prefix is its place in the request, for errors.
func (in lifecycleIn) check(prefix string) (carrel.Lifecycle, error) {
	l := carrel.Lifecycle{OnTimeout: in.OnTimeout, FilesOnly: in.FilesOnly, AutoResume: in.AutoResume}
	l.Idle = carrel.Idle{CPUPct: in.Idle.CPUPct, IgnoreCommands: in.Idle.IgnoreCommands}
	l.Checkpoints = carrel.Checkpoints{Before: in.Checkpoints.Before, FilesOnly: in.Checkpoints.FilesOnly}
	l.Retention.Last = in.Retention.Last
	switch {
	case l.OnTimeout != "" && l.OnTimeout != carrel.ActionKill && l.OnTimeout != carrel.ActionPause:
		return l, invalid(prefix+"onTimeout", "%q is neither kill nor pause", clip(string(l.OnTimeout)))
	case l.Idle.CPUPct < 0:
		return l, invalid(prefix+"idle.cpuPct", "%v is negative", l.Idle.CPUPct)
	case l.Retention.Last < 0:
		return l, invalid(prefix+"retention.last", "%d is negative", l.Retention.Last)
	}
	var err error
	if l.Idle.After, err = in.Idle.After.duration(prefix+"idle.after", 0); err != nil {
		return l, err
	}
	if l.Checkpoints.Every, err = in.Checkpoints.Every.duration(prefix+"checkpoints.every", 0); err != nil {
		return l, err
	}
	if l.Retention.For, err = in.Retention.For.duration(prefix+"retention.for", 0); err != nil {
		return l, err
	}
	return l, checkPatterns(prefix+"checkpoints.before", l.Checkpoints.Before)
}

// checkPatterns refuses invalid regular expressions.
func checkPatterns(field string, patterns []string) error {
	const most, longest = 64, 1000
	if len(patterns) > most {
		return invalid(field, "%d expressions are more than %d", len(patterns), most)
	}
	for i, p := range patterns {
		at := field + "[" + strconv.Itoa(i) + "]"
		if len(p) > longest {
			return invalid(at, "longer than %d characters", longest)
		}
		if _, err := regexp.Compile(p); err != nil {
			return invalid(at, "not a regular expression of Go's: %s", err)
		}
	}
	return nil
}

func (s *Server) lifecycleOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body lifecycleIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	l, err := body.check("")
	if err != nil {
		return err
	}
	sb, err := s.opts.Service.SetLifecycle(r.Context(), id, l)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

func (s momentRoutes) metadataOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body carrel.MetadataChange
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if err := checkMetadata(body.Set); err != nil {
		return err
	}
	sb, err := s.opts.Service.SetMetadata(r.Context(), id, body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}
