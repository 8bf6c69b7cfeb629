package shell_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/carrel-dev/carrel/shell"
)

// A script runs on a disk that the caller fills before and reads afterwards.
func Example() {
	m, err := shell.New(shell.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Files().WriteFile("sales.csv", []byte("north,3\nsouth,4\nnorth,5\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	r, err := m.Run(context.Background(), "awk -F, '{ n[$1] += $2 } END { for (k in n) print k, n[k] }' sales.csv | sort > sums; wc -l < sums")
	if err != nil {
		log.Fatal(err)
	}
	sums, err := m.Files().ReadFile("sums")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Stdout, string(sums))
	// Output:
	// 2
	// north 8
	// south 4
}

// A Go function of the caller stands in a pipe, and a script reaches a limit.
func ExampleProgram() {
	reverse := func(_ context.Context, c *shell.Call) int {
		for _, word := range c.Args {
			var b strings.Builder
			for i := len(word) - 1; i >= 0; i-- {
				b.WriteByte(word[i])
			}
			fmt.Fprintln(c.Stdout, b.String())
		}
		return 0
	}
	m, err := shell.New(shell.Options{Programs: map[string]shell.Program{"reverse": reverse}, Limits: shell.Limits{Steps: 1_000_000}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, script := range []string{"reverse abc def | tac", "while :; do :; done"} {
		r, err := m.Run(context.Background(), script)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q %q\n", r.Stdout, r.Message)
	}
	// Output:
	// "fed\ncba\n" ""
	// "" "over the limit of 1000000 steps"
}

// A fork begins with a copy of the disk. Later changes are its own.
func ExampleMachine_Fork() {
	ctx := context.Background()
	m, err := shell.New(shell.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Run(ctx, "echo draft > page"); err != nil {
		log.Fatal(err)
	}
	for _, word := range []string{"left", "right"} {
		fork, err := m.Fork()
		if err != nil {
			log.Fatal(err)
		}
		r, err := fork.Run(ctx, "echo "+word+" >> page; paste -s page")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(r.Stdout)
		_ = fork.Close()
	}
	// Output:
	// draft	left
	// draft	right
}
