package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/carreltest"
	"github.com/carrel-dev/carrel/client"
)

// dial is the beginning of each example. Your own program connects to your own daemon:
// client.New("http://127.0.0.1:7070", os.Getenv("CARREL_API_KEY")).
func dial() (svc carrel.Service, done func()) {
	srv, err := carreltest.Start()
	if err != nil {
		log.Fatal(err)
	}
	svc, err = client.New(srv.URL, srv.APIKey)
	if err != nil {
		log.Fatal(err)
	}
	return svc, func() {
		_ = svc.Close()
		_ = srv.Close()
	}
}

// Make a sandbox, run a command in it, end it.
func Example() {
	ctx := context.Background()
	svc, done := dial()
	defer done()
	box, err := svc.Create(ctx, carrel.CreateOptions{Metadata: map[string]string{"task": "greeting"}})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	res, err := pc.Run(ctx, carrel.Command{Shell: "echo hello from $(whoami); exit 3"})
	if err != nil {
		log.Fatal(err) // Carrel failed; the command's own status is no error
	}
	fmt.Printf("%s%s\n", res.Stdout, res.Status)
	if err := svc.Kill(ctx, box.ID); err != nil {
		log.Fatal(err)
	}
	_, err = svc.Get(ctx, box.ID)
	fmt.Println(carrel.KindOf(err) == carrel.NotFound)
	// Output:
	// hello from user
	// exit status 3
	// true
}

// Feed a process from a reader and see its output as it is produced.
func Example_streaming() {
	ctx := context.Background()
	svc, done := dial()
	defer done()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	p, err := pc.Start(ctx, carrel.Command{Shell: `while read -r name; do echo "hello, $name"; done`,
		Stdin: strings.NewReader("Ada\nGrace\n"), Stdout: os.Stdout})
	if err != nil {
		log.Fatal(err)
	}
	res, err := p.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.ExitCode)
	// Output:
	// hello, Ada
	// hello, Grace
	// 0
}

// Put a file in, let a command work on it, take the result out.
func Example_files() {
	ctx := context.Background()
	svc, done := dial()
	defer done()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	files := pc.Files("")
	if _, err := files.Write(ctx, "words.txt", strings.NewReader("pear\napple\nfig\n")); err != nil {
		log.Fatal(err)
	}
	if _, err := pc.Run(ctx, carrel.Command{Shell: "sort words.txt > sorted.txt"}); err != nil {
		log.Fatal(err)
	}
	r, err := files.Read(ctx, "sorted.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(os.Stdout, r); err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple
	// fig
	// pear
}

// Reach a port inside. With real processes, programs that the agent started can listen.
func Example_ports() {
	ctx := context.Background()
	svc, done := dial()
	defer done()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := pc.Dial(ctx, carrel.GuestPort)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /health HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil {
		log.Fatal(err)
	}
	status, _, _ := strings.Cut(string(answer), "\r\n")
	fmt.Println(status)
	// Output: HTTP/1.0 204 No Content
}
