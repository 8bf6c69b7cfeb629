package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// Floods: a busy wire must not open up.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"flood-then-denied": func(a *attempt) plan.Outcome {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var open []net.Conn
		for i := range 700 {
			wg.Go(func() {
				var c net.Conn
				var err error
				switch {
				case i < 500: // waits to be told apart
					c, err = net.DialTimeout("tcp", at(plan.Allowed.V4, 443), dialTime)
				case i < 600: // is refused
					c, err = net.DialTimeout("tcp", at(plan.Denied.V4, i), dialTime)
				default:
					if c, err = net.Dial("udp", at(plan.Echo.V4, 7001)); err == nil {
						_, _ = c.Write([]byte("flood"))
					}
				}
				if err == nil {
					mu.Lock()
					open = append(open, c)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		o := worst(stream(plan.Denied.V4, 443, []byte(a.mark)), packet(plan.Denied.V4, 443, []byte(a.mark)),
			stream(plan.Allowed.V4, 443, deniedHello(a.mark).bytes()), stream(plan.Allowed.V4, 80, a.http(smuggled)))
		for _, c := range open {
			_ = c.Close()
		}
		o.Detail = fmt.Sprint(len(open), " open; ", o.Detail)
		return o
	},
	"slow-hellos": func(a *attempt) plan.Outcome {
		// The marker comes early; the server name never comes.
		text := hello{name: plan.Allowed.Name, session: a.mark}.bytes()[:76]
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { _ = dribble(443, text, stop) })
			wg.Go(func() { _ = dribble(80, a.http("GET /MARK HTTP/1.1\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"), stop) })
		}
		time.Sleep(3 * time.Second) // enough time for the wire to judge everything
		close(stop)
		wg.Wait()
		return plan.Outcome{Saw: plan.Silent}
	},
})
