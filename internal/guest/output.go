package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// Routes to the kept output of processes. A GET of ProcessesPath is answered by a list of
// [carrel.ProcessRecord]. A GET of OutputPath has the fields of a [carrel.OutputQuery] (process,
// serial, from, most, and wait in milliseconds). It is answered by a [carrel.ProcessOutput], or by
// 410 if the guest knows no such process. Both need the access token.
const (
	ProcessesPath = "/carrel/processes"
	OutputPath    = "/carrel/output"
	// OutputWait is the longest time that the guest holds a request for output.
	OutputWait = 20 * time.Second
	// KeepHeader, in a request that starts a process, makes the guest keep the process's last
	// output and its exit status after its end, even if the client knows the end.
	KeepHeader = "Carrel-Keep-Output"
)

// How much a guest keeps: bytes of each process, bytes of all together, and ended processes. A
// simulated sandbox keeps less.
const (
	KeptProcess = 1 << 20
	KeptTotal   = 4 << 20
	KeptEnded   = 64
)

// maxRecords bounds a list of records.
const maxRecords = 4 << 20

// Records implements carrel.KeptOutput.
func (c *Conn) Records(ctx context.Context) ([]carrel.ProcessRecord, error) {
	out := []carrel.ProcessRecord{}
	err := c.getKept(ctx, "list processes", ProcessesPath, maxRecords, &out)
	return out, err
}

// Output implements carrel.KeptOutput. It checks the answer, because the guest is not trusted.
func (c *Conn) Output(ctx context.Context, q carrel.OutputQuery) (carrel.ProcessOutput, error) {
	const op = "read output"
	v := url.Values{}
	for name, n := range map[string]int64{"serial": q.Serial, "from": q.From, "most": int64(q.Most), "wait": q.Wait.Milliseconds()} {
		switch {
		case n < 0:
			return carrel.ProcessOutput{}, c.invalid(op, name, "%d is negative", n)
		case n > 0:
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if q.Process != "" {
		v.Set("process", q.Process)
	}
	var out carrel.ProcessOutput
	if err := c.getKept(ctx, op, OutputPath+"?"+v.Encode(), maxJSON, &out); err != nil {
		return carrel.ProcessOutput{}, err
	}
	var n int64
	for _, p := range out.Pieces {
		n += int64(len(p.Data))
	}
	other := out.Serial <= 0 || q.Serial != 0 && out.Serial != q.Serial
	if other || out.From < 0 || out.Next-out.From != n || out.Next > out.Written || n > 0 && out.From < q.From || q.Most > 0 && n > int64(q.Most) {
		return carrel.ProcessOutput{}, c.fail(op, errors.New("the guest's answer contradicts itself"))
	}
	return out, nil
}

// getKept sends the guest a request about kept output.
func (c *Conn) getKept(ctx context.Context, op, path string, most int64, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return c.fail(op, err)
	}
	resp, err := doer{c}.Do(req)
	if err != nil {
		return c.fail(op, err)
	}
	defer drain(resp.Body)
	switch {
	case resp.StatusCode == http.StatusGone:
		return &carrel.Error{Op: op, Kind: carrel.NotFound, ID: c.opts.ID, Err: errors.New("nothing is kept of such a process"),
			Hint: "carrel ps -a " + string(c.opts.ID)}
	case resp.StatusCode == http.StatusNotFound:
		return &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: c.opts.ID, Err: errors.New("the sandbox was started by a build of carrel that keeps no output")}
	case resp.StatusCode != http.StatusOK:
		return c.httpError(op, resp)
	}
	body := &io.LimitedReader{R: resp.Body, N: most}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		if body.N <= 0 {
			err = fmt.Errorf("the guest's answer is longer than %d bytes", most)
		}
		return c.fail(op, err)
	}
	return nil
}
