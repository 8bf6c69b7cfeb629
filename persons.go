package carrel

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Person is a human being who signs in and acts in projects. A person has no right by itself: only
// as a member of projects and organisations, or by groups of the identity provider.
type Person struct {
	ID string `json:"id"` // a UUID
	// Name is what the person signs in with, and how members are named: an email address, or a
	// word. Only one person has it.
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
	// Password and Provider say how the person signs in.
	Password bool      `json:"password,omitempty"`
	Provider bool      `json:"provider,omitempty"`
	Created  time.Time `json:"created"`
	// CreatedBy is the name of the caller who made it; "" is the first sign-in at the provider.
	CreatedBy string `json:"createdBy,omitempty"`
	// LastSeen is accurate to a minute or so.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Disabled is when the person lost all access; zero for one that may sign in.
	Disabled time.Time `json:"disabled,omitzero"`
}

// NewPerson says what person to make.
type NewPerson struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
	// Provider makes a person who signs in at the identity provider, with this verified email
	// address as the name. Otherwise the person gets a password.
	Provider bool `json:"provider,omitempty"`
	// Password is the first password; "" makes one.
	Password string `json:"password,omitempty"`
}

// IssuedPerson is a person with the password that was made. It is told only here.
type IssuedPerson struct {
	Person
	NewPassword string `json:"newPassword,omitempty"`
}

// PersonUpdate changes a person. A nil field changes nothing.
type PersonUpdate struct {
	Disabled *bool   `json:"disabled,omitempty"`
	Email    *string `json:"email,omitempty"`
}

// PasswordChange says how a password changes.
type PasswordChange struct {
	// Old is the password until now. An administrator of the machine need not know it.
	Old string `json:"old,omitempty"`
	// New is the next password; "" makes one.
	New string `json:"new,omitempty"`
}

// Member is a person's right in a project, or in each project of an organisation.
type Member struct {
	Project      string `json:"project,omitempty"`
	Organisation string `json:"organisation,omitempty"`
	// Person is the person's name. There need be no such person yet: the right waits.
	Person string `json:"person"`
	// Role is what the person may do, as the scope of a key.
	Role  KeyScope  `json:"role"`
	Since time.Time `json:"since,omitzero"`
	By    string    `json:"by,omitempty"` // the name of the caller who gave the right
	// Group says that it is by a group of the identity provider, and can't be removed here.
	Group string `json:"group,omitempty"`
}

// Organisation is a set of projects with members in common.
type Organisation struct {
	Name     string    `json:"name"`
	Projects []string  `json:"projects"`
	Created  time.Time `json:"created,omitzero"`
}

// Membership is a project of a caller and the role in it.
type Membership struct {
	Project string `json:"project"`
	Role    Role   `json:"role"`
}

// Self is what a caller knows about itself.
type Self struct {
	Name string `json:"name"`
	// Person is the ID of the [Person] who asks; "" for a key.
	Person string `json:"person,omitempty"`
	KeyID  string `json:"keyID,omitempty"`
	// Project is the one that the request is about; "" if a person with several named none.
	Project string `json:"project,omitempty"`
	Role    Role   `json:"role"`
	// Projects are all projects that a person may name.
	Projects []Membership `json:"projects,omitempty"`
	// Expires is when the session or the key ends; zero is never.
	Expires time.Time `json:"expires,omitzero"`
}

// Persons is the set of people, and of their rights. People and organisations are for
// administrators of the machine, except that everybody may know the own person and change the own
// password. Owners of a project also manage its members.
type Persons interface {
	// Self tells who the caller is.
	Self(ctx context.Context) (Self, error)

	// People returns all people by name. Error: Forbidden.
	People(ctx context.Context) ([]Person, error)
	// GetPerson returns one person, by ID or name. Errors: NotFound, Forbidden.
	GetPerson(ctx context.Context, idOrName string) (Person, error)
	// CreatePerson makes a person. Errors: Invalid, AlreadyExists, Exhausted, Forbidden.
	CreatePerson(ctx context.Context, n NewPerson) (IssuedPerson, error)
	// UpdatePerson changes a person. Disabling cuts sessions and streams at once. Errors: NotFound,
	// Invalid, Forbidden.
	UpdatePerson(ctx context.Context, idOrName string, u PersonUpdate) (Person, error)
	// SetPassword gives a person another password, and ends all sessions but the asking one.
	// Errors: NotFound, Invalid, Forbidden, Exhausted (too many attempts).
	SetPassword(ctx context.Context, idOrName string, p PasswordChange) (IssuedPerson, error)
	// DeletePerson removes a person with all sessions and memberships. Errors: NotFound, Forbidden.
	DeletePerson(ctx context.Context, idOrName string) error

	// Members returns the rights in a project, or those that an organisation gives. With neither it
	// is the caller's project. Errors: NotFound, Forbidden.
	Members(ctx context.Context, project, organisation string) ([]Member, error)
	// SetMember gives a right, or changes its role. Errors: Invalid, NotFound, Exhausted, Forbidden.
	SetMember(ctx context.Context, m Member) (Member, error)
	// DeleteMember takes a right away, and cuts the streams that it opened. Errors: NotFound,
	// Forbidden.
	DeleteMember(ctx context.Context, m Member) error

	// Organisations returns all organisations by name. Error: Forbidden.
	Organisations(ctx context.Context) ([]Organisation, error)
	// CreateOrganisation makes an organisation. Errors: Invalid, AlreadyExists, Exhausted, Forbidden.
	CreateOrganisation(ctx context.Context, name string) (Organisation, error)
	// SetOrganisation replaces the projects of an organisation. Errors: NotFound (also for a
	// project), Forbidden.
	SetOrganisation(ctx context.Context, name string, projects []string) (Organisation, error)
	// DeleteOrganisation removes an organisation. Its projects stay. Errors: NotFound, Forbidden.
	DeleteOrganisation(ctx context.Context, name string) error
}

const (
	maxPersonName  = 100
	minPassword    = 12
	maxPassword    = 256
	personAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789._-@+"
)

// PersonName returns the form in which a person's name is kept: in small letters. The names of
// people stand in logs, headers and records, so they have no character that means something there.
// Error: Invalid.
func PersonName(name string) (string, error) {
	low := strings.ToLower(strings.TrimSpace(name))
	if low == "" || len(low) > maxPersonName || strings.HasPrefix(low, "-") ||
		strings.ContainsFunc(low, func(c rune) bool { return !strings.ContainsRune(personAlphabet, c) }) {
		return "", &Error{Op: "name person", Kind: Invalid, Field: "person",
			Err: fmt.Errorf("%.80q is not 1 to %d letters, digits and . _ - @ +", name, maxPersonName)}
	}
	return low, nil
}

// CheckPassword says what is wrong with a new password, with an Error of kind Invalid. A long one
// is enough: nobody has to use certain characters.
func CheckPassword(password string) error {
	if n := len(password); n < minPassword || n > maxPassword {
		return &Error{Op: "set password", Kind: Invalid, Field: "password",
			Err: fmt.Errorf("it has %d bytes, and needs %d to %d", n, minPassword, maxPassword)}
	}
	return nil
}

// NoPersons is a [Persons] for services that have one caller.
type NoPersons struct{}

const noPersons = "people"

// Self implements Persons.
func (NoPersons) Self(context.Context) (Self, error) { return Self{}, lacking("who am I", noPersons) }

// People implements Persons.
func (NoPersons) People(context.Context) ([]Person, error) {
	return nil, lacking("list people", noPersons)
}

// GetPerson implements Persons.
func (NoPersons) GetPerson(context.Context, string) (Person, error) {
	return Person{}, lacking("get person", noPersons)
}

// CreatePerson implements Persons.
func (NoPersons) CreatePerson(context.Context, NewPerson) (IssuedPerson, error) {
	return IssuedPerson{}, lacking("create person", noPersons)
}

// UpdatePerson implements Persons.
func (NoPersons) UpdatePerson(context.Context, string, PersonUpdate) (Person, error) {
	return Person{}, lacking("update person", noPersons)
}

// SetPassword implements Persons.
func (NoPersons) SetPassword(context.Context, string, PasswordChange) (IssuedPerson, error) {
	return IssuedPerson{}, lacking("set password", noPersons)
}

// DeletePerson implements Persons.
func (NoPersons) DeletePerson(context.Context, string) error {
	return lacking("delete person", noPersons)
}

// Members implements Persons.
func (NoPersons) Members(context.Context, string, string) ([]Member, error) {
	return nil, lacking("list members", noPersons)
}

// SetMember implements Persons.
func (NoPersons) SetMember(context.Context, Member) (Member, error) {
	return Member{}, lacking("set member", noPersons)
}

// DeleteMember implements Persons.
func (NoPersons) DeleteMember(context.Context, Member) error {
	return lacking("delete member", noPersons)
}

// Organisations implements Persons.
func (NoPersons) Organisations(context.Context) ([]Organisation, error) {
	return nil, lacking("list organisations", noPersons)
}

// CreateOrganisation implements Persons.
func (NoPersons) CreateOrganisation(context.Context, string) (Organisation, error) {
	return Organisation{}, lacking("create organisation", noPersons)
}

// SetOrganisation implements Persons.
func (NoPersons) SetOrganisation(context.Context, string, []string) (Organisation, error) {
	return Organisation{}, lacking("set organisation", noPersons)
}

// DeleteOrganisation implements Persons.
func (NoPersons) DeleteOrganisation(context.Context, string) error {
	return lacking("delete organisation", noPersons)
}
