package statetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// ProjectRecord returns a project's record with every field set, for tests.
func ProjectRecord(name string, created time.Time) state.ProjectRecord {
	return state.ProjectRecord{Project: carrel.Project{Name: name, ID: carrel.TeamID(name), Created: created,
		Default: true}, Members: []carrel.Member{{Project: name, Person: "zoe@example.com",
		Role: carrel.ScopeRead, Since: created, By: "api-key"}}}
}

// PersonRecord returns a person's record with every field set, for tests.
func PersonRecord(id string, created time.Time) state.PersonRecord {
	return state.PersonRecord{Person: carrel.Person{ID: id, Name: "zoe-" + id, Email: "z@example.com",
		Created: created, CreatedBy: "api-key", LastSeen: created.Add(time.Minute),
		Disabled: created.Add(time.Hour)}, Password: "$argon2id$", Provider: true,
		Issuer: "https://example.com", Subject: "\"1\"", Groups: []string{"dev"}}
}

// OrganisationRecord returns an organisation's record with every field set, for tests.
func OrganisationRecord(name string, created time.Time) state.OrganisationRecord {
	return state.OrganisationRecord{Organisation: carrel.Organisation{Name: name,
		Projects: []string{"a", "b"}, Created: created}, Members: []carrel.Member{{
		Organisation: name, Person: "zoe", Role: carrel.ScopeAdmin, Since: created, By: "x"}}}
}

// SessionRecord returns a session's record with every field set, for tests.
func SessionRecord(id string, created time.Time) state.SessionRecord {
	return state.SessionRecord{ID: id, Person: "p", Kind: state.TokenSession, Label: "a laptop",
		Sum: [32]byte{0, 7, 255}, Created: created, Used: created.Add(time.Second),
		Expires: created.Add(time.Hour), Idle: time.Minute}
}

func peopleAndSessionsRoundTrip(t *testing.T, s state.Store) {
	base := now()
	var people []state.PersonRecord
	var orgs []state.OrganisationRecord
	var sessions []state.SessionRecord
	for i, name := range []string{"b", "a", "c"} {
		at := base.Add(time.Duration(i))
		people, orgs = append(people, PersonRecord(name, at)), append(orgs, OrganisationRecord(name, at))
		sessions = append(sessions, SessionRecord(name, at))
	}
	for _, i := range []int{2, 0, 1} {
		ok(t, s.Apply(t.Context(), state.Change{PutPeople: people[i : i+1],
			PutOrganisations: orgs[i : i+1], PutSessions: sessions[i : i+1]}))
	}
	check := func() {
		t.Helper()
		if got := must[[]state.PersonRecord](t)(s.People(t.Context())); !reflect.DeepEqual(got, people) {
			t.Errorf("people %+v\nwant %+v", got, people)
		}
		if got := must[[]state.OrganisationRecord](t)(s.Organisations(t.Context())); !reflect.DeepEqual(got, orgs) {
			t.Errorf("organisations %+v\nwant %+v", got, orgs)
		}
		if got := must[[]state.SessionRecord](t)(s.Sessions(t.Context())); !reflect.DeepEqual(got, sessions) {
			t.Errorf("sessions %+v\nwant %+v", got, sessions)
		}
	}
	check()
	people[1].Person.Disabled, orgs[1].Organisation.Projects = time.Time{}, []string{}
	ok(t, s.Apply(t.Context(), state.Change{PutPeople: people[1:2], PutOrganisations: orgs[1:2],
		DeletePeople: []string{"c", "never"}, DeleteOrganisations: []string{"c"},
		DeleteSessions: []string{"b", "c"}}))
	people, orgs, sessions = people[:2], orgs[:2], sessions[1:2]
	check()
}

// KeyRecord returns a key's record with every field set, for tests.
func KeyRecord(id string, created time.Time) state.KeyRecord {
	return state.KeyRecord{
		Key: carrel.APIKey{ID: id, Name: "Zoë \"quoted\"", Project: "p", Scope: carrel.ScopeRun,
			Mask: "e2b_a1…4f2c", Token: true, Created: created, CreatedBy: "another",
			Expires: created.Add(time.Hour), LastUsed: created.Add(time.Minute),
			OldUntil: created.Add(2 * time.Minute), Revoked: created.Add(3 * time.Minute)},
		Sum: [32]byte{1, 0, 255}, Old: [32]byte{2},
	}
}

func peopleRoundTrip(t *testing.T, s state.Store) {
	base := now()
	var projects []state.ProjectRecord
	var keys []state.KeyRecord
	for i, name := range []string{"b", "a", "c"} {
		at := base.Add(time.Duration(i))
		projects, keys = append(projects, ProjectRecord(name, at)), append(keys, KeyRecord(name, at))
	}
	for _, i := range []int{2, 0, 1} {
		ok(t, s.Apply(t.Context(), state.Change{PutProjects: projects[i : i+1], PutKeys: keys[i : i+1]}))
	}
	check := func() {
		t.Helper()
		if got := must[[]state.ProjectRecord](t)(s.Projects(t.Context())); !reflect.DeepEqual(got, projects) {
			t.Errorf("projects %+v\nwant %+v", got, projects)
		}
		if got := must[[]state.KeyRecord](t)(s.Keys(t.Context())); !reflect.DeepEqual(got, keys) {
			t.Errorf("keys %+v\nwant %+v", got, keys)
		}
	}
	check()
	keys[1].Key.Name, keys[1].Old, keys[1].Key.OldUntil = "renamed", [32]byte{}, time.Time{}
	projects[2].Project.Default = false
	ok(t, s.Apply(t.Context(), state.Change{PutProjects: projects[2:], PutKeys: keys[1:2]}))
	check()
}

// peopleInOneChange puts and deletes projects, keys and a sandbox together.
func peopleInOneChange(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.Apply(t.Context(), state.Change{Put: []state.Record{r},
		PutProjects: []state.ProjectRecord{ProjectRecord("a", now()), ProjectRecord("b", now())},
		PutKeys:     []state.KeyRecord{KeyRecord("1", now()), KeyRecord("2", now())}}))
	ok(t, s.Apply(t.Context(), state.Change{Delete: []carrel.ID{r.Sandbox.ID},
		DeleteProjects: []string{"a", "never"}, DeleteKeys: []string{"2", "never"}}))
	projects := must[[]state.ProjectRecord](t)(s.Projects(t.Context()))
	if len(projects) != 1 || projects[0].Project.Name != "b" {
		t.Errorf("projects %+v", projects)
	}
	keys := must[[]state.KeyRecord](t)(s.Keys(t.Context()))
	if len(keys) != 1 || keys[0].Key.ID != "1" {
		t.Errorf("keys %+v", keys)
	}
	left := must[state.Tombstones](t)(s.Tombstones(t.Context()))
	if len(left.Sandboxes) != 1 || len(left.Snapshots) != 0 {
		t.Errorf("tombstones %+v", left)
	}
	if all := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(all) != 0 {
		t.Errorf("%d sandboxes", len(all))
	}
}
