package simbash

import "flag"

// flagUnset reports whether a flag of the test binary is empty. With -test.run only some cases run.
func flagUnset(name string) bool {
	f := flag.Lookup(name)
	return f == nil || f.Value.String() == ""
}
