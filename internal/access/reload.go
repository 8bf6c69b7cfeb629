package access

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// Share says that other programs use the same records. When keys were last used is then not
// written: the record of a use would undo what another program did to the key meanwhile.
func (d *Directory) Share() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shared = true
}

// dropEndedLocked drops sessions whose time is over. No program can make it longer.
func (d *Directory) dropEndedLocked(ctx context.Context) error {
	var c state.Change
	now := time.Now()
	for id, s := range d.roll.sessions {
		if !now.Before(s.rec.Load().Expires) {
			c.DeleteSessions = append(c.DeleteSessions, id)
		}
	}
	if len(c.DeleteSessions) == 0 {
		return nil
	}
	return d.applyLocked(ctx, c)
}

// Reload reads all records again, and takes over what other programs changed. Streams of keys and
// sessions that are gone are cut, and the others stay.
func (d *Directory) Reload(ctx context.Context) error {
	d.mu.Lock() // no change of this program comes between the reading and its effect
	defer d.mu.Unlock()
	var c state.Change
	var errs [5]error
	c.PutProjects, errs[0] = d.records.Projects(ctx)
	c.PutKeys, errs[1] = d.records.Keys(ctx)
	c.PutPeople, errs[2] = d.records.People(ctx)
	c.PutOrganisations, errs[3] = d.records.Organisations(ctx)
	c.PutSessions, errs[4] = d.records.Sessions(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	c.DeleteProjects = missingFrom(d.projects, c.PutProjects, func(r state.ProjectRecord) string { return r.Project.Name })
	c.DeleteKeys = missingFrom(d.keys, c.PutKeys, func(r state.KeyRecord) string { return r.Key.ID })
	c.DeletePeople = missingFrom(d.roll.people, c.PutPeople, func(r state.PersonRecord) string { return r.Person.ID })
	c.DeleteOrganisations = missingFrom(d.roll.organisations, c.PutOrganisations,
		func(r state.OrganisationRecord) string { return r.Organisation.Name })
	c.DeleteSessions = missingFrom(d.roll.sessions, c.PutSessions, func(r state.SessionRecord) string { return r.ID })
	d.takeLocked(c)
	return nil
}

// missingFrom returns the IDs of a map for which a list has no record.
func missingFrom[V, R any](have map[string]V, list []R, id func(R) string) (gone []string) {
	there := make(map[string]bool, len(list))
	for _, r := range list {
		there[id(r)] = true
	}
	for name := range have {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	return gone
}
