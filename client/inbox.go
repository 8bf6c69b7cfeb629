package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// Inbox has the connections that wait for a person, of the key's project.
type Inbox struct{ c *Client }

var _ carrel.Inbox = Inbox{}

// Inbox returns the daemon's inbox.
func (c *Client) Inbox() Inbox { return Inbox{c} }

// Questions implements carrel.Inbox.
func (i Inbox) Questions(ctx context.Context, opts carrel.InboxOptions) (out carrel.InboxList, err error) {
	q := url.Values{}
	if opts.Project != "" {
		q.Set("project", opts.Project)
	}
	if opts.Sandbox != "" {
		q.Set("sandbox", string(opts.Sandbox))
	}
	if opts.Wait != 0 {
		q.Set("wait", strconv.Itoa(int(opts.Wait/time.Second)))
		q.Set("revision", strconv.FormatInt(opts.Revision, 10))
	}
	err = i.c.call(ctx, "list questions", http.MethodGet, "/inbox", q, nil, &out)
	return out, err
}

// Answer implements carrel.Inbox.
func (i Inbox) Answer(ctx context.Context, id string, a carrel.Answer) (out carrel.Question, err error) {
	err = i.c.call(ctx, "answer question", http.MethodPost, "/inbox/"+url.PathEscape(id), nil, a, &out)
	return out, err
}
