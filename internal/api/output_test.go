package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// keeping is the inside of a sandbox that keeps output. It notes each request.
type keeping struct {
	carrel.Computer
	asked carrel.OutputQuery
}

func (k *keeping) Records(context.Context) ([]carrel.ProcessRecord, error) {
	return []carrel.ProcessRecord{{Serial: 4, PID: 12, Tag: "job", Args: []string{"sleep", "9"}, Started: box.Started, Written: 3, Kept: 3}}, nil
}

func (k *keeping) Output(_ context.Context, q carrel.OutputQuery) (carrel.ProcessOutput, error) {
	if k.asked = q; q.Process == "none" {
		return carrel.ProcessOutput{}, &carrel.Error{Op: "read output", Kind: carrel.NotFound, ID: boxID}
	}
	return carrel.ProcessOutput{ProcessRecord: carrel.ProcessRecord{Serial: 4, PID: 12, Written: 3, Kept: 3}, Next: 3,
		Pieces: []carrel.OutputPiece{{Stream: "stdout", Data: []byte("hi\n")}}}, nil
}

// TestOutput reads the output that a sandbox has kept.
func TestOutput(t *testing.T) {
	f, inside := newFake(), &keeping{}
	f.computer = func(carrel.ID) (carrel.Computer, error) { return inside, nil }
	srv := start(t, f)
	const at = "/carrel/v1/sandboxes/" + boxID + "/processes"
	for _, c := range []struct {
		path   string
		status int
		want   string
		asked  carrel.OutputQuery
	}{
		{"", 200, `[{"serial":4,"pid":12,"tag":"job","args":["sleep","9"],"started":"2026-01-02T03:04:05.006Z","exitCode":0,"written":3,"kept":3}]`, carrel.OutputQuery{}},
		{"/12/output", 200, `"from":0,"next":3,"pieces":[{"stream":"stdout","data":"aGkK"}]`, carrel.OutputQuery{Process: "12", Most: maxOutput}},
		{"/job/output?serial=4&from=7&most=10&wait=2s", 200, `"pid":12`, carrel.OutputQuery{Process: "job", Serial: 4, From: 7, Most: 10, Wait: 2 * time.Second}},
		{"/job/output?most=99999999&wait=9h", 200, `"pid":12`, carrel.OutputQuery{Process: "job", Most: maxOutput, Wait: maxOutputWait}},
		{"/none/output", 404, `"kind":"not found"`, carrel.OutputQuery{Process: "none", Most: maxOutput}},
		{"/1/output?from=-1", 400, `"field":"from"`, carrel.OutputQuery{}},
		{"/1/output?serial=x", 400, `"field":"serial"`, carrel.OutputQuery{}},
		{"/1/output?most=0", 400, `"field":"most"`, carrel.OutputQuery{}},
		{"/1/output?wait=5", 400, `"field":"wait"`, carrel.OutputQuery{}},
	} {
		inside.asked = carrel.OutputQuery{}
		resp, body := call(t, srv, http.MethodGet, at+c.path, "")
		if resp.StatusCode != c.status || !strings.Contains(body, c.want) || inside.asked != c.asked {
			t.Errorf("%q: %d %s after %+v", c.path, resp.StatusCode, body, inside.asked)
		}
	}
	// To look does not wake.
	f.get = func(carrel.ID) (carrel.Sandbox, error) {
		asleep := box
		asleep.State = carrel.Paused
		return asleep, nil
	}
	f.computer = func(carrel.ID) (carrel.Computer, error) { t.Error("it was woken"); return inside, nil }
	for _, path := range []string{at, at + "/12/output"} {
		if resp, body := call(t, srv, http.MethodGet, path, ""); resp.StatusCode != http.StatusConflict {
			t.Errorf("of a paused one: %d %s", resp.StatusCode, body)
		}
	}
}
