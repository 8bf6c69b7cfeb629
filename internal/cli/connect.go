package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/config"
)

// connect returns the service that the flags, the environment, a login or the local daemon's files
// name, in this order.
func (a *app) connect(context.Context) (carrel.Service, error) {
	key, dir := first(a.key, os.Getenv("CARREL_API_KEY")), a.dataDirectory()
	opts := append(trust(dir), client.WithProject(first(a.project, os.Getenv("CARREL_PROJECT"))))
	if l, ok, err := a.loggedIn(time.Now()); err != nil {
		return nil, err
	} else if ok {
		return client.New(l.URL, l.Token, opts...)
	}
	url, err := daemonURL(a)
	if err != nil {
		return nil, err
	}
	if key == "" {
		raw, err := os.ReadFile(filepath.Join(dir, config.KeyFile))
		if err != nil {
			return nil, &carrel.Error{Op: "find the API key", Kind: carrel.Unauthenticated, Err: err,
				Hint: "set CARREL_API_KEY, or --data-dir to the daemon's data directory"}
		}
		key = strings.TrimSpace(string(raw))
	}
	return client.New(url, key, opts...)
}

// daemonURL returns the URL of the daemon that connect uses.
func daemonURL(a *app) (string, error) {
	if url := first(a.url, os.Getenv("CARREL_URL")); url != "" {
		return url, nil
	}
	if l, ok, err := a.loggedIn(time.Now()); err == nil && ok {
		return l.URL, nil
	}
	return localDaemon(a.dataDirectory())
}

// localDaemon reads the address of a data directory's daemon.
func localDaemon(dir string) (string, error) {
	notRunning := func(err error) error {
		return &carrel.Error{Op: "find the daemon", Kind: carrel.Unavailable, Err: err,
			Hint: "start one with: carrel serve   (or name one with --url or CARREL_URL)"}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "daemon.json"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, config.KeyFile)); err == nil { // its first start made the key
			return "", notRunning(fmt.Errorf("the daemon of data directory %s does not run", dir))
		}
		return "", notRunning(fmt.Errorf("none has run with data directory %s", dir))
	}
	if err != nil {
		return "", notRunning(err)
	}
	var d struct {
		URL string `json:"url"`
		Dir string `json:"dir"` // "" from a daemon of an older build
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return "", notRunning(fmt.Errorf("daemon.json: %w", err))
	}
	if isOther(d.Dir, dir) {
		return "", notRunning(fmt.Errorf("%s is a copy of %s: its daemon.json names the daemon of that one", dir, d.Dir))
	}
	return d.URL, nil
}

// isOther reports whether two paths are those of two directories that both exist.
func isOther(one, other string) bool {
	a, errA := os.Stat(one)
	b, errB := os.Stat(other)
	return one != "" && errA == nil && errB == nil && !os.SameFile(a, b)
}

// dataDirectory returns the data directory of a daemon that this user would start.
func (a *app) dataDirectory() string {
	if dir := first(a.dataDir, os.Getenv("CARREL_DATA_DIR"), fileDataDir()); dir != "" {
		return dir
	}
	return config.Default().DataDir
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// withService runs fn with a connected service and closes it afterwards.
func (a *app) withService(ctx context.Context, fn func(carrel.Service) error) error {
	svc, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer svc.Close()
	return fn(svc)
}
