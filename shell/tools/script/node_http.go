package script

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/carrel-dev/carrel/shell/tool"
)

// requests are a script's unfinished requests.
type requests struct {
	ctx   context.Context
	mu    sync.Mutex
	next  int
	going int
	done  []answer
	bell  chan struct{}
	group sync.WaitGroup
}

type answer struct {
	id   int
	resp *tool.Response
	body []byte
	err  error
}

// The most requests at once, and the most bytes of an answer.
const (
	maxRequests = 64
	maxAnswer   = 32 << 20
)

func (r *requests) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.going + len(r.done)
}

// wake returns a channel that is readable when an answer has arrived.
func (r *requests) wake() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bell == nil {
		r.bell = make(chan struct{}, 1)
	}
	return r.bell
}

// httpStart starts a request and returns its number. Its arguments are method, URL, headers as
// pairs, and a body or null.
func (n *node) httpStart(a in) (any, error) {
	way := n.c.HTTP()
	if way == nil {
		return nil, errors.New("there is no network here")
	}
	req := &tool.Request{Method: a.str(0), URL: a.str(1), Header: map[string][]string{}}
	if len(a.args) > 2 {
		for i := range min(a.vm.Int(a.vm.Get(a.args[2], "length")), 1000) {
			pair := n.strings(in{a.vm, append(a.args[:0:0], a.vm.At(a.args[2], int(i)))}, 0)
			if len(pair) == 2 {
				req.Header[pair[0]] = append(req.Header[pair[0]], pair[1])
			}
		}
	}
	if a.has(3) {
		b := a.bytes(3)
		req.Body, req.Length = bytes.NewReader(b), int64(len(b))
	}
	n.flush()
	r := &n.http
	bell := r.wake()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.going >= maxRequests {
		return nil, errors.New("too many requests at once")
	}
	r.next++
	r.going++
	id := r.next
	r.group.Add(1)
	go func() {
		defer r.group.Done()
		ans := answer{id: id}
		if ans.resp, ans.err = way.Do(r.ctx, req); ans.err == nil {
			ans.body, ans.err = io.ReadAll(io.LimitReader(ans.resp.Body, maxAnswer+1))
			_ = ans.resp.Body.Close() // it was read
			if len(ans.body) > maxAnswer {
				ans.err = errors.New("the answer is too large")
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.going--
		r.done = append(r.done, ans)
		select {
		case bell <- struct{}{}:
		default:
		}
	}()
	return id, nil
}

// httpPoll returns an answer that has arrived, or null. An answer has its number, an error, status,
// reason, headers and body.
func (n *node) httpPoll(in) (any, error) {
	r := &n.http
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.done) == 0 {
		return nil, nil
	}
	ans := r.done[0]
	r.done = r.done[1:]
	if ans.err != nil {
		return []any{ans.id, ans.err.Error()}, nil
	}
	var head []any
	for k, vs := range ans.resp.Header {
		for _, v := range vs {
			head = append(head, []any{k, v})
		}
	}
	return []any{ans.id, nil, ans.resp.Status, ans.resp.Reason, head, ans.body}, nil
}
