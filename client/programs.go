package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/callback"
)

var _ carrel.Programs = (*Client)(nil)

// Provide implements carrel.Programs. The programs run in this process; the daemon's sandbox calls
// them over connections that this process opens. They stay until release is called, ctx ends or the
// daemon is lost. If the provider of a program is gone, the program fails with a message.
func (c *Client) Provide(ctx context.Context, id carrel.ID, programs ...carrel.Program) (func(), error) {
	const op = "provide programs"
	if err := carrel.CheckPrograms(programs); err != nil {
		return nil, err
	}
	type program struct {
		Name string `json:"name"`
		Help string `json:"help,omitempty"`
	}
	var list []program
	byName := map[string]carrel.Program{}
	for _, p := range programs {
		list = append(list, program{p.Name, p.Help})
		byName[p.Name] = p
	}
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, op, http.MethodPost, sandboxPath(id, "/programs"), nil, map[string]any{"programs": list})
	if err != nil {
		cancel()
		return nil, err
	}
	var work sync.WaitGroup
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			_ = resp.Body.Close()
		})
	}
	alarm := time.AfterFunc(silence, end)
	read := jsonLines(resp.Body)
	var first struct {
		Session string `json:"session"`
	}
	if _, err := read(&first); err != nil || first.Session == "" {
		end()
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: fmt.Errorf("the daemon did not take them: %w", err)}
	}
	work.Go(func() {
		defer end()
		defer alarm.Stop()
		for {
			var line struct {
				Call  string        `json:"call"`
				About callback.Call `json:"about"`
			}
			blank, err := read(&line)
			if err != nil {
				return
			}
			alarm.Reset(silence)
			p, ok := byName[line.About.Name]
			if blank || !ok {
				continue
			}
			work.Go(func() {
				conn, err := c.upgrade(ctx, op, sandboxPath(id, "/programs/"+first.Session+"/calls/"+line.Call))
				if err != nil {
					return // the daemon tells the caller
				}
				defer conn.Close()
				_ = callback.Answer(ctx, conn, id, line.About, p.Run) // the other end sees the error
			})
		}
	})
	return func() { end(); work.Wait() }, nil
}
