package keeper

import "testing"

func FuzzRequest(f *testing.F) {
	for _, s := range []string{"", "P", "Pname", "Gname", "L", "Dx\x00y", "Zname", "L\n"} {
		f.Add([]byte(s), 0)
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, msg []byte, files int) {
		op, name, err := parseRequest(msg, files)
		if err != nil {
			return
		}
		if (files == 1) != (op == opPut) {
			t.Errorf("operation %c taken with %d files", op, files)
		}
		if checkName(name) != nil && (op != opList || name != "") {
			t.Errorf("name %q taken", name)
		}
	})
}
