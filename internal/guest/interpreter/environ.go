package interpreter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxEnviron bounds the sandbox's environment, in bytes of JSON.
const maxEnviron = 4 << 20

// Environ asks a sandbox's guest at url for its environment, with the token that the interpreter's
// client gave. Error: [ErrDenied] if the guest refuses the token.
func Environ(ctx context.Context, client *http.Client, url, token string) (map[string]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Access-Token", token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the sandbox's environment: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return nil, ErrDenied
	case http.StatusOK:
	default:
		return nil, fmt.Errorf("the sandbox's environment: the guest answers %s", resp.Status)
	}
	var env map[string]string
	return env, json.NewDecoder(io.LimitReader(resp.Body, maxEnviron)).Decode(&env)
}
