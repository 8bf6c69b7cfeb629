package access

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Questions is the inbox of all projects; package service has it.
type Questions interface {
	Questions(ctx context.Context, opts carrel.InboxOptions) (carrel.InboxList, error)
	Answer(ctx context.Context, id, by string, a carrel.Answer, see func(carrel.Question) bool) (carrel.Question, error)
}

// Inbox has the questions of the caller's project, and of all projects for an administrator. A
// reader lists them. Nobody from inside a sandbox, and no visitor, sees or answers any.
type Inbox struct {
	*Service
	Core Questions
}

var _ carrel.Inbox = Inbox{}

// Questions implements carrel.Inbox.
func (i Inbox) Questions(ctx context.Context, opts carrel.InboxOptions) (carrel.InboxList, error) {
	const op = "list questions"
	c, ctx, err := i.user(ctx, op)
	if err != nil {
		return carrel.InboxList{}, err
	}
	if c.Role != carrel.RoleAdmin {
		if opts.Project != "" && opts.Project != c.Project {
			return carrel.InboxList{}, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "project",
				Err: errors.New("only an administrator names a project")}
		}
		opts.Project = c.Project
	}
	return i.Core.Questions(ctx, opts)
}

// Answer implements carrel.Inbox.
func (i Inbox) Answer(ctx context.Context, id string, a carrel.Answer) (carrel.Question, error) {
	c, ctx, err := i.user(ctx, "answer question")
	if err != nil {
		return carrel.Question{}, err
	}
	by := "key " + c.Key
	if c.Person != "" {
		by = c.Key // "person:NAME"
	}
	q, err := i.Core.Answer(ctx, id, by, a, func(q carrel.Question) bool { return c.Sees(q.Project) })
	request.Touch(ctx, id)
	if err == nil {
		request.Touch(ctx, string(q.Sandbox))
	}
	return q, err
}
