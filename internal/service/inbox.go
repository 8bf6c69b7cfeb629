package service

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/policy"
)

// maxInboxWait bounds how long a list of questions waits for a change.
const maxInboxWait = time.Minute

// Inbox has the connections of a service's sandboxes that wait for a person. It checks no caller's
// rights.
type Inbox struct{ networks *networks }

// InboxOf returns the inbox of a service.
func InboxOf(s *Service) Inbox { return Inbox{s.networks} }

// Questions lists the questions that opts selects. Error: Invalid.
func (i Inbox) Questions(ctx context.Context, opts carrel.InboxOptions) (carrel.InboxList, error) {
	if opts.Wait < 0 || opts.Wait > maxInboxWait {
		return carrel.InboxList{}, invalid("list questions", "wait", "%v is not between 0 and %v", opts.Wait, maxInboxWait)
	}
	return i.networks.inbox.List(ctx, opts.Wait, opts.Revision, func(q carrel.Question) bool {
		return (opts.Project == "" || q.Project == opts.Project) && (opts.Sandbox == "" || q.Sandbox == opts.Sandbox)
	}), nil
}

// Answer answers a question that see selects, in the name of by. Errors: those of [carrel.Inbox].
func (i Inbox) Answer(ctx context.Context, id, by string, a carrel.Answer, see func(carrel.Question) bool) (carrel.Question, error) {
	return i.networks.inbox.Answer(id, by, a, see, func(q carrel.Question, key string) error {
		return i.networks.always(ctx, q, key, a.Answer == carrel.AnswerAllow)
	})
}

// ask asks a person about a connection of a sandbox.
func (ne *networks) ask(ctx context.Context, a inbox.Ask) inbox.Reply {
	b, err := ne.table.find("ask a person", a.Sandbox)
	if err != nil {
		return inbox.Reply{Reason: "the sandbox is ending"}
	}
	a.Project = b.record().Sandbox.Project
	return ne.inbox.Ask(ctx, a)
}

// always puts an answer into the policy of a sandbox. It fails if somebody changes the policy at the
// same time: the answer must not undo that.
func (ne *networks) always(ctx context.Context, q carrel.Question, key string, allow bool) error {
	const op = "answer question"
	b, err := ne.table.find(op, q.Sandbox)
	if err != nil {
		return err
	}
	had := b.record().Sandbox.Network
	if had.Policy == nil {
		return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: q.Sandbox, Err: errors.New("the sandbox has another policy now")}
	}
	rules, err := policy.Answered(clonePolicy(*had.Policy), key, allow, q)
	if err != nil {
		return err
	}
	next := cloneNetwork(had)
	next.Policy = &rules
	_, err = ne.change(ctx, q.Sandbox, next, func(now carrel.Network) error {
		if !reflect.DeepEqual(now, had) {
			return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: q.Sandbox,
				Err: errors.New("somebody changes the sandbox's rules at this moment"), Hint: "answer again"}
		}
		return nil
	})
	return err
}

// held is the event of a new question.
func (ne *networks) held(q carrel.Question) {
	f := questionFields(q)
	f["until"] = q.Until.Format(time.RFC3339)
	ne.journal.tell(carrel.Event{Type: carrel.ConnectionHeld, ID: q.Sandbox, Project: q.Project, Fields: f,
		Message: fmt.Sprintf("a connection to %s:%d waits for a person (%s)", q.Host, q.Port, q.Rule)})
}

// answered is the event of an answer.
func (ne *networks) answered(q carrel.Question) {
	f, was := questionFields(q), q.Answered
	f["answer"], f["for"], f["by"] = was.Answer.Answer, was.For, was.By
	ne.journal.tell(carrel.Event{Type: carrel.ConnectionAnswered, ID: q.Sandbox, Project: q.Project, Fields: f,
		Message: fmt.Sprintf("%s answered about %s:%d: %s, for %s", was.By, q.Host, q.Port, was.Answer.Answer, was.For)})
}

// questionFields are a question in the fields of an event.
func questionFields(q carrel.Question) map[string]string {
	f := map[string]string{"question": q.ID, "host": q.Host, "port": fmt.Sprint(q.Port), "protocol": q.Protocol, "rule": q.Rule}
	for name, v := range map[string]string{"method": q.Method, "path": q.Path, "process": q.Process, "address": q.Address} {
		if v != "" {
			f[name] = v
		}
	}
	return f
}
