package carrel

import (
	"context"
	"time"
)

// The types of events about held connections.
const (
	ConnectionHeld     = "connection.held"
	ConnectionAnswered = "connection.answered"
)

// Question is a connection of a sandbox, or a request in one, that its policy holds until a person
// answers. Equal ones are one question.
type Question struct {
	ID      string `json:"id"`
	Sandbox ID     `json:"sandbox"`
	Project string `json:"project,omitempty"`
	// Host is the name that the connection goes to, or its address if no name is certain. A yes is
	// for this host and Port, and nothing else.
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Address is the one that the sandbox chose. A name is looked up again after a yes.
	Address  string `json:"address,omitempty"`
	Protocol string `json:"protocol"` // tcp, tls, http or https, as in a [Decision]
	// Method and Path are those of a request, if the rule is about requests. A yes is for them alone.
	Method  string    `json:"method,omitempty"`
	Path    string    `json:"path,omitempty"` // without the query
	Rule    string    `json:"rule"`
	Process string    `json:"process,omitempty"` // the program inside, if it is known
	Waiting int       `json:"waiting"`           // connections and requests
	Asked   time.Time `json:"asked"`
	Until   time.Time `json:"until"` // without an answer, it is refused then
	// Answered is the answer. Only Inbox.Answer returns a question with one.
	Answered *Answered `json:"answered,omitempty"`
}

// The answers to a [Question].
const (
	AnswerAllow = "allow"
	AnswerDeny  = "deny"
)

// How long an answer holds.
const (
	ForOnce   = "once"   // for what waits now
	ForHour   = "hour"   // for equal questions of this sandbox, as long as this daemon runs
	ForAlways = "always" // it becomes a rule of the sandbox's policy
)

// Answer is a person's answer.
type Answer struct {
	Answer string `json:"answer"`        // AnswerAllow or AnswerDeny
	For    string `json:"for,omitempty"` // "" is ForOnce
}

// Answered is an answer that was given.
type Answered struct {
	Answer
	By   string    `json:"by"` // the key or the person
	Time time.Time `json:"time"`
}

// InboxOptions selects questions.
type InboxOptions struct {
	Project string // for an administrator; "" is all that the caller sees
	Sandbox ID     // "" is all
	// With Wait, the answer comes when the list is another than that of Revision, or after Wait. It
	// is at most a minute.
	Wait     time.Duration
	Revision int64
}

// InboxList is a list of questions, the oldest first. It is bounded, because held connections are.
type InboxList struct {
	Questions []Question `json:"questions"`
	// Revision is another number when the list is another.
	Revision int64 `json:"revision"`
}

// Inbox has the connections that wait for a person. They do not outlive the daemon: nobody can
// answer an old question by mistake.
type Inbox interface {
	// Questions lists what waits in the caller's project; an administrator sees all. Error: Invalid.
	Questions(ctx context.Context, opts InboxOptions) (InboxList, error)
	// Answer answers a question. Errors: NotFound, also if nobody waits any more; Conflict (somebody
	// has answered, or the policy has changed); Forbidden (the key may only read, or the answer for
	// ever is above a ceiling); Invalid.
	Answer(ctx context.Context, id string, a Answer) (Question, error)
}

// NoInbox is an [Inbox] for services that hold nothing.
type NoInbox struct{}

var _ Inbox = NoInbox{}

// Questions implements Inbox.
func (NoInbox) Questions(context.Context, InboxOptions) (InboxList, error) {
	return InboxList{}, lacking("list questions", "inbox")
}

// Answer implements Inbox.
func (NoInbox) Answer(context.Context, string, Answer) (Question, error) {
	return Question{}, lacking("answer question", "inbox")
}
