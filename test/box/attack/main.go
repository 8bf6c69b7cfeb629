// Command attack is the hostile program of the escape suite: "attack NAME key=value…" tries one way
// out. It prints a line beginning with HARM for each success that no box may allow. It also prints
// the data that it could read, and the errors of everything else. The test judges this output, and
// the canaries.
//
// It also runs without the box, even as root. So it attacks only what its arguments name.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// target holds the arguments: the things to attack.
type target map[string]string

// number returns a value as a number.
func (t target) number(key string) int {
	n, _ := strconv.Atoi(t[key])
	return n
}

// boxed reports whether the program is in a box, as the test says. It may then attack everything it
// sees.
func (t target) boxed() bool { return t["boxed"] == "1" }

// attacks are the attacks, and some helpers of the test that must run as another user.
var attacks = map[string]func(target){}

// register adds some.
func register(m map[string]func(target)) bool {
	for name, f := range m {
		attacks[name] = f
	}
	return true
}

// harm reports a success of the attack.
func harm(format string, args ...any) { fmt.Printf("HARM "+format+"\n", args...) }

// try prints HARM if err is nil, and the error otherwise.
func try(what string, err error) bool {
	if err == nil {
		harm("%s", what)
		return true
	}
	fmt.Printf("no %s: %v\n", what, err)
	return false
}

// show prints data that could be read. The test looks for secrets in it.
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
