package front

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// vault keeps the secrets of all projects the same on all nodes. Each node injects them by itself.
// The fleet's database has a sealed copy for nodes that join later. The key is derived from the
// fleet's authority, which is in the same database: the seal keeps secrets out of dumps of one table
// and of logs, and nothing more.
type vault struct {
	registry fleet.Registry
	nodes    *nodes
	seal     cipher.AEAD
	log      *slog.Logger

	changing sync.Mutex // one change, or one look at nodes that lack secrets, at a time
}

func newVault(r fleet.Registry, n *nodes, authorityKey []byte, log *slog.Logger) *vault {
	return &vault{registry: r, nodes: n, seal: sealer(derived(authorityKey, "carrel fleet secrets")), log: log}
}

// sealer seals with a key of 32 bytes.
func sealer(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for keys of another length
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for ciphers with other blocks
	}
	return seal
}

// derived is a key of 32 bytes for one purpose, which all fronts of the fleet derive alike.
func derived(authorityKey []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, authorityKey, nil, purpose, 32)
	if err != nil {
		panic(err) // only for a length that SHA-256 can't give
	}
	return key
}

// of returns the secrets of a project.
func (v *vault) of(project string) carrel.Secrets { return projectSecrets{v, project} }

// projectSecrets are the secrets of one project.
type projectSecrets struct {
	*vault
	project string
}

var _ carrel.Secrets = projectSecrets{}

// bound is what the seal of a secret is for.
func bound(project, name string) []byte { return []byte(project + "\x00" + name) }

func (s projectSecrets) keep(ctx context.Context, n carrel.NewSecret) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return s.registry.PutSecret(ctx, fleet.SealedSecret{Project: s.project, Name: n.Name,
		Sealed: s.seal.Seal(nil, nil, raw, bound(s.project, n.Name))})
}

func (v *vault) unseal(s fleet.SealedSecret) (n carrel.NewSecret, err error) {
	raw, err := v.seal.Open(nil, nil, s.Sealed, bound(s.Project, s.Name))
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	return n, err
}

// everywhere makes a change on all nodes. All must answer: a secret that was changed must not work
// on in one of them.
func (s projectSecrets) everywhere(ctx context.Context, op string, fn func(context.Context, carrel.Secrets) error) error {
	ready, err := s.nodes.every(op, "secret")
	if err != nil {
		return err
	}
	for _, n := range ready {
		c, err := s.nodes.client(n.Name, s.project)
		if err == nil {
			err = fn(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CreateSecret implements carrel.Secrets. If a node refuses it, it is taken back from the others.
func (s projectSecrets) CreateSecret(ctx context.Context, n carrel.NewSecret) (out carrel.Secret, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	var made []carrel.Secrets
	err = s.everywhere(ctx, "create secret", func(ctx context.Context, on carrel.Secrets) error {
		got, err := on.CreateSecret(ctx, n)
		if err == nil {
			out, made = got, append(made, on)
		}
		return err
	})
	if err == nil {
		err = s.keep(ctx, n)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
		defer cancel()
		for _, on := range made {
			err = errors.Join(err, on.DeleteSecret(undo, n.Name))
		}
		return carrel.Secret{}, err
	}
	return out, nil
}

// UpdateSecret implements carrel.Secrets.
func (s projectSecrets) UpdateSecret(ctx context.Context, ref, value string, metadata map[string]string) (out carrel.Secret, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	n, err := s.kept(ctx, ref)
	if err != nil {
		return out, err
	}
	if n.Value = value; metadata != nil {
		n.Metadata = metadata
	}
	err = s.everywhere(ctx, "update secret", func(ctx context.Context, on carrel.Secrets) error {
		got, err := on.UpdateSecret(ctx, n.Name, value, metadata)
		if err == nil {
			out = got
		}
		return err
	})
	if err == nil {
		err = s.keep(ctx, n)
	}
	return out, err
}

// kept returns the sealed copy of a secret.
func (s projectSecrets) kept(ctx context.Context, ref string) (n carrel.NewSecret, err error) {
	got, err := s.GetSecret(ctx, ref) // it may be an ID
	if err != nil {
		return n, err
	}
	all, err := s.registry.Secrets(ctx)
	if err != nil {
		return n, err
	}
	i := slices.IndexFunc(all, func(k fleet.SealedSecret) bool { return k.Project == s.project && k.Name == got.Name })
	if i < 0 {
		return n, &carrel.Error{Op: "update secret", Kind: carrel.NotFound, Field: "name", Err: errors.New("this secret was made on a node, not at a front"),
			Hint: "delete it and make it anew"}
	}
	return s.unseal(all[i])
}

// GetSecret implements carrel.Secrets.
func (s projectSecrets) GetSecret(ctx context.Context, ref string) (carrel.Secret, error) {
	on, err := s.any("get secret")
	if err != nil {
		return carrel.Secret{}, err
	}
	got, err := on.GetSecret(ctx, ref)
	if carrel.KindOf(err) != carrel.NotFound {
		return got, err
	}
	// Each node gives a secret an ID of its own.
	ready, _ := s.nodes.ready()
	for _, n := range ready {
		if c, cerr := s.nodes.client(n.Name, s.project); cerr == nil {
			if other, oerr := c.GetSecret(ctx, ref); oerr == nil {
				return other, nil
			}
		}
	}
	return got, err
}

// any returns the secrets on one node that answers.
func (s projectSecrets) any(op string) (carrel.Secrets, error) {
	ready, _ := s.nodes.ready()
	if len(ready) == 0 {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes, RetryAfter: time.Second}
	}
	return s.nodes.client(ready[0].Name, s.project)
}

// ListSecrets implements carrel.Secrets.
func (s projectSecrets) ListSecrets(ctx context.Context) ([]carrel.Secret, error) {
	on, err := s.any("list secrets")
	if err != nil {
		return nil, err
	}
	return on.ListSecrets(ctx)
}

// DeleteSecret implements carrel.Secrets.
func (s projectSecrets) DeleteSecret(ctx context.Context, ref string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	got, err := s.GetSecret(ctx, ref)
	if err != nil {
		return err
	}
	// First the copy: a node that joins just now must not bring it back.
	if err := s.registry.DropSecret(ctx, s.project, got.Name); err != nil {
		return err
	}
	return s.everywhere(ctx, "delete secret", func(ctx context.Context, on carrel.Secrets) error {
		if err := on.DeleteSecret(ctx, got.Name); carrel.KindOf(err) != carrel.NotFound {
			return err
		}
		return nil
	})
}

// leastHidden is the length of the shortest value that is hidden in texts. Shorter ones would be found
// in ordinary words.
const leastHidden = 6

// values are the values of a project's secrets, each with the text that hides it. A value may contain
// another one, so the longer one comes first.
func (v *vault) values(ctx context.Context, project string) (pairs []string, err error) {
	all, err := v.registry.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	var list []carrel.NewSecret
	for _, s := range all {
		if s.Project != project {
			continue
		}
		n, err := v.unseal(s)
		if err != nil {
			return nil, err
		}
		if len(n.Value) >= leastHidden {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b carrel.NewSecret) int { return len(b.Value) - len(a.Value) })
	for _, n := range list {
		pairs = append(pairs, n.Value, "[redacted: secret "+n.Name+"]")
	}
	return pairs, nil
}

// run gives secrets to nodes that lack them, until ctx ends.
func (v *vault) run(ctx context.Context) {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for {
		if err := v.share(ctx); err != nil && ctx.Err() == nil {
			v.log.Warn("give secrets to the nodes", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// share gives each node the secrets that it lacks.
func (v *vault) share(ctx context.Context) error {
	v.changing.Lock()
	defer v.changing.Unlock()
	all, err := v.registry.Secrets(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	byProject := map[string][]fleet.SealedSecret{}
	for _, s := range all {
		byProject[s.Project] = append(byProject[s.Project], s)
	}
	ready, _ := v.nodes.ready()
	var errs []error
	for _, n := range ready {
		for project, list := range byProject {
			errs = append(errs, v.give(ctx, n.Name, project, list))
		}
	}
	return errors.Join(errs...)
}

func (v *vault) give(ctx context.Context, node, project string, list []fleet.SealedSecret) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	c, err := v.nodes.client(node, project)
	if err != nil {
		return err
	}
	have, err := c.ListSecrets(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if slices.ContainsFunc(have, func(h carrel.Secret) bool { return h.Name == s.Name }) {
			continue
		}
		n, err := v.unseal(s)
		if err == nil {
			_, err = c.CreateSecret(ctx, n)
		}
		if err != nil && carrel.KindOf(err) != carrel.AlreadyExists {
			return fmt.Errorf("secret %s of project %s, node %s: %w", s.Name, project, node, err)
		}
	}
	return nil
}
