package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Load reads a policy by the reference of a person: "deny" or "allow" for everything, a preset
// ("github"), several ("github,llm"), or a file. A file with a preset's name needs its directory:
// "./github". Error: Invalid, NotFound.
func Load(ref string) (carrel.Policy, error) {
	switch ref {
	case "deny":
		return carrel.Policy{}, nil
	case "allow":
		return carrel.Policy{Default: "allow"}, nil
	}
	names := strings.Split(ref, ",")
	known := 0
	for _, n := range names {
		if _, ok := findPreset(n); ok {
			known++
		}
	}
	if known == len(names) {
		p := carrel.Policy{Presets: names}
		return p, Check(p)
	}
	data, err := readFile(ref)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(ref, `./\`):
		return carrel.Policy{}, &carrel.Error{Op: "read policy", Kind: carrel.NotFound, Err: fmt.Errorf("%s is neither a file nor a preset", clip(ref)),
			Hint: "list the presets with: carrel policy presets"}
	case errors.Is(err, fs.ErrNotExist):
		return carrel.Policy{}, &carrel.Error{Op: "read policy", Kind: carrel.NotFound, Err: err}
	case err != nil:
		return carrel.Policy{}, &carrel.Error{Op: "read policy", Kind: carrel.Invalid, Err: err}
	}
	return Parse(ref, data)
}

// readFile reads a file of bounded size. The file may be a pipe.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
