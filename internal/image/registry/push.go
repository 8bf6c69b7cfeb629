package registry

import "sync"

// mounts remembers where layers are, so that a registry can take one from another of its
// repositories.
type mounts struct {
	mu    sync.Mutex
	repos map[mountKey]string
}

// mountKey is a layer in a registry, as a project sent it.
type mountKey struct{ project, registry, digest string }

func newMounts() *mounts { return &mounts{repos: map[mountKey]string{}} }
