package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestCompose(t *testing.T) {
	d := newDisk(t)
	d.put("p1", "one ")
	d.put("p2", "two ")
	d.put("sub/p3", "three")
	d.put("out/whole", "old")
	a := d.call("POST", "/files/compose", nil, strings.NewReader(`{"source_paths":["p1","~/p2","sub/p3"],"destination":"out/whole","username":"ann"}`))
	var got uploaded
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || got.Path != d.path("out/whole") || got.Name != "whole" || got.Type != "file" {
		t.Fatalf("answer: %+v", a)
	}
	d.has("out/whole", "one two three")
	d.owned("out/whole")
	for _, name := range []string{"p1", "p2", "sub/p3"} {
		if _, err := os.Stat(d.path(name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	d.put("p1", "one ")
	for body, want := range map[string]string{
		`{`:                       "400 invalid request body",
		`[]`:                      "400 invalid request body",
		`{"source_paths":"p1"}`:   "400 invalid request body",
		`{"destination":"x"}`:     "400 source_paths must not be empty",
		`{"source_paths":["p1"]}`: "400 destination is required",
		`{"source_paths":["p1"],"destination":"./p1"}`:               "400 source path \"p1\" cannot be the same as destination",
		`{"source_paths":["p1","gone"],"destination":"x"}`:           "404 source file not found: gone",
		`{"source_paths":["out"],"destination":"x"}`:                 "400 source path is not a regular file: out",
		`{"source_paths":["p1"],"destination":"out"}`:                "400 path is a directory",
		`{"source_paths":["p1"],"destination":"p1/x"}`:               "400 error ensuring directories: path is a file",
		`{"source_paths":["p1","a\u0000"],"destination":"x"}`:        "400 source_paths[1] has a NUL byte",
		`{"source_paths":["p1"],"destination":"a\u0000"}`:            "400 error resolving destination path: destination has a NUL byte",
		`{"source_paths":["p1"],"destination":"x","username":"bob"}`: "401 error looking up user 'bob'",
		`{"source_paths":["` + strings.Repeat("x", 1<<20) + `"]}`:    "413 invalid request body",
	} {
		var status int
		if _, err := fmt.Sscan(want, &status); err != nil {
			t.Fatal(err)
		}
		d.isError(d.call("POST", "/files/compose", nil, strings.NewReader(body)), status, want[4:])
	}
	d.has("p1", "one ")
}
