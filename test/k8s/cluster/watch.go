package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Until follows one object from the version that version names, until ok accepts it. Each look is
// an event of a watch, so the time of the return is the time of the change. A watch that the server
// ends is opened again.
func (c *Cluster) Until(ctx context.Context, collection, name, version string, ok func(object json.RawMessage) bool) error {
	for {
		next, done, err := c.watch(ctx, collection, name, version, ok)
		if done || ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		version = next
	}
}

// watch is one watch. It returns the last version that it saw.
func (c *Cluster) watch(ctx context.Context, collection, name, version string, ok func(json.RawMessage) bool) (string, bool, error) {
	query := url.Values{"watch": {"1"}, "resourceVersion": {version}, "fieldSelector": {"metadata.name=" + name}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL+collection+"?"+query.Encode(), nil)
	if err != nil {
		return version, false, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return version, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return version, false, &StatusError{Code: resp.StatusCode, Body: string(text)}
	}
	decoder := json.NewDecoder(resp.Body)
	for {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if decoder.Decode(&event) != nil {
			return version, false, nil // it was ended
		}
		if event.Type == "ERROR" {
			return version, false, fmt.Errorf("watch %s/%s: %s", collection, name, event.Object)
		}
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return version, false, err
		}
		version = object.Metadata.ResourceVersion
		if ok(event.Object) {
			return version, true, nil
		}
	}
}
