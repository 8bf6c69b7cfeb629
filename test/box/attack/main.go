// Command attack is the hostile program of the escape suite: "attack NAME key=value…" tries one
// way out. It writes a line that begins with HARM for each thing that it achieved and that no box may
// allow, what it could read, and what refused the rest. The test judges that, and the canaries.
//
// It also runs without the box, even as root, so it aims at nothing but what its arguments name.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// target is what an attack aims at.
type target map[string]string

// number is a value as a number.
func (t target) number(key string) int {
	n, _ := strconv.Atoi(t[key])
	return n
}

// boxed reports whether the test says that the program is in a box, so that it may aim at all it sees.
func (t target) boxed() bool { return t["boxed"] == "1" }

// attacks are the ways out, and a few helpers of the test that must run as another user.
var attacks = map[string]func(target){}

// register adds some.
func register(m map[string]func(target)) bool {
	for name, f := range m {
		attacks[name] = f
	}
	return true
}

// harm says that something was achieved.
func harm(format string, args ...any) { fmt.Printf("HARM "+format+"\n", args...) }

// try says HARM if err is nil, and otherwise what refused.
func try(what string, err error) bool {
	if err == nil {
		harm("%s", what)
		return true
	}
	fmt.Printf("no %s: %v\n", what, err)
	return false
}

// show writes down what could be read, in which the test looks for secrets.
func show(what string, data []byte, err error) {
	if err != nil {
		fmt.Printf("no %s: %v\n", what, err)
		return
	}
	fmt.Printf("read %s: %.4000q\n", what, data)
}

func main() {
	if len(os.Args) < 2 || attacks[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "attack: which of the %d?\n", len(attacks))
		os.Exit(2)
	}
	t := target{}
	for _, a := range os.Args[2:] {
		if k, v, ok := strings.Cut(a, "="); ok {
			t[k] = v
		}
	}
	attacks[os.Args[1]](t)
	fmt.Println("end")
}
