package access

import (
	"context"
	"errors"
	"testing"

	"github.com/carrel-dev/carrel"
)

// oneQuestion is an inbox with a question of project a. It remembers who answered.
type oneQuestion struct{ by string }

func (o *oneQuestion) Questions(_ context.Context, opts carrel.InboxOptions) (carrel.InboxList, error) {
	out := carrel.InboxList{}
	if opts.Project == "" || opts.Project == "a" {
		out.Questions = []carrel.Question{{ID: "q1", Project: "a"}}
	}
	return out, nil
}

func (o *oneQuestion) Answer(_ context.Context, id, by string, _ carrel.Answer, see func(carrel.Question) bool) (carrel.Question, error) {
	q := carrel.Question{ID: "q1", Project: "a"}
	if id != q.ID || !see(q) {
		return carrel.Question{}, &carrel.Error{Kind: carrel.NotFound, Err: errors.New("no such question")}
	}
	o.by = by
	return q, nil
}

// TestInbox checks who sees a question of project a, and who may answer it.
func TestInbox(t *testing.T) {
	for name, c := range map[string]struct {
		caller carrel.Caller
		list   carrel.Kind // "" is no error
		sees   int
		answer carrel.Kind
		by     string
	}{
		"an administrator":   {carrel.Caller{Key: "root", Project: "x", Role: carrel.RoleAdmin}, "", 1, "", "key root"},
		"an owner":           {carrel.Caller{Key: "o", Project: "a", Role: carrel.RoleOwner}, "", 1, "", "key o"},
		"a person":           {carrel.Caller{Key: "person:ann", Person: "id", Project: "a", Role: carrel.RoleMember}, "", 1, "", "person:ann"},
		"a reader":           {carrel.Caller{Key: "r", Project: "a", Role: carrel.RoleReader}, "", 1, carrel.Forbidden, ""},
		"another project":    {carrel.Caller{Key: "b", Project: "b", Role: carrel.RoleOwner}, "", 0, carrel.NotFound, ""},
		"the sandbox itself": {carrel.Caller{Key: "sandbox:i", Role: carrel.RoleSandbox, Sandbox: "i"}, carrel.Forbidden, 0, carrel.Forbidden, ""},
		"a visitor":          {carrel.Caller{Key: "v", Role: carrel.RoleVisitor, Sandbox: "i"}, carrel.Forbidden, 0, carrel.Forbidden, ""},
		"a person of no project": {carrel.Caller{Key: "person:eve", Person: "e", Role: carrel.RolePerson}, carrel.Forbidden, 0,
			carrel.Forbidden, ""},
		"nobody": {carrel.Caller{}, carrel.Forbidden, 0, carrel.Forbidden, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &oneQuestion{}
			in := Inbox{Service: New(Options{}), Core: o}
			ctx := carrel.WithCaller(t.Context(), c.caller)
			list, err := in.Questions(ctx, carrel.InboxOptions{})
			if kindOf(err) != c.list || len(list.Questions) != c.sees {
				t.Errorf("list: %v, %v", list, err)
			}
			if c.caller.Role != carrel.RoleAdmin {
				if list, err := in.Questions(ctx, carrel.InboxOptions{Project: "other"}); err == nil {
					t.Errorf("the list of another project: %v", list)
				}
			}
			_, err = in.Answer(ctx, "q1", carrel.Answer{Answer: carrel.AnswerAllow})
			if kindOf(err) != c.answer || o.by != c.by {
				t.Errorf("answer: %v, by %q", err, o.by)
			}
			if _, err := in.Answer(ctx, "q2", carrel.Answer{Answer: carrel.AnswerAllow}); err == nil {
				t.Error("a guessed ID is answered")
			}
		})
	}
}

// kindOf is the kind of an error; "" for none.
func kindOf(err error) carrel.Kind {
	var none carrel.Kind
	if err == nil {
		return none
	}
	return carrel.KindOf(err)
}
