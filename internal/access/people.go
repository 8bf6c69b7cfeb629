package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// maxKeys bounds the working keys of a project, and maxProjects the projects.
	maxKeys     = 1000
	maxProjects = 10000
	// maxOverlap bounds how long an old secret works beside a new one.
	maxOverlap = 30 * 24 * time.Hour
)

// People is [carrel.People] as each caller sees it. It is safe for concurrent use.
type People struct {
	service *Service
	dir     *Directory
}

var _ carrel.People = (*People)(nil)

// NewPeople returns the projects and keys of a directory, to the callers of a service.
func NewPeople(s *Service, d *Directory) *People { return &People{s, d} }

// owner checks that the caller may manage keys.
func (p *People) owner(ctx context.Context, op string) (carrel.Caller, error) {
	c, _, err := p.service.user(ctx, op)
	if err == nil && c.Role != carrel.RoleAdmin && c.Role != carrel.RoleOwner {
		err = &carrel.Error{Op: op, Kind: carrel.Forbidden,
			Err:  errors.New("keys are for administrators of the project, and this key has another scope"),
			Hint: "use a key with the scope admin, or the daemon's own"}
	}
	return c, err
}

// Projects implements carrel.People.
func (p *People) Projects(ctx context.Context) ([]carrel.Project, error) {
	c, _, err := p.service.user(ctx, "list projects")
	if err != nil {
		return nil, err
	}
	if c.Role == carrel.RoleAdmin {
		return p.dir.allProjects(), nil
	}
	if c.Person != "" {
		return p.dir.projectsOf(c.Person), nil
	}
	own, _ := p.dir.project(c.Project) // an administrator may act for one without a record
	own.Name = c.Project
	return []carrel.Project{own}, nil
}

// GetProject implements carrel.People.
func (p *People) GetProject(ctx context.Context, name string) (carrel.Project, error) {
	const op = "get project"
	c, _, err := p.service.user(ctx, op)
	if err != nil {
		return carrel.Project{}, err
	}
	if found, ok := p.dir.project(name); ok && c.Sees(name) {
		return found, nil
	}
	for _, own := range p.dir.projectsOf(c.Person) {
		if own.Name == name {
			return own, nil
		}
	}
	return carrel.Project{}, noProject(op, name)
}

func noProject(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "project",
		Err:  fmt.Errorf("no project %s", clip(name)),
		Hint: "'carrel project list' lists them, and 'carrel project create' makes one"}
}

// machine checks that the caller is an administrator of the machine.
func (p *People) machine(ctx context.Context, op string) error {
	_, ctx, err := p.service.user(ctx, op)
	if err == nil {
		err = carrel.RequireAdmin(ctx, op)
	}
	return err
}

// CreateProject implements carrel.People.
func (p *People) CreateProject(ctx context.Context, name string) (carrel.Project, error) {
	const op = "create project"
	if err := p.machine(ctx, op); err != nil {
		return carrel.Project{}, err
	}
	if err := carrel.CheckProject(name); err != nil {
		return carrel.Project{}, err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.projectLocked(name); known {
		return carrel.Project{}, &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name",
			Err: fmt.Errorf("there is a project %s already", clip(name))}
	}
	if len(d.projects) >= maxProjects {
		return carrel.Project{}, &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "projects",
			Err:  fmt.Errorf("there are %d projects, and no more may be", maxProjects),
			Hint: "remove some: carrel project rm"}
	}
	request.Touch(ctx, name)
	made := carrel.Project{Name: name, ID: carrel.TeamID(name), Created: time.Now().UTC()}
	return made, d.applyLocked(ctx, state.Change{PutProjects: []state.ProjectRecord{{Project: made}}})
}

// DeleteProject implements carrel.People.
func (p *People) DeleteProject(ctx context.Context, name string) error {
	const op = "delete project"
	if err := p.machine(ctx, op); err != nil {
		return err
	}
	if name == carrel.DefaultProject {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name",
			Err: errors.New("the default project always exists")}
	}
	if _, known := p.dir.project(name); !known {
		return noProject(op, name)
	}
	if err := p.emptyOf(ctx, op, name); err != nil {
		return err
	}
	d, now := p.dir, time.Now().UTC()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := state.Change{DeleteProjects: []string{name}}
	for _, live := range d.keys {
		if rec := *live.rec.Load(); rec.Key.Project == name && rec.Key.Revoked.IsZero() {
			rec.Key.Revoked = now
			c.PutKeys = append(c.PutKeys, rec)
		}
	}
	for _, rec := range d.roll.organisations {
		if i := slices.Index(rec.Organisation.Projects, name); i >= 0 {
			rec.Organisation.Projects = slices.Delete(slices.Clone(rec.Organisation.Projects), i, i+1)
			c.PutOrganisations = append(c.PutOrganisations, rec)
		}
	}
	return d.applyLocked(ctx, c)
}

// emptyOf refuses to remove a project that still owns something.
func (p *People) emptyOf(ctx context.Context, op, name string) error {
	core := p.service.opts.Core
	what := ""
	boxes, err := core.List(ctx, carrel.ListOptions{Project: name, Limit: 1})
	if len(boxes.Sandboxes) > 0 {
		what = "sandboxes"
	}
	if err == nil && what == "" {
		var snaps carrel.SnapshotPage
		if snaps, err = core.ListSnapshots(ctx, carrel.SnapshotListOptions{Project: name, Auto: true, Limit: 1}); len(snaps.Snapshots) > 0 {
			what = "snapshots"
		}
	}
	if err == nil && what == "" {
		var all []carrel.Template
		all, err = core.ListTemplates(ctx)
		for _, t := range all {
			if t.Project == name {
				what = "templates"
			}
		}
	}
	if err == nil && what == "" {
		var secrets []carrel.Secret
		if secrets, err = p.service.opts.Secrets(name).ListSecrets(ctx); carrel.KindOf(err) == carrel.Unsupported {
			err = nil
		}
		if len(secrets) > 0 {
			what = "secrets"
		}
	}
	if err != nil || what == "" {
		return err
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "name",
		Err:  fmt.Errorf("project %s still owns %s", clip(name), what),
		Hint: "remove them first: carrel --project " + name + " kill --all; then snapshot rm, template rm, secret rm"}
}

// Keys implements carrel.People.
func (p *People) Keys(ctx context.Context) ([]carrel.APIKey, error) {
	c, err := p.owner(ctx, "list keys")
	if err != nil {
		return nil, err
	}
	return p.dir.list(scope(c)), nil
}

// find returns the key that a caller means. The caller holds the directory's lock.
func (p *People) find(op string, c carrel.Caller, ref string) (*liveKey, error) {
	live := p.dir.keys[strings.ToLower(ref)]
	if live != nil && !c.Sees(live.rec.Load().Key.Project) {
		live = nil
	}
	if live == nil {
		live = p.dir.namedLocked(c.Project, ref, time.Now())
	}
	if live == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "key",
			Err:  fmt.Errorf("no key %s", clip(ref)),
			Hint: "'carrel key list' lists them"}
	}
	return live, nil
}

// GetKey implements carrel.People.
func (p *People) GetKey(ctx context.Context, idOrName string) (carrel.APIKey, error) {
	const op = "get key"
	c, err := p.owner(ctx, op)
	if err != nil {
		return carrel.APIKey{}, err
	}
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	live, err := p.find(op, c, idOrName)
	if err != nil {
		return carrel.APIKey{}, err
	}
	return live.now(), nil
}

// mayExpire checks the end of a key that c makes or changes. Otherwise the holder of a key for a
// while could make himself one for good.
func (p *People) mayExpire(op string, c carrel.Caller, at, now time.Time) error {
	if !at.IsZero() && !at.After(now) {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "expires",
			Err: fmt.Errorf("%s is past", at.Format(time.RFC3339))}
	}
	own := p.dir.keys[c.KeyID]
	if own == nil {
		return nil
	}
	if end := own.rec.Load().Key.Expires; !end.IsZero() && (at.IsZero() || at.After(end)) {
		return &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "expires",
			Err:  fmt.Errorf("the key that asks expires at %s, and makes none that lives longer", end.Format(time.RFC3339)),
			Hint: "give an earlier time"}
	}
	return nil
}

// CreateKey implements carrel.People.
func (p *People) CreateKey(ctx context.Context, n carrel.NewKey) (carrel.IssuedKey, error) {
	const op = "create key"
	none := carrel.IssuedKey{}
	c, err := p.owner(ctx, op)
	if err != nil {
		return none, err
	}
	if err := carrel.CheckKeyName(n.Name); err != nil {
		return none, err
	}
	if n.Project == "" {
		n.Project = c.Project
	}
	if n.Scope == "" {
		n.Scope = carrel.ScopeRun
	}
	if n.Scope.Role() == "" {
		return none, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "scope",
			Err: fmt.Errorf("%s is not read, run or admin", clip(string(n.Scope)))}
	}
	limits, err := limitsOf(op, n)
	if err != nil {
		return none, err
	}
	d, now := p.dir, time.Now().UTC()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.projectLocked(n.Project); !known || !c.Sees(n.Project) {
		return none, noProject(op, n.Project)
	}
	if err := p.mayExpire(op, c, n.Expires, now); err != nil {
		return none, err
	}
	if d.namedLocked(n.Project, n.Name, now) != nil {
		return none, nameTaken(op, n.Name)
	}
	if err := p.roomLocked(op, n.Project, now); err != nil {
		return none, err
	}
	prefix := secretPrefix
	if n.Token {
		prefix = tokenPrefix
	}
	secret, mask, sum := newSecret(prefix)
	key := carrel.APIKey{ID: newUUID(), Name: n.Name, Project: n.Project, Scope: n.Scope,
		Mask: mask, Token: n.Token,
		Created: now, CreatedBy: c.Key, Expires: n.Expires.UTC()}
	if n.Expires.IsZero() {
		key.Expires = time.Time{}
	}
	rec := state.KeyRecord{Key: key, Sum: sum, Allowance: limits}
	err = d.applyLocked(ctx, state.Change{PutKeys: []state.KeyRecord{rec}})
	if err != nil {
		return none, err
	}
	request.Touch(ctx, key.ID)
	request.Touch(ctx, key.Name)
	return carrel.IssuedKey{APIKey: key, Secret: secret}, nil
}

// limitsOf checks the quota and the ceiling with which a key is born. They are in its first record,
// so it never works without them.
func limitsOf(op string, n carrel.NewKey) (state.Allowance, error) {
	var out state.Allowance
	if n.Quota != nil && !n.Quota.IsZero() {
		if err := carrel.CheckQuota(*n.Quota); err != nil {
			return out, err
		}
		out.Quota = n.Quota
	}
	if n.Ceiling != nil && !n.Ceiling.IsZero() {
		if err := ceiling.Check(*n.Ceiling); err != nil {
			return out, err
		}
		out.Ceiling = n.Ceiling
	}
	if out != (state.Allowance{}) && n.Scope == carrel.ScopeAdmin {
		return out, adminLimits(op, n.Name)
	}
	return out, nil
}

// adminLimits is the error for limits of a key that can get round them.
func adminLimits(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "key",
		Err: fmt.Errorf("the key %s has the scope admin: it could make itself another key "+
			"without the limit", clip(name)),
		Hint: "limit the project, or a key with the scope run"}
}

func nameTaken(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name",
		Err:  fmt.Errorf("the project has a key %s already", clip(name)),
		Hint: "choose another name, or rotate that key: carrel key rotate"}
}

// roomLocked refuses one more key in a project that has too many.
func (p *People) roomLocked(op, project string, now time.Time) error {
	n := 0
	for _, live := range p.dir.keys {
		if k := live.rec.Load().Key; k.Project == project && k.Works(now) {
			n++
		}
	}
	if n < maxKeys {
		return nil
	}
	return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "keys",
		Err: fmt.Errorf("the project has %d keys, and no more may be", n), Hint: "revoke some: carrel key revoke"}
}

// change changes the record of a key that works.
func (p *People) change(ctx context.Context, op, ref string,
	fn func(c carrel.Caller, rec *state.KeyRecord, now time.Time) error) (carrel.APIKey, error) {
	c, err := p.owner(ctx, op)
	if err != nil {
		return carrel.APIKey{}, err
	}
	d, now := p.dir, time.Now().UTC()
	d.mu.Lock()
	defer d.mu.Unlock()
	live, err := p.find(op, c, ref)
	if err != nil {
		return carrel.APIKey{}, err
	}
	rec := *live.rec.Load()
	if err := fn(c, &rec, now); err != nil {
		return carrel.APIKey{}, err
	}
	if rec == *live.rec.Load() {
		return live.now(), nil
	}
	return rec.Key, d.applyLocked(ctx, state.Change{PutKeys: []state.KeyRecord{rec}})
}

// works refuses a change of a key that works no more.
func works(op string, k carrel.APIKey, now time.Time) error {
	if k.Works(now) {
		return nil
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "key",
		Err:  fmt.Errorf("the key %s was revoked or has expired", clip(k.Name)),
		Hint: "make another: carrel key create"}
}

// UpdateKey implements carrel.People.
func (p *People) UpdateKey(ctx context.Context, idOrName string, u carrel.KeyUpdate) (carrel.APIKey, error) {
	const op = "update key"
	if u.Name != nil {
		if err := carrel.CheckKeyName(*u.Name); err != nil {
			return carrel.APIKey{}, err
		}
	}
	return p.change(ctx, op, idOrName, func(c carrel.Caller, rec *state.KeyRecord, now time.Time) error {
		if err := works(op, rec.Key, now); err != nil {
			return err
		}
		if u.Name != nil && *u.Name != rec.Key.Name {
			if p.dir.namedLocked(rec.Key.Project, *u.Name, now) != nil {
				return nameTaken(op, *u.Name)
			}
			rec.Key.Name = *u.Name
		}
		if u.Expires != nil {
			if err := p.mayExpire(op, c, *u.Expires, now); err != nil {
				return err
			}
			if rec.Key.Expires = u.Expires.UTC(); u.Expires.IsZero() {
				rec.Key.Expires = time.Time{}
			}
		}
		return nil
	})
}

// RotateKey implements carrel.People.
func (p *People) RotateKey(ctx context.Context, idOrName string, overlap time.Duration) (carrel.IssuedKey, error) {
	const op = "rotate key"
	if overlap < 0 || overlap > maxOverlap {
		return carrel.IssuedKey{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "overlap",
			Err: fmt.Errorf("%v is not from 0 to %v", overlap, maxOverlap)}
	}
	var secret string
	key, err := p.change(ctx, op, idOrName, func(_ carrel.Caller, rec *state.KeyRecord, now time.Time) error {
		if err := works(op, rec.Key, now); err != nil {
			return err
		}
		prefix := secretPrefix
		if rec.Key.Token {
			prefix = tokenPrefix
		}
		rec.Old, rec.Key.OldUntil = rec.Sum, now.Add(overlap)
		secret, rec.Key.Mask, rec.Sum = newSecret(prefix)
		return nil
	})
	if err != nil {
		return carrel.IssuedKey{}, err
	}
	return carrel.IssuedKey{APIKey: key, Secret: secret}, nil
}

// RevokeKey implements carrel.People.
func (p *People) RevokeKey(ctx context.Context, idOrName string) error {
	_, err := p.change(ctx, "revoke key", idOrName,
		func(_ carrel.Caller, rec *state.KeyRecord, now time.Time) error {
			if rec.Key.Revoked.IsZero() {
				rec.Key.Revoked = now
			}
			return nil
		})
	return err
}
