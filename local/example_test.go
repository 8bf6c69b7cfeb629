package local_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	_ "github.com/carrel-dev/carrel/local"
)

// Make a sandbox and run a command in it.
func Example() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	box, err := svc.Create(ctx, carrel.CreateOptions{Metadata: map[string]string{"task": "greeting"}})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	res, err := pc.Run(ctx, carrel.Command{Shell: `for i in 1 2 3; do echo "round $i"; done; whoami`})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%s\n", res.Stdout, res.Status)
	// Output:
	// round 1
	// round 2
	// round 3
	// user
	// exit status 0
}

// Feed a process from a reader and see its output as it is produced.
func Example_streaming() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
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
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	box, err := svc.Create(ctx, carrel.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pc, err := svc.Computer(ctx, box.ID)
	if err != nil {
		log.Fatal(err)
	}
	files := pc.Files("")
	if _, err := files.Write(ctx, "in/words.txt", strings.NewReader("pear\napple\nfig\napple\n")); err != nil {
		log.Fatal(err)
	}
	if _, err := pc.Run(ctx, carrel.Command{Shell: "sort in/words.txt | uniq -c > report.txt"}); err != nil {
		log.Fatal(err)
	}
	r, err := files.Read(ctx, "/home/user/report.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	report, err := io.ReadAll(r)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(report)) {
		fmt.Println(strings.TrimSpace(line))
	}
	// Output:
	// 2 apple
	// 1 fig
	// 1 pear
}

// Reach a port inside. In the simulated tier only the guest itself listens; in the other tiers,
// programs of the agent can listen too.
func Example_ports() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
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
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(conn, "GET /health HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil {
		log.Fatal(err)
	}
	status, _, _ := strings.Cut(string(answer), "\r\n")
	fmt.Println(status)
	if _, err := pc.Dial(ctx, 3000); err != nil {
		fmt.Println("nothing listens on 3000")
	}
	// Output:
	// HTTP/1.0 204 No Content
	// nothing listens on 3000
}
